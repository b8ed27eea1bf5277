"""Joins by keys, compared with a dictionary."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import DataError
from warehouse.changes.keys import KeyIndex

KEYS = st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.booleans())


def columns(rows: list[tuple[int | None, str | None, bool | None]]) -> dict[str, pa.Array]:
    types = {"number": pa.int32(), "text": pa.string(), "flag": pa.bool_()}
    return {name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(types.items())}


@given(
    st.lists(KEYS, unique=True, max_size=20),
    st.lists(st.tuples(st.none() | st.integers(-4, 4), st.none() | st.sampled_from("abz"), st.none() | st.booleans())),
)
def test_found_is_what_a_dictionary_finds(keys: list[tuple[int, str, bool]], wanted: list[tuple[object, ...]]) -> None:
    index = KeyIndex(columns(list(keys)), "file")
    place = {key: i for i, key in enumerate(keys)}
    assert index.find(columns(wanted)).to_pylist() == [place.get(one) for one in wanted]  # type: ignore[arg-type, call-overload]
    assert index.unmatched == len(set(keys) - set(wanted))


def test_duplicates_are_counted_and_one_is_named() -> None:
    with pytest.raises(DataError, match="must be unique") as caught:
        KeyIndex({"id": pa.array([7, 3, 7, 7]), "day": pa.array(["x", "y", "x", "x"])}, "file")
    assert caught.value.value == "duplicate rows: 2; one of them: 7, 'x'"
