"""Stored types that models read keep their meaning without loss."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.columns.columns import cast_to_layout, is_castable
from transforms.columns.stored_types import fits
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged

DAY = datetime.date(2017, 7, 2)
MIDNIGHT = datetime.datetime(2017, 7, 2, tzinfo=datetime.UTC)
INT, DOUBLE, TEXT, TIME = Dense(DType.INT64), Dense(DType.FLOAT64), Dense(DType.STRING), Dense(DType.TIMESTAMP)

READ = [
    (pa.array([1, None, -128], pa.int8()), INT, [1, None, -128]),
    (pa.array([1, None, 2**32 - 1], pa.uint32()), INT, [1, None, 2**32 - 1]),
    (pa.array([0, None, 2**63 - 1], pa.uint64()), INT, [0, None, 2**63 - 1]),
    (pa.array([np.float16(1.5), None], pa.float16()), Dense(DType.FLOAT32), [1.5, None]),
    (pa.array([DAY, None], pa.date32()), TIME, [MIDNIGHT, None]),
    (pa.array([DAY, None], pa.date64()), TIME, [MIDNIGHT, None]),
    (pa.array([Decimal("-1.25"), None], pa.decimal128(10, 2)), DOUBLE, [-1.25, None]),
    (pa.array([Decimal("1.25"), None], pa.decimal32(5, 2)), DOUBLE, [1.25, None]),
    (pa.array([Decimal("1.25")], pa.decimal64(15, 2)), DOUBLE, [1.25]),
    (pa.array([Decimal("-0.30")], pa.decimal256(15, 2)), DOUBLE, [-0.3]),
    (pa.array([Decimal(-(10**18) + 1), None], pa.decimal128(18, 0)), INT, [-(10**18) + 1, None]),
    (pa.array(["né".encode(), None], pa.binary()), TEXT, ["né", None]),
    (pa.array(["né".encode()], pa.large_binary()), TEXT, ["né"]),
    (pa.array(["né"], pa.large_string()), TEXT, ["né"]),
    (pa.array(["né"], pa.string_view()), TEXT, ["né"]),
    (pa.array([DAY, DAY, None]).dictionary_encode(), TIME, [MIDNIGHT, MIDNIGHT, None]),
    (pa.array([7, 7], pa.uint64()).dictionary_encode(), INT, [7, 7]),
    (pa.array([[DAY, None], None], pa.list_(pa.date32())), Ragged(DType.TIMESTAMP), [[MIDNIGHT], []]),
    (pa.array([[7], []], pa.large_list(pa.uint64())), Ragged(DType.INT64), [[7], []]),
]


@pytest.mark.parametrize(("stored", "declared", "expected"), READ, ids=lambda value: str(getattr(value, "type", value)))
def test_a_stored_type_is_read_whole(stored: pa.Array, declared: ColumnType, expected: list[object]) -> None:
    assert is_castable(stored.type, declared)
    assert cast_to_layout(stored, declared).to_pylist() == expected
    padded = pa.concat_arrays([stored.slice(0, 1), stored])
    assert cast_to_layout(padded.slice(1), declared).to_pylist() == expected


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.decimal128(16, 2), DOUBLE),
        (pa.decimal128(10, 2), Dense(DType.FLOAT32)),
        (pa.decimal128(19, 0), INT),
        (pa.decimal128(10, 2), INT),
        (pa.binary(16), TEXT),
        (pa.time32("s"), INT),
        (pa.time64("us"), TIME),
        (pa.duration("s"), INT),
        (pa.struct([("a", pa.int64())]), INT),
        (pa.null(), TEXT),
    ],
    ids=str,
)
def test_what_would_lose_something_does_not_conform(stored: pa.DataType, declared: ColumnType) -> None:
    assert not is_castable(stored, declared)


@pytest.mark.parametrize(
    ("stored", "declared", "value"),
    [
        (pa.array([1, 2**63, 2**64 - 1], pa.uint64()), INT, 2**63),
        (pa.array([b"ok", b"\xff\xfe"], pa.binary()), TEXT, b"\xff\xfe"),
        (pa.array([0, 2**62], pa.timestamp("s")), TIME, str(2**62)),
        (pa.array([0, 2**30], pa.int32()).cast(pa.date32()), TIME, str(2**30)),
    ],
    ids=["uint64", "binary", "timestamp", "date"],
)
def test_a_value_that_does_not_fit_is_refused_by_name(stored: pa.Array, declared: ColumnType, value: object) -> None:
    with pytest.raises(DataError) as caught:
        cast_to_layout(stored, declared)
    assert caught.value.value == value
    assert "store the column" in caught.value.next_step


def test_values_that_no_declared_type_holds_are_found() -> None:
    assert fits(pa.array([2**63 - 1, None], pa.uint64()))
    assert not fits(pa.chunked_array([pa.array([1], pa.uint64()), pa.array([2**63], pa.uint64())]))
    assert not fits(pa.array([2**63], pa.uint64()).dictionary_encode())
    assert fits(pa.array([], pa.uint64()))
    assert not fits(pa.array([b"\xe9"], pa.large_binary()))
    assert fits(pa.array([b"\xc3\xa9"], pa.binary()))
    assert fits(pa.array([b"\xe9"], pa.binary(1)))  # no declared type reads it, whatever it holds


@given(
    st.integers(1, 15).flatmap(
        lambda digits: st.tuples(
            st.just(digits),
            st.integers(0, digits),
            st.lists(st.integers(-(10**digits) + 1, 10**digits - 1), max_size=9),
        )
    ),
    st.sampled_from([pa.decimal64, pa.decimal128, pa.decimal256]),
)
def test_a_decimal_is_the_nearest_float64_and_round_trips(found: tuple[int, int, list[int]], kind: type) -> None:
    digits, scale, unscaled = found
    values = [Decimal(value).scaleb(-scale) for value in unscaled]
    read = cast_to_layout(pa.array(values, kind(digits, scale)), DOUBLE).to_pylist()
    assert read == [float(value) for value in values]
    assert [Decimal(f"{value:.{scale}f}") for value in read] == values
