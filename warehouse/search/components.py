"""Read components with their readers and memos: one query per table, not per component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from transforms.graphs.graph import Node, component_from_document
from transforms.types import ColumnType
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import computes, is_running
from warehouse.memos.memos import with_running
from warehouse.scheduling.task_states import MemoState
from warehouse.search.measures import hits, is_input


@dataclass(frozen=True)
class ComponentRow:
    """One component.

    Attributes:
        fingerprint: Its fingerprint.
        expression: Its expression.
        type: Its type.
        component: Its graph.
        columns: The raw columns that it reads.
        operators: Its operators with their versions.
        models: The live models that have it as an input.
        within: The live models that contain it, if it is an input of no model.
        memos: The number of its memos by state.
        rows: Rows of its ready memos.
        bytes: Bytes of its ready memos.
        secs: Computing seconds of its ready memos.
        hits: How often its readers were submitted, or read for training.
        created_at: When a model first requested it, in epoch seconds.
    """

    fingerprint: str
    expression: str
    type: ColumnType
    component: Node
    columns: tuple[str, ...]
    operators: Mapping[str, int]
    models: tuple[str, ...]
    within: tuple[str, ...] = ()
    memos: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    secs: float = 0.0
    hits: int = 0
    created_at: float = 0.0

    @property
    def saved_secs(self) -> float:
        """Computing seconds that the live readers beyond the first saved."""
        return self.secs * max(len(self.models or self.within) - 1, 0)


def read_components(connection: Connection, fingerprints: Sequence[str]) -> tuple[ComponentRow, ...]:
    """These components, in this order, without unknown ones."""
    of, by = schema.component_columns.c, schema.component_operators.c
    known = {row.fingerprint: row for row in _rows_of(connection, fingerprints)}
    keys = [key for key in fingerprints if key in known]
    columns = _grouped(connection, of.fingerprint, (of.column_name,), keys)
    operators = _grouped(connection, by.fingerprint, (by.operator, by.version), keys)
    models = live_models(connection, keys)
    within = live_models_around(connection, keys)
    memos, running = _memo_counts(connection, keys), _running_counts(connection, keys)
    return tuple(
        _row(known[key], columns.get(key, []), operators.get(key, []), models.get(key, []), within.get(key, []),
             memos.get(key, []), running.get(key, 0))
        for key in keys
    )  # fmt: skip


def _rows_of(connection: Connection, keys: Sequence[str]) -> list[Any]:
    of = schema.components.c
    rows: list[Any] = []
    for chunk in chunks(keys):
        query = select(of.fingerprint, of.expression, of.document, of.created_at, hits().label("hits"))
        rows += connection.execute(query.where(one_of(connection, of.fingerprint, chunk))).all()
    return rows


def _row(
    row: Any,
    columns: list[Any],
    operators: list[Any],
    models: list[str],
    within: list[str],
    memos: list[Any],
    running: int,
) -> ComponentRow:
    root = component_from_document(row.document)
    ready = next((one for one in memos if one.state == MemoState.READY), None)
    return ComponentRow(
        fingerprint=row.fingerprint,
        expression=row.expression,
        type=root.type,
        component=root,
        columns=tuple(name for (name,) in columns),
        operators=dict(tuple(pair) for pair in operators),
        models=tuple(models),
        within=tuple(within),
        memos=with_running({one.state: int(one.memos) for one in memos}, running),
        rows=int(ready.rows or 0) if ready else 0,
        bytes=int(ready.size_bytes or 0) if ready else 0,
        secs=float(ready.secs or 0) if ready else 0.0,
        hits=row.hits,
        created_at=row.created_at,
    )


def _grouped(connection: Connection, key: Any, values: tuple[Any, ...], keys: list[str]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for chunk in chunks(keys):
        for fingerprint, *rest in connection.execute(
            select(key, *values).where(one_of(connection, key, chunk)).order_by(*values)
        ):
            grouped.setdefault(fingerprint, []).append(tuple(rest))
    return grouped


def live_models(connection: Connection, keys: Sequence[str]) -> dict[str, list[str]]:
    """The names of the live models that have each component as an input."""
    models, inputs = schema.models.c, schema.model_inputs.c
    query = select(inputs.fingerprint, models.name).join(schema.models, models.id == inputs.model)
    return _named(connection, query, inputs.fingerprint, keys)


def live_models_around(connection: Connection, keys: Sequence[str]) -> dict[str, list[str]]:
    """The names of the live models that contain each component, for those that are an input of no model."""
    models, inputs, parts = schema.models.c, schema.model_inputs.c, schema.component_subgraphs.c
    query = (
        select(parts.subgraph, models.name)
        .join(schema.model_inputs, inputs.fingerprint == parts.fingerprint)
        .join(schema.models, models.id == inputs.model)
        .where(~is_input(parts.subgraph))
    )
    return _named(connection, query, parts.subgraph, keys)


def _named(connection: Connection, query: Any, key: Any, keys: Sequence[str]) -> dict[str, list[str]]:
    models = schema.models.c
    found: dict[str, list[str]] = {}
    for chunk in chunks(keys):
        narrowed = query.where(models.live.is_(True), one_of(connection, key, chunk)).distinct().order_by(models.name)
        for fingerprint, name in connection.execute(narrowed):
            found.setdefault(fingerprint, []).append(name)
    return found


def _memo_counts(connection: Connection, keys: list[str]) -> dict[str, list[Any]]:
    of = schema.memos.c
    counts: dict[str, list[Any]] = {}
    for chunk in chunks(keys):
        query = (
            select(of.fingerprint, of.state, func.count().label("memos"), func.sum(of.rows).label("rows"),
                   func.sum(of.size_bytes).label("size_bytes"), func.sum(of.secs).label("secs"))
            .where(one_of(connection, of.fingerprint, chunk))
            .group_by(of.fingerprint, of.state)
            .order_by(of.state)
        )  # fmt: skip
        for row in connection.execute(query):
            counts.setdefault(row.fingerprint, []).append(row)
    return counts


def _running_counts(connection: Connection, keys: list[str]) -> dict[str, int]:
    of = schema.memos.c
    query = (
        select(of.fingerprint, func.count()).join(schema.tasks, computes()).where(is_running()).group_by(of.fingerprint)
    )
    counts: dict[str, int] = {}
    for chunk in chunks(keys):
        counts.update(tuple(row) for row in connection.execute(query.where(one_of(connection, of.fingerprint, chunk))))
    return counts
