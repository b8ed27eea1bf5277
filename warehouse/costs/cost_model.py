"""The cost of computing, reading, writing and storing a column, in CPU seconds per row.

Operators are measured while memos are computed (:mod:`warehouse.costs.measurements`). An unmeasured one costs its declared
seconds times the median ratio of measured to declared seconds. A memo's bytes per row are those of its component if it was ever
written, else the average of components with the same last operator, else an estimate from the type. Other rates are constants
that ``benchmarks/cost_model.py`` measures; prices are settings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection, select

from transforms.errors import InputError
from transforms.execution.operator_costs import cost_name, declared_secs, is_of_this_release
from transforms.graphs.graph import Node, Operation, RawColumn, topological
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.costs.value_bytes import estimated_bytes
from warehouse.planning.cheapest import DagNode, NodeCost
from warehouse.planning.rates import LIST_PRICES, MEASURED_RATES, Prices, Rates
from warehouse.planning.retention import MemoPrice

#: The cost of an operation that this release cannot compute, so high that a memo is loaded instead.
_NOT_OF_THIS_RELEASE_SECS = 1e3


@dataclass(frozen=True)
class CostModel:
    """Costs of nodes per row.

    Attributes:
        operator_secs: seconds per row of operators, by cost name and version.
        operator_bytes: bytes per row of memos of components that end in an operator, by its cost name and version.
        component_bytes: bytes per row of memos, by fingerprint.
        raw_bytes: bytes per row of raw columns, by name.
        rates: seconds per byte and per column of reading and writing.
        prices: the prices of storage and computing.
        horizon_days: the time for which stored memos are paid.
        fragment_rows: the rows that share a column's fixed seconds.
    """

    operator_secs: Mapping[tuple[str, int], float] = field(default_factory=dict)
    operator_bytes: Mapping[tuple[str, int], float] = field(default_factory=dict)
    component_bytes: Mapping[str, float] = field(default_factory=dict)
    raw_bytes: Mapping[str, float] = field(default_factory=dict)
    rates: Rates = MEASURED_RATES
    prices: Prices = LIST_PRICES
    horizon_days: float = 30.0
    fragment_rows: float = 100_000.0

    def __post_init__(self) -> None:
        for name, value in (("horizon_days", self.horizon_days), ("fragment_rows", self.fragment_rows)):
            if not (value > 0 and math.isfinite(value)):
                raise InputError(f"{name} must be > 0", where=f"CostModel.{name}", value=value)

    @cached_property
    def declared_factor(self) -> float:
        """The factor from declared to measured costs."""
        return declared_factor(self.operator_secs)

    def compute_secs(self, node: Node) -> float:
        """Seconds per row of the operator alone: infinite for a raw column, 0 for a constant.

        An operation of another release costs more than any other, so a plan has it only without a memo, and reading fails with
        the reason.
        """
        if isinstance(node, RawColumn):
            return math.inf
        if not isinstance(node, Operation):
            return 0.0
        if not is_of_this_release(node):
            return _NOT_OF_THIS_RELEASE_SECS
        name = cost_name(node.op, dict(node.params))
        measured = self.operator_secs.get((name, node.version))
        if measured is not None:
            return measured
        return self.declared_factor * (declared_secs(name) or 0.0)

    def stored_bytes(self, node: Node) -> float:
        """Bytes per row of a raw column in its file, or of another node in a memo."""
        if isinstance(node, RawColumn):
            found = self.raw_bytes.get(node.name)
        else:
            found = self.component_bytes.get(node.identity)
        if found is None and isinstance(node, Operation):
            found = self.operator_bytes.get((cost_name(node.op, dict(node.params)), node.version))
        return estimated_bytes(node.type) if found is None else found

    def node_cost(self, node: Node, *, ready: bool, keepable: bool) -> NodeCost:
        """A node's costs. ``ready``: its memo can be loaded; ``keepable``: it may be stored as a memo."""
        size_bytes, rates = self.stored_bytes(node), self.rates
        if isinstance(node, RawColumn):
            return NodeCost(math.inf, self._secs(size_bytes, rates.raw_read_secs, rates.raw_column_secs))
        read_secs = self._secs(size_bytes, rates.memo_read_secs, rates.memo_column_secs)
        if ready:
            return NodeCost(self.compute_secs(node), read_secs)
        keep_secs = self._secs(size_bytes, rates.memo_write_secs, rates.memo_write_column_secs)
        keep_secs += size_bytes * self.prices.storage_secs(self.horizon_days)
        return NodeCost(self.compute_secs(node), None, read_secs, keep_secs, keepable)

    def memo_price(self, node: Node) -> MemoPrice:
        """The prices of an operation's memo."""
        size_bytes, rates = self.stored_bytes(node), self.rates
        alone_secs = 0.0
        for part in topological([node]):
            cost = self.node_cost(part, ready=True, keepable=False)
            alone_secs += (cost.load_secs or 0.0) if isinstance(part, RawColumn) else cost.compute_secs
        return MemoPrice(
            alone_secs - self._secs(size_bytes, rates.memo_read_secs, rates.memo_column_secs),
            self._secs(size_bytes, rates.memo_write_secs, rates.memo_write_column_secs),
            size_bytes * self.prices.storage_secs(1.0),
        )

    def making_secs(self, roots: Sequence[Node]) -> float:
        """Computing components together, each node once, from raw columns, and writing their memos."""
        secs = sum(self.memo_price(root).write_secs for root in roots)
        for node in topological(roots):
            cost = self.node_cost(node, ready=True, keepable=False)
            secs += (cost.load_secs or 0.0) if isinstance(node, RawColumn) else cost.compute_secs
        return secs

    def _secs(self, size_bytes: float, byte_secs: float, column_secs: float) -> float:
        return size_bytes * byte_secs + column_secs / self.fragment_rows

    def dag(self, nodes: Iterable[Node], ready: Collection[str], keepable: Collection[str]) -> list[DagNode]:
        """Nodes in topological order with their costs. ``ready`` and ``keepable`` are fingerprints."""
        return [
            DagNode(
                node.identity,
                tuple(arg.identity for arg in node.args),
                self.node_cost(node, ready=node.identity in ready, keepable=node.identity in keepable),
            )
            for node in nodes
        ]


