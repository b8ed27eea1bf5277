"""Pinned analyses: those that resolve a version of a model, which late rows do not change.

A pin identifies operator, expression, table and range, without the data. A submission resolves a model by the pinned analyses
of its newest version; ``headrace analyze`` prepares new ones for the next version.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from transforms.analysis.full_pass import Analysis
from transforms.graphs.encoding import digest
from transforms.time_range import moment_text
from warehouse.catalog import schema


@dataclass(frozen=True, slots=True)
class UsedAnalysis:
    """An analysis that a model is resolved with.

    Attributes:
        analysis: its identity without the data: operator, expression, table and range.
        key: its identity with the analyzed data.
        artifact: the digest of the artifact.
        operator: the full-pass operator.
        expression: the analyzed expression, as text.
        start: the start of the range, as text.
        end: the exclusive end of the range, as text.
        rows: the analyzed events.
        rows_now: the events in the range now; None if unknown or without partitions.
        partitions: the number of partitions in the range now; 0 if unknown.
        is_current: whether the range still has the analyzed data.
    """

    analysis: str
    key: str
    artifact: str
    operator: str
    expression: str
    start: str
    end: str
    rows: int
    rows_now: int | None = None
    partitions: int = 0
    is_current: bool = True

    @property
    def over(self) -> str:
        """The range, as text."""
        return f"{self.start} .. {self.end}"


def analysis_identity(analysis: Analysis, table: str) -> str:
    """The identity of an analysis without the data: operator, expression, table and range."""
    over = analysis.over
    return digest([analysis.fingerprint, table, moment_text(over.start), moment_text(over.end)])


def pinned_analyses(connection: Connection, model: str, version: int | None = None) -> dict[str, UsedAnalysis]:
    """The analyses that resolve a model's next submission, by identity; with ``version`` those that resolved it."""
    of = schema.model_analyses.c
    query = select(schema.model_analyses).where(of.model_name == model)
    query = query.where(of.version >= _newest(connection, model) if version is None else of.version == version)
    return {row.analysis: _used(row) for row in connection.execute(query.order_by(of.version, of.analysis))}


def prepare_analyses(connection: Connection, model: str, used: Collection[UsedAnalysis]) -> None:
    """Pin analyses for the next version of ``model``; existing versions keep theirs."""
    _replace(connection, model, _newest(connection, model) + 1, used)


def pin_analyses(connection: Connection, model: str, version: int, used: Collection[UsedAnalysis]) -> None:
    """Pin the analyses of a new version of ``model``, replacing prepared ones."""
    _replace(connection, model, version, used)


def _replace(connection: Connection, model: str, version: int, used: Collection[UsedAnalysis]) -> None:
    table = schema.model_analyses
    own = (table.c.model_name == model, table.c.version >= version)
    wanted = {(version, one.analysis, one.key, one.artifact) for one in used}
    found = connection.execute(select(table.c.version, table.c.analysis, table.c.key, table.c.artifact).where(*own))
    if {tuple(row) for row in found} == wanted:
        return
    connection.execute(delete(table).where(*own))
    rows = [
        {"model_name": model, "version": version, "analysis": one.analysis, "key": one.key, "artifact": one.artifact,
         "operator": one.operator, "expression": one.expression, "start_at": _epoch(one.start), "end_at": _epoch(one.end),
         "rows": one.rows}
        for one in {each.analysis: each for each in used}.values()
    ]  # fmt: skip
    if rows:
        connection.execute(insert(table), rows)


def _newest(connection: Connection, model: str) -> int:
    of = schema.models.c
    return int(connection.execute(select(func.coalesce(func.max(of.version), 0)).where(of.name == model)).scalar_one())


def _used(row: Any) -> UsedAnalysis:
    return UsedAnalysis(row.analysis, row.key, row.artifact, row.operator, row.expression, _text(row.start_at),
                        _text(row.end_at), row.rows)  # fmt: skip


def _epoch(moment: str) -> float:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


def _text(epoch: float) -> str:
    return moment_text(datetime.fromtimestamp(epoch, UTC))
