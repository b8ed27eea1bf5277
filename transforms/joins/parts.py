"""The expressions of a definition, as nodes."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from transforms.columns.arrow_types import arrow_type
from transforms.graphs.graph import Node, component_from_document
from transforms.joins.definition import JoinDefinition, column_type


class Parts(NamedTuple):
    """Expressions over events and over rows.

    Attributes:
        own: the keys of an event.
        other: the keys of a row.
        value: of a row; None if rows are counted.
        where: whether a row is used; None: each is.
        order: of rows of one time; None: by their values alone.
        kind: the Arrow type of the joined column.
    """

    own: tuple[Node, ...]
    other: tuple[Node, ...]
    value: Node | None
    where: Node | None
    order: Node | None
    kind: pa.DataType

    @property
    def over_rows(self) -> tuple[Node, ...]:
        """All expressions over rows."""
        return (*self.other, *(one for one in (self.value, self.where, self.order) if one is not None))


def parts_of(definition: JoinDefinition) -> Parts:
    """The expressions of a definition, and its type. Raises :class:`~transforms.errors.DataError` for a document that is not one."""
    own, other = (tuple(component_from_document(dict(side)) for side in sides) for sides in zip(*((key.own, key.other) for key in definition.keys), strict=True))  # fmt: skip
    value, where, order = (None if one is None else component_from_document(dict(one)) for one in (definition.value, definition.where, definition.order))  # fmt: skip
    return Parts(own, other, value, where, order, arrow_type(column_type(definition)))
