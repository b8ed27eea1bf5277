"""Operators over text, beyond the generic laws."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import NASTY_TEXT, arrow_column, computed
from tests.transforms.operators.parameters.text import COMMON_PATTERNS, RE2_PATTERNS
from transforms.errors import InputError
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Literal, raw_columns
from transforms.operators import REGISTRY, unicode14
from transforms.operators.patterns import escaped, groups_of, means_the_same_in_python, only_group, unnamed
from transforms.operators.text import WHITE_SPACE
from transforms.types import Dense, DType, Ragged

MEGABYTE = 1_000_000
EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
_TEXT = hr.text("c0")
_TWINNED_TABLES = {"lower": unicode14.lower, "upper": unicode14.upper, "normalize": unicode14.normalize}


def _kernel(expression: hr.Expr, *columns: Sequence[Any]) -> list[Any]:
    types = {column.name: column.type for column in raw_columns(expression.node)}
    arrays = [arrow_column(values, types[f"c{i}"]) for i, values in enumerate(columns)]
    found: list[Any] = computed(expression.node, arrays, len(columns[0])).to_pylist()
    return found


def _twin(expression: hr.Expr, *columns: Sequence[Any], traced: bool = False) -> list[Any]:
    import tensorflow as tf

    from transforms.twins.graph import compute
    from transforms.twins.tensors import DenseTensor, from_arrow, to_arrow

    types = {column.name: column.type for column in raw_columns(expression.node)}
    tensors = {
        name: from_arrow(arrow_column(columns[int(name[1:])], column_type), column_type)
        for name, column_type in types.items()
    }
    if not traced:
        found: list[Any] = to_arrow(compute({"it": expression.node}, tensors)["it"], expression.type).to_pylist()
        return found

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(values: Any) -> Any:
        result = compute({"it": expression.node}, {"c0": DenseTensor(values)})["it"]
        return (result.values, result.valid) if isinstance(result, DenseTensor) else result

    result = serve(tensors["c0"].values)
    result = DenseTensor(*result) if isinstance(result, tuple) else result
    served: list[Any] = to_arrow(result, expression.type).to_pylist()
    return served


def _both(expression: hr.Expr, *columns: Sequence[Any]) -> list[Any]:
    """What the kernel gives, when the twin gives the same."""
    found = _kernel(expression, *columns)
    assert _twin(expression, *columns) == found
    return found


# Patterns.


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(a", "a)", "a)(b", "[a", r"\Ca", "a**", "a{1001}", "\\",
                                     r"\Z", "a++", "(?>a)", r"a\B", r"\p{Greek}", r"[\p{Han}]", r"\p{Foo}"])  # fmt: skip
def test_a_pattern_that_re2_refuses_is_refused_when_it_is_written(pattern: str) -> None:
    for write in (lambda: _TEXT.regex_extract(pattern), lambda: _TEXT.regex_replace(pattern, "")):
        with pytest.raises(InputError, match="a parameter must have an allowed value") as caught:
            write()
        assert caught.value.value == pattern
        assert "parameter pattern" in caught.value.where


def test_groups_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="the group must be one of the pattern") as caught:
        _TEXT.regex_extract(r"(a)(?:b)[(]\(", group=2)
    assert (caught.value.value, caught.value.allowed) == (2, "0 .. 1")
    for replacement in (r"\2", r"\q", "\\", "a\\"):
        with pytest.raises(InputError, match="the replacement must refer to groups") as caught:
            _TEXT.regex_replace("(a)", replacement)
        assert caught.value.value == replacement
        assert caught.value.where == "operator regex_replace, parameter replacement"


def test_text_parameters_with_half_a_surrogate_pair_are_refused() -> None:
    writes: list[Callable[[str], object]] = [
        _TEXT.strip, _TEXT.starts_with, _TEXT.ends_with, _TEXT.contains, lambda bad: _TEXT.replace("a", bad),
        lambda bad: _TEXT.replace(bad, "a"), _TEXT.regex_extract, lambda bad: _TEXT.regex_replace(bad, ""), lambda bad: _TEXT.regex_replace("a", bad),
        lambda bad: _TEXT.unigrams().remove_stop_words(["a", bad]),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(InputError, match="text must be without lone surrogates"):
            write("a\udc00")


def test_patterns_sampled_as_common_have_their_meaning_in_python() -> None:
    assert all(map(means_the_same_in_python, COMMON_PATTERNS))
    assert not any(map(means_the_same_in_python, RE2_PATTERNS))


_LETTERS = st.sampled_from(["a", "b", ".", r"\w", r"\d", "[ab]", "[^a]", "é", r"\.", "[a-c1]", " "])
_TIMES = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}"])
_ATOMS = st.tuples(_LETTERS, _TIMES).map("".join) | st.sampled_from([r"\b", "^", "|"])
_GROUPS = st.lists(st.lists(_LETTERS, min_size=1, max_size=2).map("".join), min_size=1, max_size=3).map("|".join)
_ALIKE = st.lists(
    _ATOMS
    | st.tuples(_GROUPS, _TIMES).map(lambda part: f"({part[0]}){part[1]}")
    | st.lists(_ATOMS, max_size=3).map(lambda parts: f"({''.join(parts)})"),
    max_size=5,
).map("".join)
_HAY = st.text("ab1. é\n,", max_size=12)


@given(pattern=_ALIKE, texts=st.lists(_HAY, max_size=6))
@settings(max_examples=scaled(120))
def test_extract_and_replace_are_what_python_finds(pattern: str, texts: list[str]) -> None:
    assert means_the_same_in_python(pattern)
    for group in range(groups_of(pattern) + 1):
        extract = REGISTRY["regex_extract"].reference
        expected = [extract(text, pattern=pattern, group=group) for text in texts]
        assert _both(_TEXT.regex_extract(pattern, group), texts) == expected
    replacement = r"<\0>" if groups_of(pattern) == 0 else r"<\1>"
    expected = [REGISTRY["regex_replace"].reference(text, pattern=pattern, replacement=replacement) for text in texts]
    assert _both(_TEXT.regex_replace(pattern, replacement), texts) == expected


@pytest.mark.parametrize("pattern", RE2_PATTERNS)
def test_arrow_and_tensorflow_read_a_pattern_alike(pattern: str) -> None:
    texts = [*NASTY_TEXT, "a.b", "a,b", "xay\nb", "\v\f x", "Σσς", "Kkſs", "]a^", "(a", None]
    for group in range(groups_of(pattern) + 1):
        _both(_TEXT.regex_extract(pattern, group), texts)
    _both(_TEXT.regex_replace(pattern, r"[\0]"), texts)


def test_known_answers_of_re2() -> None:
    texts = ["abxd", "", "a\nb", "aaa"]
    assert _both(_TEXT.regex_replace("x*", "-"), texts) == ["-a-b-d-", "-", "-a-\n-b-", "-a-a-a-"]  # Python: -a-b--d-
    assert _both(_TEXT.regex_extract("a$"), ["a\n", "a"]) == [None, "a"]  # Python: both
    assert _both(_TEXT.regex_extract(r"\s"), ["\v", "\f"]) == [None, "\f"]  # Python: both
    assert _both(_TEXT.regex_extract("a|ab"), ["ab"]) == ["a"]
    assert _both(_TEXT.regex_extract("(a)|b", group=1), ["b", "xa", "c", None]) == ["", "a", None, None]
    assert _both(_TEXT.regex_extract("a{,2}"), ["a{,2}", "aa"]) == ["a{,2}", None]  # Python: '' and aa
    assert _both(_TEXT.regex_replace("(?i)straße", r"\\"), ["STRAßE", "strasse"]) == ["\\", "strasse"]


def test_rewritten_patterns_keep_everything_but_groups() -> None:
    pattern = r"(a)[(\](](?P<n>\((b))|(?:c)(?i:d)(?<m>e)\Q(x.\E[[:alpha:](]"
    assert groups_of(pattern) == 4
    kept = r"[(\](](?:\((?:b))|(?:c)(?i:d)(?:e)\x{28}x\x{2e}[[:alpha:](]"
    assert only_group(pattern, 1, "(") == f"(?:(a){kept})"
    assert only_group(pattern, 0, "(") == f"((?:a){kept})"
    assert unnamed("(?P<n>a)(?<m>b)(?:c)") == "(a)(b)(?:c)"
    assert unnamed(r"[]()](?P<n>a)[^](]") == r"[]()](a)[^](]"


def test_escaped_text_is_a_pattern_of_itself() -> None:
    ascii_text = "".join(map(chr, range(128)))
    for text in [*NASTY_TEXT, ascii_text]:
        assert _both(_TEXT.regex_extract(escaped(text)), [f"<{text}>"]) == [text]


def test_literals_fold_by_the_meaning_that_columns_have() -> None:
    for expression in (
        hr.literal("a\nb").regex_extract(r"\pL$"),
        hr.literal("abxd").regex_replace("(?i)X*", "-"),
        hr.literal("kitten").edit_distance("sitting"),
    ):
        folded = canonicalize(expression.node)
        assert isinstance(folded, Literal)
        same = canonicalize(hr.text("c0").regex_extract(r"\pL$").node)
        assert not isinstance(same, Literal)
    assert canonicalize(hr.literal("a\nb").regex_extract(r"\pL$").node).value == "b"  # type: ignore[union-attr]
    assert canonicalize(hr.literal("abxd").regex_replace("(?i)X*", "-").node).value == "-a-b-d-"  # type: ignore[union-attr]


#: SHA-256 over the ranges of every general category, under every Python.
_CATEGORIES = "d463ca588b78f1a17258b91917544e06082744114741a0f54982118d400d4b84"


@pytest.mark.slow
def test_general_categories_are_those_of_unicode_14() -> None:
    known = "".join(unicode14.known_pieces("".join(EVERY)))
    for name in unicode14.CATEGORIES:
        ranges = unicode14.category_ranges(name)
        members = [code for first, last in ranges for code in range(first, last + 1)]
        assert members == [ord(character) for character in known if unicodedata.category(character).startswith(name)]
        assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(ranges))
    spelled = repr([(name, unicode14.category_ranges(name)) for name in sorted(unicode14.CATEGORIES)])
    assert hashlib.sha256(spelled.encode()).hexdigest() == _CATEGORIES


@pytest.mark.parametrize("name", ["L", "Nd", "Co"])
def test_properties_in_patterns_are_general_categories(name: str) -> None:
    text = "".join(EVERY)
    members = "".join(chr(code) for first, last in unicode14.category_ranges(name) for code in range(first, last + 1))
    chosen = set(members)
    others = "".join(character for character in EVERY if character not in chosen)
    assert _both(_TEXT.regex_replace(rf"\P{{{name}}}+", ""), [text]) == [members]
    assert _both(_TEXT.regex_replace(rf"[\P{{^{name}}}\p{{{name}}}]+", ""), [text]) == [others]
    assert _both(_TEXT.regex_replace(rf"[^\P{{{name}}}a]+", ""), [members]) == ["a" if "a" in members else ""]


#: SHA-256 over the letters that are another letter in the other case, as RE2 has them.
_FOLDING_OF_RE2 = "0d3c88376638e69557ebe349af5ac84d333ffb8c4e39026d8b6df9b747a2dd7a"


def test_case_folding_of_re2_is_what_it_was() -> None:
    """Its tables follow its release: if a release changes them, the two operators need a new version."""
    text = "".join(EVERY)
    kept = _both(_TEXT.regex_replace(r"(?i)[^\p{Lu}\p{Lt}]", ""), [text]) + _both(
        _TEXT.regex_replace(r"(?i)[^\p{Ll}]", ""), [text]
    )
    assert hashlib.sha256("".join(kept).encode()).hexdigest() == _FOLDING_OF_RE2


# Case and normal forms in TensorFlow.


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_TWINNED_TABLES))
def test_twin_of_every_code_point(name: str) -> None:
    change = _TWINNED_TABLES[name]
    assert _twin(getattr(_TEXT, name)(), EVERY) == [change(character) for character in EVERY]


def _samples() -> list[str]:
    source = random.Random(14)
    known = "".join(unicode14.known_pieces("".join(EVERY)))
    marked = [character for character in known if unicodedata.combining(character)]
    parted = [character for character in known if len(unicodedata.normalize("NFKD", character)) > 1]
    often = [*"aeEΣςΑ' .ⅷ가각", "\u1100", "\u1161", "\u11a8", "\u1176", "\u09c7", "\u09be", "\u0cc6", "\u0cc2", "\u0cd5",
             "\u0301", "\u0308", "\u0323", "\u0345", "\u0327", "\u0342", "\u00ad", "\u0378", "\U0001e030"]  # fmt: skip
    pools = (known, marked, parted, often, often, often)
    return ["".join(source.choice(source.choice(pools)) for _ in range(source.randrange(14))) for _ in range(40_000)]


@pytest.mark.slow
def test_twins_of_case_and_normal_form_on_mixed_text() -> None:
    samples = _samples()
    parts = [unicodedata.normalize("NFD", sample) for sample in samples[:5000]]
    for name, change in _TWINNED_TABLES.items():
        texts = samples + parts
        assert _both(getattr(_TEXT, name)(), texts) == [change(text) for text in texts], name


@pytest.mark.medium
def test_final_sigma_depends_on_the_nearest_characters_that_count() -> None:
    texts = [
        "ΑΣ",
        "ΑΣ.",
        "ΑΣΑ",
        "Α.Σ",
        "Α.ΣΑ",
        "ΑΣ.Α",
        "Σ",
        "ΣΣ",
        "1Σ",
        "ΑΣ\u0301",
        "ΑΣ\u0301Α",
        "\u0301Σ",
        "ʰΣ",
        "",
        "ΑΣ ΑΣ",
    ]
    expected = ["ας", "ας.", "ασα", "α.ς", "α.σα", "ας.α".replace("ς", "σ"), "σ", "σς", "1σ", "ας\u0301", "ασ\u0301α", "\u0301σ",
                "ʰσ", "", "ας ας"]  # fmt: skip
    assert _both(_TEXT.lower(), texts) == [unicode14.lower(text) for text in texts]
    assert [found for found, text in zip(_twin(_TEXT.lower(), texts), texts, strict=True) if text != "ΑΣ.Α"] == [
        known for known, text in zip(expected, texts, strict=True) if text != "ΑΣ.Α"
    ]


def test_a_context_ends_with_its_text() -> None:
    assert _twin(_TEXT.lower(), ["Α", "Σ", "Α", "ΑΣ", "Α"]) == ["α", "σ", "α", "ας", "α"]
    assert _twin(_TEXT.normalize(), ["e", "\u0301", "\u1100", "\u1161\u11a8", "\u0323\u0301"]) == [
        "e", "\u0301", "\u1100", "\u1161\u11a8", "\u0323\u0301"]  # fmt: skip


# All of them: lists, graphs of unknown batch size, and sizes.

_LIFTING: list[tuple[Callable[[hr.Expr], hr.Expr], Callable[[str], Any]]] = [
    (lambda x: x.upper(), unicode14.upper),
    (lambda x: x.strip(), str.strip),
    (lambda x: x.substring(1, 2), lambda s: s[1:3]),
    (lambda x: x.replace("a", "é\\1"), lambda s: s.replace("a", "é\\1")),
    (lambda x: x.length(), len),
    (lambda x: x.starts_with("a"), lambda s: s.startswith("a")),
    (lambda x: x.ends_with("b"), lambda s: s.endswith("b")),
    (lambda x: x.contains("\x00"), lambda s: "\x00" in s),
    (lambda x: x.edit_distance("ab"), lambda s: REGISTRY["edit_distance"].reference(s, "ab")),
    (lambda x: x.regex_extract("b+"), lambda s: (re.search("b+", s) or [None])[0]),
    (lambda x: x.regex_replace("[a-z]", "-"), lambda s: re.sub("[a-z]", "-", s)),
]


@pytest.mark.parametrize(("apply", "each"), _LIFTING, ids=range(len(_LIFTING)))
def test_every_operator_over_one_text_works_on_items(apply: Callable[..., hr.Expr], each: Callable[..., Any]) -> None:
    lists = [NASTY_TEXT, [], ["b", "", "abba"], [" x "]]
    expression = apply(hr.ragged("c0", "string"))
    assert isinstance(expression.type, Ragged)
    assert _both(expression, lists) == [[got for item in row if (got := each(item)) is not None] for row in lists]


def test_distance_of_each_token_from_a_column() -> None:
    tokens, query = hr.ragged("c0", "string"), hr.text("c1")
    rows = [["shoe", "shop", ""], ["a"], [], ["x"]], ["shoe", None, "b", ""]
    assert _both(tokens.edit_distance(query), *rows) == [[0, 1, 4], [], [], [1]]


_ALL: list[hr.Expr] = [
    *(apply(_TEXT) for apply, _ in _LIFTING),
    _TEXT.lower(), _TEXT.normalize(), _TEXT.split("a"), _TEXT.unigrams(), _TEXT.unigrams().ngrams(2), _TEXT.char_ngrams(3),
    _TEXT.unigrams().remove_stop_words(), _TEXT.substring(-3), _TEXT.strip("a b"), _TEXT.regex_extract("(a)|b", 1),
]  # fmt: skip


@pytest.mark.parametrize("expression", _ALL, ids=str)
def test_twin_in_a_graph_of_unknown_batch_size(expression: hr.Expr) -> None:
    assert _twin(expression, NASTY_TEXT, traced=True) == _kernel(expression, NASTY_TEXT)
    assert _twin(expression, [], traced=True) == []


_LONG = {
    "ascii": "Abc ab " * (MEGABYTE // 7), "greek": "ΟΔΟΣ ab " * (MEGABYTE // 12), "chinese": "搜索广告" * (MEGABYTE // 12),
    "spaces": " \u3000" * (MEGABYTE // 4), "emoji": "👩‍👧 " * (MEGABYTE // 12), "hangul": "\u1112\u1161\u11ab" * (MEGABYTE // 9),
    "nul": "\x00a" * (MEGABYTE // 2), "one": "a" * MEGABYTE,
}  # fmt: skip


_QUICK = ("greek", "chinese", "nul")


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in _LONG]
)
def test_texts_of_a_megabyte(name: str) -> None:
    text = _LONG[name]
    for expression in _ALL:
        found = _both(expression, ["x", text, None, ""])
        assert len(found) == 4
    assert _kernel(_TEXT.length(), [text]) == [len(text)]
    assert _kernel(_TEXT.lower(), [text]) == [unicode14.lower(text)]
    assert _kernel(_TEXT.strip(), [text]) == [text.strip()]
    assert _kernel(_TEXT.char_ngrams(2), [text])[0][-1] == text[-2:]
    assert _kernel(_TEXT.substring(-5, 3), [text]) == [text[-5:-2]]


def test_every_mark_is_put_in_order() -> None:
    marks = "".join(
        character for character in EVERY if unicodedata.combining(unicodedata.normalize("NFKD", character)[0])
    )
    known = "".join(unicode14.known_pieces(marks))
    assert unicode14._marks(1).fullmatch(known)
    assert unicode14.normalize("a" + known + known) == unicodedata.normalize("NFKC", "a" + known + known)


@pytest.mark.medium
@pytest.mark.parametrize("marks", ["\u0301", "\u0301\u0323\u0327", "\u0f73", "\u0344\u0345"], ids=ascii)
def test_marks_that_never_end_take_no_endless_time(marks: str) -> None:
    few = "ab" + marks * 400 + "\u1161" * 9 + "e\u0323\u0301"
    assert _both(_TEXT.normalize(), [few]) == [unicodedata.normalize("NFKC", few)]
    assert len(_both(_TEXT.normalize(), ["e" + marks * (MEGABYTE // 6)])[0]) >= MEGABYTE // 6


def test_lists_of_a_hundred_thousand_tokens() -> None:
    tokens = hr.ragged("c0", "string")
    rows = [[f"the{i % 7}" if i % 3 else "the" for i in range(100_000)], [], ["of", "Of"]]
    assert _both(tokens.remove_stop_words(), rows) == [
        [token for token in row if token not in ("the", "of")] for row in rows
    ]
    assert len(_both(tokens.ngrams(3), rows)[0]) == 99_998
    assert _both(tokens.edit_distance("thee"), rows)[0][:2] == [1, 1]


# Distances.


@given(a=st.text("abcé", max_size=200), b=st.text("abcé你", max_size=200))
@settings(max_examples=scaled(150))
def test_distance_over_several_blocks(a: str, b: str) -> None:
    assert _kernel(_TEXT.edit_distance(hr.text("c1")), [a], [b]) == [REGISTRY["edit_distance"].reference(a, b)]


def test_distance_of_long_texts() -> None:
    source = random.Random(5)
    base = "".join(source.choices("abcdefgh 你é", k=20_000))
    changed = list(base)
    for at in range(0, 20_000, 500):
        changed[at] = "#"
    distance = _TEXT.edit_distance(hr.text("c1"))
    other = "".join(changed) + "!!"
    assert _kernel(distance, [base, base, "", base], [other, base, base, "x" + base]) == [42, 0, 20_000, 1]
    million = "ab" * (MEGABYTE // 2)
    assert _kernel(distance, [million, million], ["ba" + million, "ab"]) == [2, MEGABYTE - 2]


# Parts.


@pytest.mark.medium
def test_white_space_is_the_29_characters_that_python_strips() -> None:
    assert sorted(WHITE_SPACE) == [character for character in EVERY if character.isspace()]
    assert len(WHITE_SPACE) == 29
    around = [f"{character}a{character}" for character in EVERY]
    assert _both(_TEXT.strip(), around) == [text.strip() for text in around]


@given(text=st.text("aé你👩", max_size=8), start=st.integers(-10, 10), length=st.integers(0, 10))
@settings(max_examples=scaled(150))
def test_substring_is_a_slice(text: str, start: int, length: int) -> None:
    begin = start if start >= 0 else max(len(text) + start, 0)
    assert _both(_TEXT.substring(start, length), [text]) == [text[begin : begin + length]]


def test_parts_are_spans_over_the_text_they_came_from() -> None:
    import numpy as np

    from transforms.columns.columns import Strings, from_arrow
    from transforms.kernels import text_parts

    column = from_arrow(pa.array([" ab ", "cde"]), Dense(DType.STRING))
    assert isinstance(column, Strings)
    for part in (text_parts.strip(column, characters=""), text_parts.substring(column, start=1, length=2)):
        assert isinstance(part, Strings)
        assert np.shares_memory(part.data, column.data)


@pytest.mark.medium
def test_replace_and_contains_take_their_text_as_it_is() -> None:
    for old, new in itertools.product(
        [".", "\\", "a", "aa", "\x00", "(", "你", "$1"], ["", "\\1", "\\", "\\\\0", "$1", "b"]
    ):
        assert _both(_TEXT.replace(old, new), NASTY_TEXT) == [text.replace(old, new) for text in NASTY_TEXT]
        assert _both(_TEXT.contains(old), NASTY_TEXT) == [old in text for text in NASTY_TEXT]


def test_the_default_stop_words_are_those_of_lucene() -> None:
    from transforms.operators.tokens import ENGLISH_STOP_WORDS

    assert len(ENGLISH_STOP_WORDS) == len(set(ENGLISH_STOP_WORDS)) == 33
    default, spelled = (
        hr.ragged("t", "string").remove_stop_words(*words) for words in ((), (list(ENGLISH_STOP_WORDS),))
    )
    assert default.node.identity == spelled.node.identity
