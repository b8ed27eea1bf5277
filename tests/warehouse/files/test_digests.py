"""Digests depend on values, nulls and types, not on file layout."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from transforms.errors import TypeMismatch
from warehouse.files.digests import column_digest, table_digests

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), _TEXT),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.integers(0, 2**50)),
    "date": (pa.date32(), st.dates()),
    "decimal": (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "texts": (pa.list_(pa.string()), st.lists(st.none() | _TEXT, max_size=3)),
    "nested": (
        pa.list_(pa.list_(pa.int32())),
        st.lists(st.none() | st.lists(st.integers(0, 9), max_size=2), max_size=2),
    ),
    "fixed": (pa.list_(pa.int16(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | _TEXT}),
    ),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    kind, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    return pa.array(draw(st.lists(st.none() | values, max_size=8)), kind)


@given(columns(), st.lists(st.integers(0, 8), max_size=3))
def test_chunks_do_not_matter(column: pa.Array, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(column)) for cut in cuts), len(column)]
    chunks = [column.slice(first, last - first) for first, last in itertools.pairwise(edges)]
    assert column_digest(pa.chunked_array(chunks, column.type)) == column_digest(column)


@given(columns(), columns())
def test_slices_do_not_matter(column: pa.Array, other: pa.Array) -> None:
    before = other if other.type == column.type else column
    sliced = pa.concat_arrays([before, column, before]).slice(len(before), len(column))
    assert column_digest(sliced) == column_digest(column)


@given(columns())
def test_parquet_encodings_do_not_matter(column: pa.Array) -> None:
    assume(not (pa.types.is_fixed_size_list(column.type) and column.null_count))  # Arrow does not read these back
    table = pa.table({"c": column})
    options: tuple[dict[str, Any], ...] = (
        {"compression": "zstd", "row_group_size": 2},
        {"use_dictionary": False, "compression": "none", "data_page_version": "2.0"},
        {"compression": "snappy", "write_statistics": False, "row_group_size": 1},
    )
    for option in options:
        file = io.BytesIO()
        pq.write_table(table, file, **option)
        file.seek(0)
        assert column_digest(pq.read_table(file).column("c")) == column_digest(column), option


@given(columns(), st.data())
def test_any_change_of_a_value_changes_the_digest(column: pa.Array, data: st.DataObject) -> None:
    values = column.to_pylist()
    position = data.draw(st.integers(0, max(len(values) - 1, 0)))
    kind, strategy = next((k, s) for k, s in VALUES.values() if k == column.type)
    replacement = pa.array([data.draw(st.none() | strategy)], kind).to_pylist()
    changed = pa.array([*values[:position], *replacement, *values[position + 1 :]], kind)
    same = repr(changed.to_pylist()) == repr(values)
    assert (column_digest(changed) == column_digest(column)) == same


@given(columns())
def test_rows_are_counted(column: pa.Array) -> None:
    longer = pa.concat_arrays([column, pa.nulls(1, column.type)])
    assert column_digest(longer) != column_digest(column)


def test_types_with_equal_bytes_differ() -> None:
    kinds = [
        pa.int64(), pa.uint64(), pa.int32(), pa.float64(), pa.timestamp("s"), pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"), pa.duration("us"), pa.time64("us"), pa.bool_(), pa.string(), pa.binary(),
        pa.list_(pa.int64()), pa.list_(pa.int32()), pa.list_(pa.int64(), 1), pa.null(), pa.date64(),
    ]  # fmt: skip
    assert len({column_digest(pa.array([], kind)) for kind in kinds}) == len(kinds)
    assert len({column_digest(pa.nulls(3, kind)) for kind in kinds}) == len(kinds)


def test_null_is_not_zero_nor_empty() -> None:
    for kind, plain in ((pa.int64(), 0), (pa.string(), ""), (pa.bool_(), False), (pa.list_(pa.int64()), [])):
        assert column_digest(pa.array([plain, plain], kind)) != column_digest(pa.array([plain, None], kind))


def test_what_lies_under_a_null_does_not_matter() -> None:
    valid = pa.array([True, False, True]).buffers()[1]
    numbers = pa.Array.from_buffers(pa.int64(), 3, [valid, pa.array([1, 99, 3]).buffers()[1]])
    assert column_digest(numbers) == column_digest(pa.array([1, None, 3]))
    _, offsets, data = pa.array(["a", "hidden", "c"]).buffers()
    texts = pa.Array.from_buffers(pa.string(), 3, [valid, offsets, data])
    assert column_digest(texts) == column_digest(pa.array(["a", None, "c"]))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4]), pa.array([1, 8, 8, 4]), mask=pa.array([False, True, False])
    )
    assert column_digest(lists) == column_digest(pa.array([[1], None, [4]]))


def test_spellings_of_one_type_agree() -> None:
    texts = ["a", None, "bb", "a"]
    plain = column_digest(pa.array(texts))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert column_digest(pa.array(texts).cast(kind)) == plain
    lists = pa.array([[1, 2], None, []])
    assert column_digest(lists.cast(pa.large_list(pa.int64()))) == column_digest(lists)


def test_boundaries_between_values_matter() -> None:
    assert column_digest(pa.array(["ab", "c"])) != column_digest(pa.array(["a", "bc"]))
    assert column_digest(pa.array([[1, 2], [3]])) != column_digest(pa.array([[1], [2, 3]]))
    assert column_digest(pa.array([0.0])) != column_digest(pa.array([-0.0]))


def test_golden_digests() -> None:
    """They are stored in catalogs: a change here makes every table look changed."""
    golden = {
        "ints": (pa.array([1, None, 3]), "a1bde382"),
        "texts": (pa.array(["a", None, ""]), "71475537"),
        "lists": (pa.array([[1.5], None, []]), "f0753db1"),
        "moments": (pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us", tz="UTC")), "842398d5"),
        "decimals": (pa.array([decimal.Decimal("1.20")]), "e29913ee"),
    }
    assert {name: column_digest(array)[:8] for name, (array, _) in golden.items()} == {
        name: digest for name, (_, digest) in golden.items()
    }


def test_table_digests_agree_for_any_number_of_threads() -> None:
    table = pa.table({f"c{i}": list(range(i, i + 50)) for i in range(9)})
    assert table_digests(table, 1) == table_digests(table, 4) == table_digests(table)


def test_types_without_a_rule_are_refused() -> None:
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    with pytest.raises(TypeMismatch) as caught:
        column_digest(union)
    assert "union" in str(caught.value.value)
