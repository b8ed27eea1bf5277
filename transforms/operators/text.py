"""Operators over whole texts. Text is UTF-8; positions and lengths count code points."""

from __future__ import annotations

from collections.abc import Sequence

from transforms.operators import unicode14
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param
from transforms.operators.signatures import INT64_MAX, INT64_MIN, TEXT, always, at_least, first, not_empty, unicode_text
from transforms.types import Dense, DType

#: The 29 code points of Python's ``str.isspace``.
WHITE_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

_KERNELS, _PARTS, _PATTERNS = (
    "transforms.kernels.text",
    "transforms.kernels.text_parts",
    "transforms.kernels.text_patterns",
)
_TWINS, _CASES, _NORMAL_FORMS = "transforms.twins.text", "transforms.twins.letter_case", "transforms.twins.normal_form"
_TEXT = Arg("text", dense=TEXT)
_TEXTS = Arg("text", dense=TEXT, ragged=TEXT)
_ONE_TEXT, _ONE_BOOL, _ONE_INT64 = always(Dense(DType.STRING)), always(Dense(DType.BOOL)), always(Dense(DType.INT64))


def _lower(text: str | list[str]) -> str | list[str]:
    return unicode14.lower(text) if isinstance(text, str) else [unicode14.lower(item) for item in text]


def _normalize(text: str | list[str]) -> str | list[str]:
    return unicode14.normalize(text) if isinstance(text, str) else [unicode14.normalize(item) for item in text]


def _substring(text: str, *, start: int, length: int) -> str:
    begin = start if start >= 0 else max(len(text) + start, 0)
    return text[begin : begin + length]


def _edit_distance(text: str, other: str) -> int:
    """By the table of the distances of all beginnings, row by row."""
    above: Sequence[int] = range(len(other) + 1)
    for i, character in enumerate(text, 1):
        row = [i]
        for j, against in enumerate(other):
            row.append(min(above[j] + (character != against), above[j + 1] + 1, row[j] + 1))
        above = row
    return above[-1]


