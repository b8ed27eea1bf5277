from __future__ import annotations

import math
import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from transforms.errors import InputError
from transforms.graphs.encoding import digest, encode

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def spelled(value):
    """A value's meaning as nested tuples that compare by type and bits."""
    match value:
        case float():
            return ("float", "nan" if math.isnan(value) else struct.pack(">d", value))
        case list() | tuple():
            return ("list", *(spelled(item) for item in value))
        case dict():
            return ("map", frozenset((key, spelled(item)) for key, item in value.items()))
        case _:
            return (type(value).__name__, value)


@given(VALUES, VALUES)
def test_equal_encodings_mean_equal_values(a, b):
    assert (encode(a) == encode(b)) == (spelled(a) == spelled(b))


def test_look_alikes_differ():
    alike = [
        1,
        1.0,
        True,
        "1",
        b"1",
        [1],
        None,
        "",
        b"",
        [],
        {},
        0,
        0.0,
        -0.0,
        False,
        "True",
        [[1]],
        ["1", ""],
        ["", "1"],
    ]
    assert len({encode(value) for value in alike}) == len(alike)


def test_every_nan_is_one_nan():
    other = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    assert encode(math.nan) == encode(other)


def test_text_is_not_normalised():
    assert encode("\u00e9") != encode("e\u0301")


def test_lone_surrogates_and_odd_types_are_refused():
    with pytest.raises(InputError, match="lone surrogate"):
        encode("\ud800")
    with pytest.raises(InputError, match="canonical encoding"):
        encode({1, 2})


@pytest.mark.parametrize(
    ("value", "golden"),
    [
        (None, "300000000000000000"),
        (True, "62000000000000000101"),
        (-129, "690000000000000002ff7f"),
        (1.5, "6600000000000000083ff8000000000000"),
        ("é", "730000000000000002c3a9"),
        ({"b": 1, "a": []}, "6d000000000000002773000000000000000161"
         "6c0000000000000000" "73000000000000000162" "69000000000000000101"),
    ],
)  # fmt: skip
def test_golden_vectors(value, golden):
    assert encode(value).hex() == golden


def test_golden_digest():
    assert digest(["column", "query", {"kind": "dense", "dtype": "string"}]) == (
        "a90cbbc3211ae27407080f8571d654851f834faf8b9b9d889046330b6edbb0fa"
    )
