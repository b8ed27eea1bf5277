"""Weighted lists and vectors from a table to a trainer's read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from tests.transforms.adversarial import bits, python_values
from tests.warehouse.scenes import work, write_partition
from transforms.columns.arrow_types import arrow_type
from transforms.expressions.model import Model
from transforms.graphs.graph import Node, component_from_document
from transforms.operators import REGISTRY
from transforms.types import Dense, DType, Vector, Weighted
from warehouse import LABEL, Warehouse, read_fragment, read_solution, register_table, submit_model

PAIRS = pa.list_(pa.struct([("id", pa.string()), ("weight", pa.float32())]))
NUMBERS = pa.list_(pa.float32(), 3)
TOPICS = [
    [{"id": "cars", "weight": 2.0}, {"id": "boats", "weight": -1.0}, {"id": "你好", "weight": 2.0}],
    None,
    [],
    [{"id": "cars", "weight": 0.5}, None, {"id": None, "weight": 1.0}, {"id": "hats", "weight": None}],
]
SHOPS = [[3, 1, 3], [7], None, []]


def events(seed: int = 0, rows: int = 12) -> pa.Table:
    """Topics with weights, three numbers and visited shops an event."""
    turn = [(i + seed) % 4 for i in range(rows)]
    return pa.table(
        {
            "topics": pa.array([TOPICS[i] for i in turn], PAIRS),
            "numbers": pa.array([[float(seed), i / 3, -0.0] for i in range(rows)], NUMBERS),
            "shops": pa.array([SHOPS[i] for i in turn], pa.list_(pa.int64())),
            "clicked": pa.array([i % 3 == 0 for i in range(rows)]),
        }
    )


def model() -> Model:
    topics, shops = hr.weighted("topics", "string"), hr.ragged("shops", "int64")
    made = Model("ctr", client="search", label="clicked", table="log")
    made.input("topics", topics.hash_buckets(100))
    made.input("best", topics.top_k(1).hash_buckets(100).normalize_weights("l2"))
    made.input("visits", shops.hash_buckets(50).term_frequency(relative=True))
    made.input("slots", shops.hash_buckets(50).pad(2, 0))
    made.input("mean", topics.pool("mean"))
    made.input("total", hr.ragged("numbers", "float32").pool())
    made.input("numbers", hr.vector("numbers", "float32", 3))
    made.input("raw", topics)
    return made


@pytest.fixture
def table(tmp_path: Path, warehouse: Warehouse) -> Path:
    for hour in range(2):
        write_partition(tmp_path / "log", hour, events(seed=hour), row_group_size=5)
    register_table(warehouse, "log", str(tmp_path / "log"))
    submit_model(warehouse, model())
    return tmp_path / "log"


def read_all(warehouse: Warehouse) -> list[pa.Table]:
    solution = read_solution(warehouse, "ctr")
    fragments = [fragment for part in solution.partitions for fragment in part.fragments]
    return [read_fragment(warehouse.storage, solution, fragment) for fragment in fragments]


def expected(component: Node, row: dict[str, Any]) -> Any:
    """The reference, from the row as a person reads it: no null among the items."""

    def value(node: Any) -> Any:
        if node.args:
            operator = REGISTRY[node.op]
            return operator.evaluate(
                [arg.type for arg in node.args], [value(arg) for arg in node.args], dict(node.params)
            )
        if isinstance(node.type, Weighted):
            pairs = [(pair["id"], pair["weight"]) for pair in row[node.name] or [] if pair]
            return [pair for pair in pairs if None not in pair]
        return row[node.name] or []

    return value(component)


@pytest.mark.medium
def test_what_is_read_is_what_the_reference_says_before_and_after_it_is_memoized(
    warehouse: Warehouse, table: Path
) -> None:
    computed = read_all(warehouse)
    assert read_solution(warehouse, "ctr").count("load") == 0
    assert work(warehouse) == 2 * 6
    loaded = read_all(warehouse)
    assert read_solution(warehouse, "ctr").count("load") == 2 * 6
    assert [one.equals(other) for one, other in zip(computed, loaded, strict=True)] == [True, True]
    rows = [row for hour in range(2) for row in events(seed=hour).to_pylist()]
    whole = pa.concat_tables(loaded)
    assert whole.column(LABEL).to_pylist() == [row["clicked"] for row in rows]
    for name, item in model().inputs.items():
        kind = item.component.type
        assert whole.schema.field(name).type == arrow_type(kind)
        got = python_values(whole.column(name).combine_chunks(), kind)
        assert bits(got, kind) == [bits(expected(item.component, row), kind) for row in rows], name


def test_types_and_buckets_survive_the_catalog(warehouse: Warehouse, table: Path) -> None:
    types = {item.name: item.type for item in read_solution(warehouse, "ctr").inputs}
    assert types == {name: item.component.type for name, item in model().inputs.items()}
    assert types["visits"] == Weighted(DType.INT64, 50)
    assert types["slots"] == Vector(DType.INT64, 2, 50)
    assert types["mean"] == Dense(DType.FLOAT32)
    for item in read_solution(warehouse, "ctr").inputs:
        assert component_from_document(item.component).type == item.type


@pytest.mark.medium
def test_the_same_values_in_another_layout_are_the_same_fragment(warehouse: Warehouse, table: Path) -> None:
    work(warehouse)
    large = pa.large_list(pa.struct([("id", pa.large_string()), ("weight", pa.float32())]))
    path = table / "date=2026-01-01" / "hour=00" / "part.parquet"
    again = events(seed=0)
    again = again.set_column(0, "topics", again.column("topics").cast(large))
    pq.write_table(again, path, row_group_size=7, compression="none")
    report = register_table(warehouse, "log", str(table))
    assert report is not None
    submit_model(warehouse, model())
    assert work(warehouse) == 0


@pytest.mark.medium
def test_a_changed_weight_is_computed_again_and_only_where_it_is_read(warehouse: Warehouse, table: Path) -> None:
    work(warehouse)
    changed = events(seed=1)
    topics = changed.column("topics").to_pylist()
    topics[3] = [{"id": "cars", "weight": 2.0000002}]
    changed = changed.set_column(0, "topics", pa.array(topics, PAIRS))
    write_partition(table, 1, changed, row_group_size=5)
    register_table(warehouse, "log", str(table))
    submit_model(warehouse, model())
    assert work(warehouse) == 3  # topics, best, mean
    assert read_all(warehouse)[1].column("raw")[3].as_py() == [{"id": "cars", "weight": pytest.approx(2.0000002)}]
