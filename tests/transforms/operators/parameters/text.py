"""Parameters of the operators of transforms/operators/text.py, tokens.py and patterns.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_SIZES = st.sampled_from([1, 2, 3, 7, 10**18])
_PARTS = st.sampled_from(
    ["", "a", "ab", " ", "é", "你", "\x00", "a\x00", "aa", "Σ", "\u3000", "x" * 33, "12345678", ".", "\\1"]
)
_SOME = _PARTS.filter(bool)

#: Patterns that mean the same in Python's re and in RE2.
COMMON_PATTERNS = [
    "a", "[a-z]+", r"\d+", r"(\w+) (\w+)", r"\bA", "^.", r"(a)|(b)", "x*", "", r"[^\d ]{2,3}?", r"(?:ab)+", r"(a|b)+,",
    r".+?b", r"\W", r"你|好", r"(.)(.)(.)", r"[é世]", r"\.|\,", r"a{2}", r"|a", r"(a)?(b)?", "\x00", "\u0301", r"^(\w)\w*", "a||b",
]  # fmt: skip
#: Patterns that only RE2 reads so: Unicode classes and case, flags, quotation, names, the end of the text, ASCII space.
RE2_PATTERNS = [
    r"\p{Lu}+[^\pL\d]", r"(?i)σ", r"(?s)a.b", r"\Qa,\E(b)", r"a\Q.b", r"(?P<n>[[:alpha:]]+)", r"(?:(?:a|b)*)+$", r"\s+", r"(?m)^.$",
    r"\x{4f60}|\z", r"(?U)a+", r"[]a]+", r"[^]\]a]", r"\pN", "(?i)k|ſ", r"(?i:A)b", r"(?<n>a)b", "(a*)*", r"\v",
]  # fmt: skip
_PATTERNS = st.sampled_from(COMMON_PATTERNS + RE2_PATTERNS)
_GROUPLESS = _PATTERNS.map(lambda pattern: {"pattern": pattern})
_GROUPED = st.sampled_from(
    [
        (r"(\w+) (\w+)", 2),
        ("(a)|(b)", 2),
        ("(.)(.)(.)", 3),
        ("(?P<n>[[:alpha:]]+)", 1),
        (r"[(](a)|\((b)|\Q(\E(.)", 3),
        ("((a)(b))", 1),
        ("(?:(a)|b)*", 1),
        (r"[]()](.)", 1),
        (r"[[:^alpha:](](.)", 1),
    ]
).map(lambda pair: {"pattern": pair[0], "group": pair[1]})

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "split": st.fixed_dictionaries({"sep": st.sampled_from([" ", ",", "aa", "é", "你", ", ", "\x00"])}),
    "ngrams": st.fixed_dictionaries({"n": _SIZES, "joiner": st.sampled_from([" ", "", "—", "ab"])}),
    "char_ngrams": st.fixed_dictionaries({"n": _SIZES}),
    "strip": st.fixed_dictionaries(
        {"characters": st.sampled_from(["", "a", " ax", "]^-\\", "zé你", "\x00", "0123456789🕴"])}
    ),
    "substring": st.fixed_dictionaries(
        {
            "start": st.sampled_from([0, 1, 2, 7, -1, -2, -9, 10**18, -(10**18), 2**63 - 1, -(2**63) + 1]),
            "length": st.sampled_from([0, 1, 2, 5, 2**31, 2**63 - 1]),
        }
    ),
    "replace": st.fixed_dictionaries({"old": _SOME, "new": _PARTS}),
    "starts_with": st.fixed_dictionaries({"prefix": _PARTS}),
    "ends_with": st.fixed_dictionaries({"suffix": _PARTS}),
    "contains": st.fixed_dictionaries({"text": _PARTS}),
    "remove_stop_words": st.sampled_from(
        [{}, {"words": ()}, {"words": ("a", "ab", "ab", "")}, {"words": ("\x00", "你好世界", "aaa", "e\u0301")}]
    ),
    "regex_extract": _GROUPLESS | _GROUPED,
    "regex_replace": st.tuples(_PATTERNS, st.sampled_from(["", "-", r"[\0]", r"\\", "你"])).map(
        lambda pair: {"pattern": pair[0], "replacement": pair[1]}
    )
    | st.just({"pattern": r"(\w)(\w)?", "replacement": r"\2\1"}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "split": [{"sep": " "}, {"sep": "ab"}],
    "ngrams": [{"n": 1, "joiner": " "}, {"n": 2, "joiner": " "}, {"n": 3, "joiner": "·"}],
    "char_ngrams": [{"n": 1}, {"n": 3}],
    "strip": [{}, {"characters": "abRd0x"}],
    "substring": [{"start": 1, "length": 4}, {"start": -3}],
    "replace": [{"old": "ab", "new": "é"}, {"old": " ", "new": ""}],
    "starts_with": [{"prefix": "ab"}],
    "ends_with": [{"suffix": "x"}],
    "contains": [{"text": " "}],
    "remove_stop_words": [{}, {"words": ["", "ab ab", "搜索广告"]}],
    "regex_extract": [
        {"pattern": r"\pL+"},
        {"pattern": r"([a-z])(\d)?\b", "group": 1},
        {"pattern": r"(\d)|.$", "group": 1},
    ],
    "regex_replace": [
        {"pattern": "x*", "replacement": "-"},
        {"pattern": r"(\w)(\w)", "replacement": r"\2\1"},
        {"pattern": "(?i)σ|ﬁ", "replacement": r"<\0>"},
    ],
}
