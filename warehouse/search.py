"""Search the components that models were made of: what is computed, from which columns, for whom, at what cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from transforms.errors import nearest
from transforms.graph import Node, component_from_document
from transforms.types import ColumnType
from warehouse import schema
from warehouse.catalog import chunks
from warehouse.errors import UnknownComponent, UnknownModel
from warehouse.task_states import MemoState
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class ComponentRow:
    """One component. ``models`` are the live models that read it; ``memos`` counts its memos by state.

    ``rows``, ``bytes`` and ``secs`` are those of its ready memos.
    """

    fingerprint: str
    expression: str
    type: ColumnType
    component: Node
    columns: tuple[str, ...]
    operators: Mapping[str, int]
    models: tuple[str, ...]
    memos: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    secs: float = 0.0


def search_components(
    warehouse: Warehouse,
    column: str | None = None,
    operator: str | None = None,
    model: str | None = None,
    fingerprint_prefix: str | None = None,
) -> tuple[ComponentRow, ...]:
    """The components that fit every condition given, oldest first: read this raw column, use this operator, feed this
    model (any version), have a fingerprint that starts so. Raises :class:`UnknownModel` for a model never submitted.
    """
    components = schema.components.c
    query = select(schema.components)
    if column is not None:
        of = schema.component_columns.c
        query = query.where(components.fingerprint.in_(select(of.fingerprint).where(of.column_name == column)))
    if operator is not None:
        by = schema.component_operators.c
        query = query.where(components.fingerprint.in_(select(by.fingerprint).where(by.operator == operator)))
    if fingerprint_prefix is not None:
        query = query.where(components.fingerprint.startswith(fingerprint_prefix, autoescape=True))
    with warehouse.catalog.read() as connection:
        if model is not None:
            query = query.where(components.fingerprint.in_(_inputs_of(connection, model)))
        rows = connection.execute(query.order_by(components.created_at, components.fingerprint)).all()
        return _details(connection, rows)


def get_component(warehouse: Warehouse, fingerprint_prefix: str) -> ComponentRow:
    """The one component whose fingerprint starts so. Raises :class:`UnknownComponent` for none and for several."""
    found = search_components(warehouse, fingerprint_prefix=fingerprint_prefix)
    if len(found) != 1 or not fingerprint_prefix:
        raise UnknownComponent("no such component" if not found else "several components start so",
                               value=fingerprint_prefix, allowed=", ".join(row.fingerprint[:16] for row in found[:10]),
                               next_step="headrace graphs ls")  # fmt: skip
    return found[0]


def _inputs_of(connection: Connection, model: str) -> Any:
    models, inputs = schema.models.c, schema.model_inputs.c
    known = set(connection.execute(select(models.name)).scalars())
    if model not in known:
        raise UnknownModel("no such model", value=model, allowed=nearest(model, known))
    return select(inputs.fingerprint).join(schema.models, models.id == inputs.model).where(models.name == model)


def _details(connection: Connection, rows: Iterable[Any]) -> tuple[ComponentRow, ...]:
    listed = list(rows)
    keys = [row.fingerprint for row in listed]
    columns = _grouped(
        connection, schema.component_columns.c.fingerprint, (schema.component_columns.c.column_name,), keys
    )
    of = schema.component_operators.c
    operators = _grouped(connection, of.fingerprint, (of.operator, of.version), keys)
    models = _readers(connection, keys)
    memos = _memo_counts(connection, keys)
    return tuple(
        _row(row, columns.get(row.fingerprint, []), operators.get(row.fingerprint, []),
             models.get(row.fingerprint, []), memos.get(row.fingerprint, []))
        for row in listed
    )  # fmt: skip


def _row(row: Any, columns: list[Any], operators: list[Any], models: list[str], memos: list[Any]) -> ComponentRow:
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
        memos={one.state: one.memos for one in memos},
        rows=int(ready.rows or 0) if ready else 0,
        bytes=int(ready.size_bytes or 0) if ready else 0,
        secs=float(ready.secs or 0) if ready else 0.0,
    )


def _grouped(connection: Connection, key: Any, values: tuple[Any, ...], keys: list[str]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for chunk in chunks(keys):
        for fingerprint, *rest in connection.execute(select(key, *values).where(key.in_(chunk)).order_by(*values)):
            grouped.setdefault(fingerprint, []).append(tuple(rest))
    return grouped


def _readers(connection: Connection, keys: list[str]) -> dict[str, list[str]]:
    models, inputs = schema.models.c, schema.model_inputs.c
    readers: dict[str, list[str]] = {}
    for chunk in chunks(keys):
        query = (
            select(inputs.fingerprint, models.name)
            .join(schema.models, models.id == inputs.model)
            .where(models.live.is_(True), inputs.fingerprint.in_(chunk))
            .distinct()
            .order_by(models.name)
        )
        for fingerprint, name in connection.execute(query):
            readers.setdefault(fingerprint, []).append(name)
    return readers


def _memo_counts(connection: Connection, keys: list[str]) -> dict[str, list[Any]]:
    of = schema.memos.c
    counts: dict[str, list[Any]] = {}
    for chunk in chunks(keys):
        query = (
            select(of.fingerprint, of.state, func.count().label("memos"), func.sum(of.rows).label("rows"),
                   func.sum(of.size_bytes).label("size_bytes"), func.sum(of.secs).label("secs"))
            .where(of.fingerprint.in_(chunk))
            .group_by(of.fingerprint, of.state)
            .order_by(of.state)
        )  # fmt: skip
        for row in connection.execute(query):
            counts.setdefault(row.fingerprint, []).append(row)
    return counts
