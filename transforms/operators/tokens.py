"""Operators that cut text into tokens, and over lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param
from transforms.operators.signatures import TEXT, always, at_least, first, not_empty, unicode_text
from transforms.types import DType, Ragged

#: Stop words: the English ones that Apache Lucene's StandardAnalyzer had by default.
ENGLISH_STOP_WORDS = (
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on",
    "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
)  # fmt: skip

_KERNELS, _TWINS = "transforms.kernels.text", "transforms.twins.tokens"
_TEXT = Arg("text", dense=TEXT)
_TOKENS = Arg("tokens", ragged=TEXT)
_LIST_OF_TEXT = always(Ragged(DType.STRING))


def _split(text: str, *, sep: str) -> list[str]:
    return [piece for piece in text.split(sep) if piece]


def _unigrams(text: str) -> list[str]:
    return text.split()


def _ngrams(tokens: list[str], *, n: int, joiner: str) -> list[str]:
    return [joiner.join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def _char_ngrams(text: str, *, n: int) -> list[str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


def _remove_stop_words(tokens: list[str], *, words: Sequence[str]) -> list[str]:
    return [token for token in tokens if token not in words]


SPLIT = Operator(
    name="split",
    version=1,
    family="text",
    summary="The pieces between occurrences of sep, taken from the left; empty pieces are dropped.",
    args=(_TEXT,),
    result=_LIST_OF_TEXT,
    reference=_split,
    kernel=Imported(_KERNELS, "split"),
    params=(Param("sep", str, check=not_empty, doc="the separator, matched byte for byte"),),
    cost_ns=60,
    twin=Imported(_TWINS, "split"),
    example=Example(
        'hr.text("genres").split("|")', {"genres": ["Comedy|Drama", "", "|War|"]}, [["Comedy", "Drama"], [], ["War"]]
    ),
)

UNIGRAMS = Operator(
    name="unigrams",
    version=1,
    family="text",
    summary="The pieces between runs of white space: the 29 code points of Python's str.isspace. Case and order are kept.",
    args=(_TEXT,),
    result=_LIST_OF_TEXT,
    reference=_unigrams,
    kernel=Imported(_KERNELS, "unigrams"),
    cost_ns=60,
    twin=Imported(_TWINS, "unigrams"),
    example=Example(
        'hr.text("query").unigrams()',
        {"query": ["red  shoes ", "靴\u3000赤", None]},
        [["red", "shoes"], ["靴", "赤"], []],
    ),
)

NGRAMS = Operator(
    name="ngrams",
    version=1,
    family="text",
    summary="Every n neighbouring tokens joined by joiner, in order; fewer than n tokens give none.",
    args=(_TOKENS,),
    result=_LIST_OF_TEXT,
    reference=_ngrams,
    kernel=Imported(_KERNELS, "ngrams"),
    params=(
        Param("n", int, check=at_least(1), doc="tokens in each n-gram"),
        Param("joiner", str, " ", doc="the text between two tokens"),
    ),
    cost_ns=120,
    twin=Imported(_TWINS, "ngrams"),
    example=Example(
        'hr.text("query").unigrams().ngrams(2)',
        {"query": ["cheap red shoes", "shoes"]},
        [["cheap red", "red shoes"], []],
    ),
)

CHAR_NGRAMS = Operator(
    name="char_ngrams",
    version=1,
    family="text",
    summary="Every n neighbouring code points, in order; a text shorter than n gives none.",
    args=(_TEXT,),
    result=_LIST_OF_TEXT,
    reference=_char_ngrams,
    kernel=Imported(_KERNELS, "char_ngrams"),
    params=(Param("n", int, check=at_least(1), doc="code points in each n-gram"),),
    cost_ns=120,
    twin=Imported(_TWINS, "char_ngrams"),
    example=Example('hr.text("query").char_ngrams(3)', {"query": ["shoe", "靴", None]}, [["sho", "hoe"], [], []]),
)

REMOVE_STOP_WORDS = Operator(
    name="remove_stop_words",
    version=1,
    family="text",
    summary="The tokens that are none of the words, compared byte for byte: lower the text first.",
    args=(_TOKENS,),
    result=first,
    reference=_remove_stop_words,
    kernel=Imported("transforms.kernels.text_patterns", "remove_stop_words"),
    params=(
        Param(
            "words", tuple, ENGLISH_STOP_WORDS, unicode_text, "the words to leave out; 33 English ones by default", str
        ),
    ),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=200,
    twin=Imported(_TWINS, "remove_stop_words"),
    example=Example(
        'hr.text("query").unigrams().remove_stop_words()',
        {"query": ["shoes for the beach", "to be or not to be"]},
        [["shoes", "beach"], []],
    ),
)

OPERATORS = (SPLIT, UNIGRAMS, NGRAMS, CHAR_NGRAMS, REMOVE_STOP_WORDS)
