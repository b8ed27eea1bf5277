"""Find the known component that is nearest to another one, and their difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from transforms.comparison.difference import Difference, nearest_component
from transforms.graphs.graph import Node, component_from_document, raw_columns
from transforms.graphs.subgraphs import subgraphs
from warehouse.catalog import schema
from warehouse.models.models import get_model, stored_inputs
from warehouse.warehouse import Warehouse

#: The most components that are compared; they share large subgraphs, or columns and operators, with the target.
_CANDIDATES = 60


@dataclass(frozen=True)
class NearestKnown:
    """The known component that is nearest to an input, its readers, and the difference."""

    input: str
    fingerprint: str
    expression: str
    models: tuple[str, ...]
    difference: Difference


def nearest_known_of(
    warehouse: Warehouse, model_name: str, inputs: Collection[str], version: int | None = None
) -> tuple[NearestKnown, ...]:
    """The nearest known component of each of these inputs, among those that the model does not have.

    Inputs without a similar component are omitted. Raises :class:`~warehouse.errors.UnknownModel`.
    """
    found = []
    with warehouse.catalog.read() as connection:
        every = stored_inputs(connection, get_model(connection, model_name, version).id)
        own = {item.fingerprint for item in every}
        for item in every:
            nearest = nearest_known(connection, item.component, own) if item.name in inputs else None
            if nearest is not None:
                found.append(NearestKnown(item.name, *nearest))
    return tuple(found)


def nearest_known(
    connection: Connection, target: Node, without: Collection[str] = ()
) -> tuple[str, str, tuple[str, ...], Difference] | None:
    """The known component of the least distance to ``target``: fingerprint, expression, readers, difference.

    ``target`` and the components in ``without`` are excluded; None if no component is similar. Candidates are found by
    index: components with the largest subgraphs of ``target``, then those that apply its last operator to one of its
    columns. Equal catalogs give equal answers.
    """
    left_out = {target.identity, *without}
    fingerprints: dict[str, None] = {}
    for node in reversed(subgraphs(target)):
        if node.identity != target.identity:
            _add(connection, fingerprints, left_out, _holding(node))
    operations = subgraphs(target)
    if operations:
        for column in raw_columns(target):
            _add(connection, fingerprints, left_out, _alike(column.name, operations[-1].op))
    of = schema.components.c
    query = select(of.fingerprint, of.document, of.expression).where(of.fingerprint.in_(list(fingerprints)))
    rows = {row.fingerprint: row for row in connection.execute(query)}
    nearest = nearest_component(target, [(name, component_from_document(row.document)) for name, row in rows.items()])
    if nearest is None:
        return None
    readers = _readers(connection, nearest.name)
    return nearest.name, rows[nearest.name].expression, readers, nearest.difference


def _add(connection: Connection, found: dict[str, None], left_out: Collection[str], query: Any) -> None:
    if len(found) < _CANDIDATES:
        more: Iterable[str] = connection.execute(query.limit(_CANDIDATES + len(left_out))).scalars()
        known = [one for one in more if one not in left_out]
        found.update(dict.fromkeys(known[: _CANDIDATES - len(found)]))


def _readers(connection: Connection, fingerprint: str) -> tuple[str, ...]:
    models, inputs = schema.models.c, schema.model_inputs.c
    query = select(models.name).join(schema.model_inputs, inputs.model == models.id)
    query = query.where(inputs.fingerprint == fingerprint).distinct().order_by(models.name)
    return tuple(connection.execute(query).scalars())


def _holding(node: Node) -> Any:
    of = schema.component_subgraphs.c
    return select(of.fingerprint).where(of.subgraph == node.identity).order_by(of.fingerprint)


def _alike(column: str, operator: str) -> Any:
    columns, operators = schema.component_columns.c, schema.component_operators.c
    return (
        select(columns.fingerprint)
        .join(schema.component_operators, operators.fingerprint == columns.fingerprint)
        .where(columns.column_name == column, operators.operator == operator)
        .order_by(columns.fingerprint)
    )
