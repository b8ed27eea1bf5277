"""Arrow types as files store them, drawn by Hypothesis."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

_UNITS = ("s", "ms", "us", "ns")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMES = [pa.timestamp(unit, tz=tz) for unit in _UNITS for tz in (None, "UTC", "Europe/Berlin")]
LEAVES = [
    *INTEGERS, *FLOATS, *TIMES, pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.binary(16), pa.date32(),
    pa.date64(), pa.time32("s"), pa.time64("ns"), pa.duration("ms"), pa.decimal128(10, 2), pa.decimal128(38, 0),
    pa.decimal256(50, 4), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64()),
]  # fmt: skip
NAMES = st.sampled_from(["a", "b", "item", "element", "id", "a b", "é"])


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    field = st.builds(
        lambda name, kind, null: pa.field(name, kind, null or pa.types.is_null(kind)), NAMES, inner, st.booleans()
    )
    return st.one_of(
        st.builds(pa.list_, field),
        st.builds(pa.large_list, field),
        st.builds(lambda item, size: pa.list_(item, size), inner, st.integers(1, 4)),
        st.builds(pa.struct, st.lists(field, min_size=1, max_size=3, unique_by=lambda one: one.name)),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int64()]), inner),
    )


KINDS: st.SearchStrategy[pa.DataType] = st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=5)
