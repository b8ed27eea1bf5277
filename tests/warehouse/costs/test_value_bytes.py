from __future__ import annotations

import pyarrow as pa
import pytest

from transforms.columns.arrow_types import arrow_type
from transforms.types import Dense, DType, Ragged, Vector
from warehouse.costs.value_bytes import estimated_bytes, raw_bytes_per_row, stored_bytes
from warehouse.tables.table import ColumnSchema

PLAIN = [pa.bool_(), *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
         pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"),
         *(pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "Europe/Paris", "+02:00")), pa.duration("us")]  # fmt: skip


@pytest.mark.parametrize("plain", PLAIN, ids=str)
def test_a_type_of_fixed_width_counts_its_bits(plain):
    assert stored_bytes(str(plain)) == plain.bit_width / 8
    for wrap in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        assert stored_bytes(str(wrap(pa.field("item", plain, nullable=False)))) == 4 + 8 * plain.bit_width / 8
    assert stored_bytes(str(pa.list_(plain, 5))) == 5 * plain.bit_width / 8
    assert stored_bytes(str(pa.list_(pa.list_(plain)))) == 4 + 8 * (4 + 8 * plain.bit_width / 8)


@pytest.mark.parametrize("other", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()),
                                   pa.decimal128(9, 2), pa.map_(pa.int8(), pa.int8()), pa.null()], ids=str)  # fmt: skip
def test_other_types_count_as_text(other):
    assert stored_bytes(str(other)) == estimated_bytes(Dense(DType.STRING))
    assert stored_bytes("not a type at all<") == estimated_bytes(Dense(DType.STRING))


@pytest.mark.parametrize("dtype", DType)
def test_a_raw_column_counts_as_the_memo_of_its_type(dtype):
    for kind in (Dense(dtype), Ragged(dtype), Vector(dtype, 3)):
        assert stored_bytes(str(arrow_type(kind))) == estimated_bytes(kind)


def test_the_bytes_of_files_are_divided_by_types():
    columns = [ColumnSchema("a", "int64"), ColumnSchema("b", "int32"), ColumnSchema("c", "string")]
    assert raw_bytes_per_row(columns, 10, 240) == {"a": 8.0, "b": 4.0, "c": 12.0}
    assert raw_bytes_per_row(columns, 0, 240) == raw_bytes_per_row([], 10, 240) == {}
