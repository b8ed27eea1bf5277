"""The one Arrow layout of each column type."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

#: The Arrow type of one element. Timestamps are microseconds since the epoch in UTC.
ARROW_ELEMENT: dict[DType, pa.DataType] = {
    DType.BOOL: pa.bool_(),
    DType.INT64: pa.int64(),
    DType.FLOAT32: pa.float32(),
    DType.FLOAT64: pa.float64(),
    DType.STRING: pa.string(),
    DType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


@lru_cache(maxsize=1024)
def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The Arrow type that stores ``column_type``: in memo files, in read solutions and between packages."""
    element = ARROW_ELEMENT[column_type.dtype]
    match column_type:
        case Dense():
            return element
        case Ragged():
            return pa.list_(pa.field("item", element, nullable=False))
        case Weighted():
            pair = pa.struct(
                [pa.field("id", element, nullable=False), pa.field("weight", pa.float32(), nullable=False)]
            )
            return pa.list_(pa.field("item", pair, nullable=False))
        case Vector():
            return pa.list_(pa.field("item", element, nullable=False), column_type.size)
