"""The text form of a stored type states the type."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.tables.stored_kinds import KINDS
from warehouse.tables.stored_types import parse_stored_type


@given(KINDS)
def test_what_arrow_spells_is_the_type(kind: pa.DataType) -> None:
    found = parse_stored_type(str(kind))
    assert found is not None
    assert str(found) == str(kind)
    assert found == kind or "dictionary" in str(
        kind
    )  # indices of dictionaries are spelled, but their order is not compared


@pytest.mark.parametrize(
    "spelled",
    ["", "nonsense", "int64 ", "list<int64>", "struct<a: int64", "struct<a: int64>>", "map<string>", "extension<arrow.uuid>",
     "list<item: int64>[3]", "dictionary<values=string>", "timestamp[us", "decimal128(99, 2)",
     "list<item: " * 70 + "int64" + ">" * 70],
)  # fmt: skip
def test_another_text_is_no_type(spelled: str) -> None:
    assert parse_stored_type(spelled) is None


@given(st.text(alphabet="listruc<>:, int64aé[]()0=", max_size=40))
def test_any_text_is_a_type_or_none(spelled: str) -> None:
    found = parse_stored_type(spelled)
    assert found is None or str(found) == spelled