LOWER = Operator(
    name="lower",
    version=1,
    family="text",
    summary="Full Unicode 14.0 lower case, as Python's str.lower: with final sigma, and I with dot above as two code points.",
    args=(_TEXTS,),
    result=first,
    reference=_lower,
    kernel=Imported(_KERNELS, "lower"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=50,
    twin=Imported(_CASES, "lower"),
    example=Example('hr.text("query").lower()', {"query": ["Red SHOES", "ΟΔΟΣ", None]}, ["red shoes", "οδος", None]),
)

UPPER = Operator(
    name="upper",
    version=1,
    family="text",
    summary="Full Unicode 14.0 upper case, as Python's str.upper: sharp s becomes SS.",
    args=(_TEXT,),
    result=_ONE_TEXT,
    reference=unicode14.upper,
    kernel=Imported(_KERNELS, "upper"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=100,
    lifts=True,
    twin=Imported(_CASES, "upper"),
    example=Example('hr.text("country").upper()', {"country": ["de", "Fr"]}, ["DE", "FR"]),
)

NORMALIZE = Operator(
    name="normalize",
    version=1,
    family="text",
    summary="Unicode 14.0 normalisation form NFKC: compatibility characters such as ligatures and full-width letters become plain.",
    args=(_TEXTS,),
    result=first,
    reference=_normalize,
    kernel=Imported(_KERNELS, "normalize"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=30,
    twin=Imported(_NORMAL_FORMS, "normalize"),
    example=Example('hr.text("query").normalize()', {"query": ["ﬁne ＡＢＣ", "e\u0301"]}, ["fine ABC", "é"]),
)

STRIP = Operator(
    name="strip",
    version=1,
    family="text",
    summary="The text without white space (or the given characters) at its two ends.",
    args=(_TEXT,),
    result=_ONE_TEXT,
    reference=lambda text, *, characters: text.strip(characters or None),
    kernel=Imported(_PARTS, "strip"),
    params=(
        Param("characters", str, "", unicode_text, "any of these are removed; none: the 29 code points of str.isspace"),
    ),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=5,
    lifts=True,
    twin=Imported(_TWINS, "strip"),
    example=Example('hr.text("title").strip()', {"title": ["  red shoes\n", "\u3000靴\u3000"]}, ["red shoes", "靴"]),
)

SUBSTRING = Operator(
    name="substring",
    version=1,
    family="text",
    summary="length code points from start on; a negative start counts from the end, at most back to the beginning.",
    args=(_TEXT,),
    result=_ONE_TEXT,
    reference=_substring,
    kernel=Imported(_PARTS, "substring"),
    params=(
        Param("start", int, check=lambda value: "" if INT64_MIN < int(value) <= INT64_MAX else "an int64",  # type: ignore[arg-type]
              doc="how many code points to leave out; -3 begins three before the end"),
        Param("length", int, INT64_MAX, at_least(0), "at most so many code points; all there are if not given"),
    ),
    cost_ns=10,
    lifts=True,
    twin=Imported(_TWINS, "substring"),
    example=Example('hr.text("date").substring(5, 2)', {"date": ["2026-11-21", "2026"]}, ["11", ""]),
)  # fmt: skip

REPLACE = Operator(
    name="replace",
    version=1,
    family="text",
    summary="Every occurrence of old replaced by new, from the left and not overlapping.",
    args=(_TEXT,),
    result=_ONE_TEXT,
    reference=lambda text, *, old, new: text.replace(old, new),
    kernel=Imported(_PATTERNS, "replace"),
    params=(
        Param(
            "old",
            str,
            check=lambda value: not_empty(value) or unicode_text(value),
            doc="what to look for, byte for byte",
        ),
        Param("new", str, check=unicode_text, doc="the replacement"),
    ),
    cost_ns=100,
    lifts=True,
    twin=Imported(_TWINS, "replace"),
    example=Example('hr.text("query").replace("-", " ")', {"query": ["t-shirt", "wi--fi"]}, ["t shirt", "wi  fi"]),
)

LENGTH = Operator(
    name="length",
    version=1,
    family="text",
    summary="The number of code points.",
    args=(_TEXT,),
    result=_ONE_INT64,
    reference=len,
    kernel=Imported(_KERNELS, "length"),
    cost_ns=40,
    lifts=True,
    twin=Imported(_TWINS, "length"),
    example=Example('hr.text("query").length()', {"query": ["shoes", "靴", "", None]}, [5, 1, 0, None]),
)

STARTS_WITH = Operator(
    name="starts_with",
    version=1,
    family="text",
    summary="Whether the text begins with prefix; every text begins with the empty one.",
    args=(_TEXT,),
    result=_ONE_BOOL,
    reference=lambda text, *, prefix: text.startswith(prefix),
    kernel=Imported(_PATTERNS, "starts_with"),
    params=(Param("prefix", str, check=unicode_text, doc="compared byte for byte"),),
    cost_ns=10,
    lifts=True,
    twin=Imported(_TWINS, "starts_with"),
    example=Example('hr.text("url").starts_with("https:")', {"url": ["https://a.b", "http://a.b"]}, [True, False]),
)

ENDS_WITH = Operator(
    name="ends_with",
    version=1,
    family="text",
    summary="Whether the text ends with suffix; every text ends with the empty one.",
    args=(_TEXT,),
    result=_ONE_BOOL,
    reference=lambda text, *, suffix: text.endswith(suffix),
    kernel=Imported(_PATTERNS, "ends_with"),
    params=(Param("suffix", str, check=unicode_text, doc="compared byte for byte"),),
    cost_ns=15,
    lifts=True,
    twin=Imported(_TWINS, "ends_with"),
    example=Example('hr.text("query").ends_with("?")', {"query": ["how to knit?", "yarn"]}, [True, False]),
)

CONTAINS = Operator(
    name="contains",
    version=1,
    family="text",
    summary="Whether another text, the same for all events, occurs in the text; the empty one occurs in every text.",
    args=(_TEXT,),
    result=_ONE_BOOL,
    reference=lambda value, *, text: text in value,
    kernel=Imported(_PATTERNS, "contains"),
    params=(Param("text", str, check=unicode_text, doc="what to look for, byte for byte"),),
    cost_ns=60,
    lifts=True,
    twin=Imported(_TWINS, "contains"),
    example=Example('hr.text("query").contains("near me")', {"query": ["pizza near me", "pizza"]}, [True, False]),
)

EDIT_DISTANCE = Operator(
    name="edit_distance",
    version=1,
    family="text",
    summary="The Levenshtein distance: the fewest code points inserted, deleted or replaced to turn one text into the other.",
    args=(_TEXT, Arg("other", dense=TEXT)),
    result=_ONE_INT64,
    reference=_edit_distance,
    kernel=Imported("transforms.kernels.text_distance", "edit_distance"),
    laws=frozenset({Law.COMMUTATIVE}),
    cost_ns=500,
    lifts=True,
    twin=Imported(_TWINS, "edit_distance"),
    example=Example(
        'hr.text("query").edit_distance(hr.text("title"))',
        {"query": ["kitten", "shoe", None], "title": ["sitting", "shoes", "x"]},
        [3, 1, None],
    ),
)

OPERATORS = (
    LOWER,
    UPPER,
    NORMALIZE,
    STRIP,
    SUBSTRING,
    REPLACE,
    LENGTH,
    STARTS_WITH,
    ENDS_WITH,
    CONTAINS,
    EDIT_DISTANCE,
)
