"""For a component that is not known: the nearest one that is, and what differs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from transforms.difference import Nearest, nearest_component
from transforms.graph import Node, component_from_document, raw_columns
from transforms.subgraphs import subgraphs
from warehouse import schema

#: Components that are compared; they share the largest subgraphs, or else columns and operators, with the one in question.
_CANDIDATES = 60


def nearest_known(connection: Connection, target: Node) -> Nearest | None:
    """The known component of the least distance to ``target``, other than itself; None where nothing is alike.

    Candidates are found by index: those that hold the largest subgraphs of ``target``, then those that apply its last
    operator to one of its columns. Equal catalogs give equal answers.
    """
    fingerprints: dict[str, None] = {}
    for node in reversed(subgraphs(target)):
        if node.identity != target.identity:
            _add(connection, fingerprints, target, _holding(node))
    operations = subgraphs(target)
    if operations:
        for column in raw_columns(target):
            _add(connection, fingerprints, target, _alike(column.name, operations[-1].op))
    of = schema.components.c
    rows = connection.execute(select(of.fingerprint, of.document).where(of.fingerprint.in_(list(fingerprints))))
    return nearest_component(target, [(row.fingerprint, component_from_document(row.document)) for row in rows])


def _add(connection: Connection, found: dict[str, None], target: Node, query: Any) -> None:
    if len(found) < _CANDIDATES:
        more = connection.execute(query.limit(_CANDIDATES - len(found) + 1)).scalars()
        found.update(dict.fromkeys(one for one in more if one != target.identity))


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
