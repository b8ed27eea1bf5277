"""The columns of both tables that a joined column is computed from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.graphs.graph import RawColumn, component_from_document, raw_columns
from transforms.joins.definition import JoinDefinition


def columns_read(definition: JoinDefinition) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the columns of events and of rows that a definition reads, ``known_at`` included; not their times."""
    known = frozenset({definition.known_at} if definition.known_at else ())
    own, other = (frozenset(one.name for one in side) for side in (own_columns(definition), other_columns(definition)))
    return own, other | known


def own_columns(definition: JoinDefinition) -> tuple[RawColumn, ...]:
    """The columns of the events that keys are computed from, by name; not the time."""
    return _columns([pair.own for pair in definition.keys])


def other_columns(definition: JoinDefinition) -> tuple[RawColumn, ...]:
    """The columns of the other table that keys, values, conditions and orders are computed from, by name; neither the time nor ``known_at``."""
    parts = (definition.value, definition.where, definition.order)
    return _columns([*(pair.other for pair in definition.keys), *(part for part in parts if part is not None)])


def _columns(documents: list[Mapping[str, Any]]) -> tuple[RawColumn, ...]:
    found = {
        column.name: column for document in documents for column in raw_columns(component_from_document(dict(document)))
    }
    return tuple(found[name] for name in sorted(found))