def declared_factor(operator_secs: Mapping[tuple[str, int], float]) -> float:
    """The median ratio of measured to declared seconds of this release's operators; 1 without measurements."""
    ratios = []
    for (operator, _), secs in operator_secs.items():
        declared = declared_secs(operator)
        if declared and secs > 0:
            ratios.append(secs / declared)
    return statistics.median(ratios) if ratios else 1.0


def load_cost_model(
    connection: Connection,
    nodes: Sequence[Node],
    *,
    raw_bytes: Mapping[str, float] | None = None,
    rates: Rates = MEASURED_RATES,
    prices: Prices = LIST_PRICES,
    horizon_days: float = 30.0,
    fragment_rows: float = 100_000.0,
) -> CostModel:
    """The cost model from the catalog; bytes are loaded for components among ``nodes`` only."""
    of = schema.operator_costs.c
    operators = connection.execute(select(of.operator, of.version, of.rows, of.secs, of.stored_rows, of.stored_bytes))
    operator_secs: dict[tuple[str, int], float] = {}
    operator_bytes: dict[tuple[str, int], float] = {}
    for operator, version, rows, secs, stored_rows, stored_bytes in operators:
        if rows > 0:
            operator_secs[operator, version] = secs / rows
        if stored_rows > 0:
            operator_bytes[operator, version] = stored_bytes / stored_rows
    component_bytes: dict[str, float] = {}
    costs = schema.component_costs.c
    wanted = sorted({node.identity for node in nodes if isinstance(node, Operation)})
    for chunk in chunks(wanted):
        query = select(costs.fingerprint, costs.rows, costs.stored_bytes).where(costs.fingerprint.in_(chunk))
        component_bytes.update({row[0]: row[2] / row[1] for row in connection.execute(query) if row[1] > 0})
    return CostModel(
        operator_secs, operator_bytes, component_bytes, raw_bytes or {}, rates, prices, horizon_days, fragment_rows
    )
