from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.scenes import model, work
from warehouse import Warehouse, get_component, search_components, submit_model
from warehouse.errors import UnknownComponent, UnknownModel


@pytest.fixture(autouse=True)
def _two_models(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model("one", inputs=2))
    submit_model(warehouse, model("two", "ads", inputs=5))


def names(rows: tuple[object, ...]) -> list[str]:
    return sorted(row.expression for row in rows)  # type: ignore[attr-defined]


def test_everything(warehouse: Warehouse) -> None:
    assert len(search_components(warehouse)) == 6
    assert "hash_buckets(unigrams(query)" in " ".join(names(search_components(warehouse)))


def test_by_column_operator_and_model(warehouse: Warehouse) -> None:
    assert len(search_components(warehouse, column="query")) == 2
    assert len(search_components(warehouse, column="title")) == 3
    assert search_components(warehouse, column="nothing") == ()
    assert len(search_components(warehouse, operator="intersect")) == 1
    assert len(search_components(warehouse, operator="log1p")) == 1
    assert len(search_components(warehouse, model="one")) == 3
    assert len(search_components(warehouse, model="two", column="title", operator="length")) == 1
    with pytest.raises(UnknownModel) as caught:
        search_components(warehouse, model="on")
    assert "one" in caught.value.allowed


def test_a_row_says_what_it_costs_and_who_reads_it(warehouse: Warehouse) -> None:
    (row,) = search_components(warehouse, operator="intersect")
    assert (row.columns, row.models, dict(row.memos)) == (("query", "title"), ("one", "two"), {"PENDING": 3})
    assert set(row.operators) == {"hash_buckets", "intersect", "unigrams"}
    assert (row.rows, row.bytes, row.secs) == (0, 0, 0.0)
    work(warehouse)
    (row,) = search_components(warehouse, operator="intersect")
    assert dict(row.memos) == {"READY": 3}
    assert (row.rows, row.secs) == (60, 1.5)
    assert row.bytes > 0


def test_by_fingerprint(warehouse: Warehouse) -> None:
    (row,) = search_components(warehouse, operator="log1p")
    assert get_component(warehouse, row.fingerprint[:12]) == row
    with pytest.raises(UnknownComponent, match="no such component"):
        get_component(warehouse, "zz")
    with pytest.raises(UnknownComponent, match="several components"):
        get_component(warehouse, "")
    assert search_components(warehouse, fingerprint_prefix="%") == ()
