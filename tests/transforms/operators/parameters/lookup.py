"""Parameters of the operators of transforms/operators/lookup.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_KEYS = ("", "ab", "7", "-7", "9223372036854775807", "0", "\x00", "你好世界", "x" * 33, "a")
_DICTIONARIES: list[dict[str, Any]] = [
    {"keys": _KEYS, "values": tuple(range(10)), "dtype": "int64"},
    {"keys": _KEYS, "values": (0.1, -0.0, float("nan"), float("inf"), 1e308, 2, 3, 4, 5, 6), "dtype": "float64"},
    {"keys": _KEYS[:4], "values": ("né", "", "b" * 40, "né"), "dtype": "string"},
    {"keys": _KEYS, "values": tuple(range(10)), "dtype": "int64", "default": (-(2.0**53),)},
    {"keys": _KEYS[:2], "values": (1.5, 2.5), "dtype": "float64", "default": (-0.0,)},
    {"keys": _KEYS[:3], "values": ("one", "two", "three"), "dtype": "string", "default": ("",)},
]

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "lookup": st.sampled_from(_DICTIONARIES),
    "vocabulary_lookup": st.fixed_dictionaries({"oov_buckets": st.sampled_from([1, 2, 10, 1000])}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "lookup": [
        {"keys": ("Red Shoes", "", "42", "-7"), "values": (1, 2, 3, 4), "dtype": "int64"},
        {"keys": ("ab ab", "42"), "values": ("x", ""), "dtype": "string", "default": ("?",)},
        {"keys": ("ab ab", "42"), "values": (0.1, -0.0), "dtype": "float64", "default": (0.5,)},
    ],
    "vocabulary_lookup": [{"oov_buckets": 1}, {"oov_buckets": 1000}],
}
