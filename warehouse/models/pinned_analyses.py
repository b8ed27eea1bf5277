"""Pinned analyses: what each version of a model was resolved with, so that late rows change nothing until it is asked for.

An analysis is pinned by what is sought, in which table and over which range, whatever data the range holds. A submission
resolves a model with the pinned ones of its newest version; ``headrace analyze`` makes new ones for the next version.
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
        analysis: its identity without the data: what is sought, where, and over which range.
        key: its identity with the data that was analyzed.
        artifact: the digest of what was found.
        operator: the full-pass operator.
        expression: what is analyzed, as text.
        start: the first moment of the range, as text; ``end`` the moment that it ends before.
        rows: events of the range when it was analyzed.
        rows_now: events that it has now; None if no partition starts in it any more, or it was not looked at.
        partitions: of the range, as far as they were looked at.
        is_current: the range holds the very data that was analyzed.
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
    """What a pin is found by: what is sought, the table and the range."""
    over = analysis.over
    return digest([analysis.fingerprint, table, moment_text(over.start), moment_text(over.end)])


def pinned_analyses(connection: Connection, model: str, version: int | None = None) -> dict[str, UsedAnalysis]:
    """What a model's next submission is resolved with, by identity; of a stated ``version``, what that was resolved with."""
    of = schema.model_analyses.c
    query = select(schema.model_analyses).where(of.model_name == model)
    query = query.where(of.version >= _newest(connection, model) if version is None else of.version == version)
    return {row.analysis: _used(row) for row in connection.execute(query.order_by(of.version, of.analysis))}


def prepare_analyses(connection: Connection, model: str, used: Collection[UsedAnalysis]) -> None:
    """Pin analyses for the next version of ``model``; the versions that there are keep theirs."""
    _replace(connection, model, _newest(connection, model) + 1, used)


def pin_analyses(connection: Connection, model: str, version: int, used: Collection[UsedAnalysis]) -> None:
    """Pin what a version of ``model`` was resolved with; what was prepared for it is done."""
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
