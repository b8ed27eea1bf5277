"""Estimates of a task's CPU seconds and bytes, from measurements of its component or its operators."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from transforms.execution.operator_costs import is_of_this_release
from transforms.graphs.graph import Node, Operation, component_from_document, raw_columns, topological
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.costs.cost_model import load_cost_model

#: The fixed cost of a task: its rows in the catalog, its column's directory entry in a file.
TASK_SECS = 5e-4


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """A component's work: CPU seconds and memo bytes per row, and the raw columns that it reads."""

    row_secs: float
    row_bytes: float
    columns: tuple[str, ...]

    def secs(self, rows: int) -> float:
        """Seconds of one core over a fragment of ``rows``."""
        return TASK_SECS + rows * self.row_secs


def load_estimates(connection: Connection, components: Mapping[str, Mapping[str, Any]]) -> dict[str, WorkEstimate]:
    """The estimates of components, by fingerprint, from their documents."""
    roots = {fingerprint: _root_of(fingerprint, document) for fingerprint, document in components.items()}
    costs = load_cost_model(connection, tuple(roots.values()))
    measured = _measured_secs(connection, list(roots))
    estimates = {}
    for fingerprint, root in roots.items():
        columns = tuple(sorted({column.name for column in raw_columns(root)}))
        secs = measured.get(fingerprint)
        if secs is None:
            secs = sum(costs.compute_secs(node) for node in topological([root]) if _is_computed_here(node))
        estimates[fingerprint] = WorkEstimate(secs, costs.stored_bytes(root), columns)
    return estimates


#: The documents of recent components with their roots: a worker leases tasks of the same ones again and again.
_ROOTS: OrderedDict[str, tuple[Mapping[str, Any], Node]] = OrderedDict()
_MOST_ROOTS = 10_000


def _root_of(fingerprint: str, document: Mapping[str, Any]) -> Node:
    known = _ROOTS.get(fingerprint)
    if known is None or known[0] != document:
        known = _ROOTS[fingerprint] = document, component_from_document(dict(document))
        while len(_ROOTS) > _MOST_ROOTS:
            _ROOTS.popitem(last=False)
    return known[1]


def _is_computed_here(node: Node) -> bool:
    """Whether this release has the operator: one of another release fails at once, so it takes no time."""
    return isinstance(node, Operation) and is_of_this_release(node)


def _measured_secs(connection: Connection, fingerprints: list[str]) -> dict[str, float]:
    of, found = schema.component_costs.c, {}
    for chunk in chunks(sorted(fingerprints)):
        query = select(of.fingerprint, of.secs, of.rows).where(of.fingerprint.in_(chunk), of.rows > 0)
        found.update({fingerprint: secs / rows for fingerprint, secs, rows in connection.execute(query)})
    return found
