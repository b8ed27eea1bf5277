"""Measurements of computed memos in the catalog: seconds by operator, bytes by component.

Sums decay by rows, not by time: earlier rows count half once :data:`HALF_LIFE_ROWS` more are measured. So a cost follows a new
release or another machine within some million rows, and an operator that is not used keeps its cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from transforms.execution.operator_costs import OperatorWork, cost_name, sum_operator_work
from warehouse.catalog import schema
from warehouse.catalog.bulk import add_to_rows

HALF_LIFE_ROWS = 5_000_000.0


def decay_factor(new_rows: float) -> float:
    """The weight of an old sum after ``new_rows`` more rows: halved by each half-life."""
    return float(0.5 ** (new_rows / HALF_LIFE_ROWS))


@dataclass(frozen=True, slots=True)
class MemoMeasurement:
    """The measurement of a memo that was computed and written.

    Attributes:
        fingerprint: its component.
        operator: the cost name of the component's root.
        version: the version of that operator.
        rows: its rows.
        secs: the seconds of the component by itself.
        size_bytes: its part of the memo file.
    """

    fingerprint: str
    operator: str
    version: int
    rows: int
    secs: float
    size_bytes: int


def measure_memo(
    fingerprint: str, component: Mapping[str, Any], rows: int, secs: float, size_bytes: int
) -> MemoMeasurement:
    """The measurement of a component, given by its document, whose last node is its root, an operation."""
    root = component["nodes"][-1]
    return MemoMeasurement(fingerprint, cost_name(root["op"], root["params"]), root["version"], rows, secs, size_bytes)


def record_measurements(
    connection: Connection, works: Iterable[OperatorWork], memos: Iterable[MemoMeasurement]
) -> None:
    """Add measurements to the catalog's sums; their order does not matter.

    Each sum is changed by one UPDATE that reads it, so no other writer's addition is lost.
    """
    operators: dict[tuple[str, int], dict[str, float]] = {}
    components: dict[str, dict[str, float]] = {}
    for work in sum_operator_work(works):
        if work.rows:
            operators[work.operator, work.version] = {"rows": work.rows, "secs": work.secs}
    for memo in memos:
        if memo.rows:
            sums = operators.setdefault((memo.operator, memo.version), {})
            sums["stored_rows"] = sums.get("stored_rows", 0.0) + memo.rows
            sums["stored_bytes"] = sums.get("stored_bytes", 0.0) + memo.size_bytes
            if memo.fingerprint not in components:
                components[memo.fingerprint] = {"rows": 0.0, "secs": 0.0, "stored_bytes": 0.0}
            sums = components[memo.fingerprint]
            sums["rows"] += memo.rows
            sums["secs"] += memo.secs
            sums["stored_bytes"] += memo.size_bytes
    add_to_rows(connection, schema.operator_costs, [
        {"operator": operator, "version": version, **_with_decay(sums, {"rows": "secs", "stored_rows": "stored_bytes"})}
        for (operator, version), sums in sorted(operators.items())
    ])  # fmt: skip
    add_to_rows(connection, schema.component_costs, [
        {"fingerprint": fingerprint, **_with_decay(sums, {"rows": "secs stored_bytes"})}
        for fingerprint, sums in sorted(components.items())
    ])  # fmt: skip


def _with_decay(sums: Mapping[str, float], measures: Mapping[str, str]) -> dict[str, float]:
    """The sums with the decay factors of their old values; ``measures``: names of rows to names of what they measure."""
    values: dict[str, float] = {}
    for rows, measured in measures.items():
        factor = decay_factor(sums.get(rows, 0.0))
        for name in (rows, *measured.split()):
            values[f"new_{name}"] = sums.get(name, 0.0)
            values[f"keep_{name}"] = factor
    return values
