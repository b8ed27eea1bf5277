"""The cost model: measurements first, then similar components, then estimates."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import model, work
from transforms.errors import InputError
from transforms.execution.operator_costs import OperatorWork
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Literal, Node, Operation, RawColumn, topological
from transforms.operators import REGISTRY
from transforms.types import Dense, DType, Ragged, Vector, Weighted
from warehouse import Warehouse, submit_model
from warehouse.costs.cost_model import CostModel, Prices, Rates, declared_factor, load_cost_model
from warehouse.costs.measurements import record_measurements
from warehouse.costs.value_bytes import estimated_bytes

QUERY = hr.text("query")
WORDS = canonicalize(QUERY.unigrams().hash_buckets(100).node)
LENGTH = canonicalize(QUERY.length().node)


def named(root: Node, op: str) -> Operation:
    return next(node for node in topological([root]) if isinstance(node, Operation) and node.op == op)


def test_measured_seconds_come_before_declared_ones() -> None:
    version = REGISTRY["length"].version
    declared = REGISTRY["unigrams"].cost_ns * 1e-9
    assert CostModel().compute_secs(named(WORDS, "unigrams")) == declared
    costs = CostModel(operator_secs={("length", version): REGISTRY["length"].cost_ns * 3e-9})
    assert costs.compute_secs(LENGTH) == REGISTRY["length"].cost_ns * 3e-9
    assert costs.compute_secs(named(WORDS, "unigrams")) == pytest.approx(3 * declared)
    as_declared = {(name, 1): REGISTRY[name].cost_ns * 1e-9 for name in ("unigrams", "add")}
    other = CostModel(operator_secs={**as_declared, ("length", version + 1): 1.0})
    assert other.compute_secs(LENGTH) == REGISTRY["length"].cost_ns * 1e-9  # another version is another operator


def test_the_factor_is_a_median() -> None:
    secs = {(name, 1): REGISTRY[name].cost_ns * 1e-9 * factor
            for name, factor in (("length", 2), ("unigrams", 5), ("add", 900))}  # fmt: skip
    assert declared_factor(secs) == pytest.approx(5)
    assert declared_factor({**secs, ("gone_since", 1): 1.0}) == pytest.approx(5)
    assert declared_factor({}) == 1


def test_columns_and_constants() -> None:
    column = next(node for node in topological([WORDS]) if isinstance(node, RawColumn))
    constant = Literal(Dense(DType.INT64), 3)
    costs = CostModel(raw_bytes={"query": 10.0}, rates=Rates(raw_read_secs=2.0, raw_column_secs=50.0), fragment_rows=10)
    assert math.isinf(costs.compute_secs(column))
    assert costs.compute_secs(constant) == 0
    assert costs.node_cost(column, ready=False, keepable=True).load_secs == 10 * 2 + 5
    assert not costs.node_cost(column, ready=False, keepable=True).may_be_kept


def test_bytes_of_the_component_then_of_the_operator_then_of_the_type() -> None:
    operators = {("hash_buckets", REGISTRY["hash_buckets"].version): 7.0}
    assert CostModel(operator_bytes=operators, component_bytes={WORDS.identity: 3.0}).stored_bytes(WORDS) == 3
    assert CostModel(operator_bytes=operators).stored_bytes(WORDS) == 7
    assert CostModel().stored_bytes(WORDS) == estimated_bytes(Ragged(DType.INT64, 100)) == 4 + 8 * 1


@pytest.mark.parametrize(
    ("column_type", "size_bytes"),
    [
        (Dense(DType.BOOL), 0.125),
        (Dense(DType.INT64), 8),
        (Dense(DType.INT64, 256), 1),
        (Dense(DType.INT64, 257), 2),
        (Dense(DType.INT64, 10**6), 4),
        (Weighted(DType.INT64, 10), 4 + 8 * 5),
        (Vector(DType.FLOAT32, 16), 64),
    ],
)
def test_estimates(column_type: Dense | Weighted | Vector, size_bytes: float) -> None:
    assert estimated_bytes(column_type) == size_bytes


def test_the_price_of_keeping() -> None:
    rates = Rates(0, 0, memo_read_secs=1.0, memo_column_secs=4.0, memo_write_secs=3.0, memo_write_column_secs=8.0)
    prices = Prices(byte_month=6.0, cpu_sec=2.0)
    costs = CostModel(component_bytes={LENGTH.identity: 10.0}, rates=rates, prices=prices, horizon_days=60,
                      fragment_rows=4)  # fmt: skip
    new = costs.node_cost(LENGTH, ready=False, keepable=True)
    assert (new.load_secs, new.read_back_secs, new.keep_secs) == (None, 10 + 1, 30 + 2 + 10 * 6)
    assert new.may_be_kept
    assert not costs.node_cost(LENGTH, ready=False, keepable=False).may_be_kept
    ready = costs.node_cost(LENGTH, ready=True, keepable=True)
    assert ready.load_secs == 11
    assert not ready.may_be_kept


def test_a_dag_of_a_graph() -> None:
    nodes = list(topological([WORDS, LENGTH]))
    dag = CostModel().dag(nodes, ready={LENGTH.identity}, keepable={WORDS.identity})
    by_id = {node.id: node for node in dag}
    assert [node.id for node in dag] == [node.identity for node in nodes]
    assert by_id[LENGTH.identity].cost.load_secs is not None
    assert by_id[WORDS.identity].cost.may_be_kept
    assert by_id[WORDS.identity].args == tuple(arg.identity for arg in WORDS.args)


def test_loaded_from_what_was_computed(warehouse: Warehouse, log: Path) -> None:
    submitted = model(inputs=3)
    submit_model(warehouse, submitted)
    work(warehouse)
    roots = [item.component for item in submitted.inputs.values()]
    with warehouse.catalog.write() as connection:
        record_measurements(connection, [OperatorWork("unigrams", 1, 1000, 2.0)], [])
    with warehouse.catalog.read() as connection:
        costs = load_cost_model(connection, roots, horizon_days=7.0, fragment_rows=20.0)
    assert costs.operator_secs == {("unigrams", 1): 0.002}
    assert set(costs.component_bytes) == {root.identity for root in roots if isinstance(root, Operation)}
    assert set(costs.operator_bytes) == {("hash_buckets", REGISTRY["hash_buckets"].version)}
    assert all(size_bytes > 0 for size_bytes in costs.component_bytes.values())
    assert (costs.horizon_days, costs.fragment_rows) == (7.0, 20.0)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: Rates(memo_read_secs=-1.0), "Rates.memo_read_secs"),
        (lambda: Prices(byte_month=math.nan), "Prices.byte_month"),
        (lambda: Prices(cpu_sec=0.0), "Prices.cpu_sec"),
        (lambda: CostModel(horizon_days=0.0), "CostModel.horizon_days"),
        (lambda: CostModel(fragment_rows=math.inf), "CostModel.fragment_rows"),
    ],
)
def test_settings_are_checked(make: object, where: str) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.where == where
