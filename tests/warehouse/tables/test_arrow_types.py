from __future__ import annotations

import pyarrow as pa
import pytest

from transforms.columns.arrow_types import ARROW_ELEMENT, arrow_type
from transforms.types import Dense, Ragged, Vector, Weighted
from warehouse.tables.arrow_types import parse_arrow_type

KINDS = [
    *ARROW_ELEMENT.values(), pa.int8(), pa.uint32(), pa.float16(), pa.large_string(), pa.date32(), pa.timestamp("ms"),
    pa.timestamp("ns", tz="Europe/Paris"), pa.list_(pa.string()), pa.large_list(pa.int32()), pa.list_(pa.list_(pa.int64())),
    pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string())),
    *(arrow_type(Ragged(dtype)) for dtype in ARROW_ELEMENT), *(arrow_type(Dense(dtype)) for dtype in ARROW_ELEMENT),
    *(arrow_type(Vector(dtype, 4)) for dtype in ARROW_ELEMENT),
    *(arrow_type(Weighted(dtype)) for dtype in ARROW_ELEMENT),
    pa.large_list(pa.struct([("weight", pa.float16()), ("id", pa.dictionary(pa.int32(), pa.string()))])),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_arrow_spells_is_understood(kind: pa.DataType) -> None:
    parsed = parse_arrow_type(str(kind))
    assert parsed is not None
    assert str(parsed).replace(" not null", "").replace("element", "item") == str(kind).replace(
        " not null", ""
    ).replace("element", "item")


@pytest.mark.parametrize(
    "spelled",
    [
        "struct<a: int64>",
        "map<string, int64>",
        "list<item: struct<a: int64>>",
        "nonsense",
        "struct<id: int64, id: float>",
        "struct<id: struct<a: int64>, weight: float>",
        "struct<id: int64>",
    ],
)
def test_types_no_model_reads_are_none(spelled: str) -> None:
    assert parse_arrow_type(spelled) is None
