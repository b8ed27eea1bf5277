"""Operators over text. Text is UTF-8; positions and lengths count code points."""

from __future__ import annotations

from transforms.operators import unicode14
from transforms.operators.declaration import Arg, KernelAt, Law, Operator, Param
from transforms.operators.signatures import TEXT, always, at_least, first, not_empty
from transforms.types import Dense, DType, Ragged

_KERNELS = "transforms.kernels.text"
_TEXT = Arg("text", dense=TEXT)
_TEXTS = Arg("text", dense=TEXT, ragged=TEXT)
_TOKENS = always(Ragged(DType.STRING))


def _lower(text: str | list[str]) -> str | list[str]:
    return unicode14.lower(text) if isinstance(text, str) else [unicode14.lower(item) for item in text]


def _normalize(text: str | list[str]) -> str | list[str]:
    return unicode14.normalize(text) if isinstance(text, str) else [unicode14.normalize(item) for item in text]


def _split(text: str, *, sep: str) -> list[str]:
    return [piece for piece in text.split(sep) if piece]


def _unigrams(text: str) -> list[str]:
    return text.split()


def _ngrams(tokens: list[str], *, n: int, joiner: str) -> list[str]:
    return [joiner.join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def _char_ngrams(text: str, *, n: int) -> list[str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


LOWER = Operator(
    name="lower",
    version=1,
    family="text",
    summary="Full Unicode 14.0 lower case, as Python's str.lower: with final sigma, and I with dot above as two code points.",
    args=(_TEXTS,),
    result=first,
    reference=_lower,
    kernel=KernelAt(_KERNELS, "lower"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=30,
)

NORMALIZE = Operator(
    name="normalize",
    version=1,
    family="text",
    summary="Unicode 14.0 normalisation form NFKC: compatibility characters such as ligatures and full-width letters become plain.",
    args=(_TEXTS,),
    result=first,
    reference=_normalize,
    kernel=KernelAt(_KERNELS, "normalize"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=30,
)

SPLIT = Operator(
    name="split",
    version=1,
    family="text",
    summary="The pieces between occurrences of sep, taken from the left; empty pieces are dropped.",
    args=(_TEXT,),
    result=_TOKENS,
    reference=_split,
    kernel=KernelAt(_KERNELS, "split"),
    params=(Param("sep", str, check=not_empty, doc="the separator, matched byte for byte"),),
    cost_ns=60,
)

UNIGRAMS = Operator(
    name="unigrams",
    version=1,
    family="text",
    summary="The pieces between runs of white space: the 29 code points of Python's str.isspace. Case and order are kept.",
    args=(_TEXT,),
    result=_TOKENS,
    reference=_unigrams,
    kernel=KernelAt(_KERNELS, "unigrams"),
    cost_ns=60,
)

NGRAMS = Operator(
    name="ngrams",
    version=1,
    family="text",
    summary="Every n neighbouring tokens joined by joiner, in order; fewer than n tokens give none.",
    args=(Arg("tokens", ragged=TEXT),),
    result=_TOKENS,
    reference=_ngrams,
    kernel=KernelAt(_KERNELS, "ngrams"),
    params=(
        Param("n", int, check=at_least(1), doc="tokens in each n-gram"),
        Param("joiner", str, " ", doc="what stands between two tokens"),
    ),
    cost_ns=120,
)

CHAR_NGRAMS = Operator(
    name="char_ngrams",
    version=1,
    family="text",
    summary="Every n neighbouring code points, in order; a text shorter than n gives none.",
    args=(_TEXT,),
    result=_TOKENS,
    reference=_char_ngrams,
    kernel=KernelAt(_KERNELS, "char_ngrams"),
    params=(Param("n", int, check=at_least(1), doc="code points in each n-gram"),),
    cost_ns=120,
)

LENGTH = Operator(
    name="length",
    version=1,
    family="text",
    summary="The number of code points.",
    args=(_TEXT,),
    result=always(Dense(DType.INT64)),
    reference=len,
    kernel=KernelAt(_KERNELS, "length"),
    cost_ns=15,
)

OPERATORS = (LOWER, NORMALIZE, SPLIT, UNIGRAMS, NGRAMS, CHAR_NGRAMS, LENGTH)
