"""A joined column as a node: a raw column of the events' table, with the definition that says how it is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from transforms.graphs.graph import Node, RawColumn, raw_columns, topological
from transforms.joins.definition import JoinDefinition, column_type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JoinedColumn(RawColumn):
    """A raw column whose values follow another table.

    Its name holds the digest of its definition. So it is equal to the plain raw column of that name, and stored components hold that one.
    """

    definition: JoinDefinition

    @classmethod
    def of(cls, definition: JoinDefinition) -> JoinedColumn:
        """The column of a definition. Raises :class:`~transforms.errors.InputError` for parts that do not fit together."""
        return cls(column_type(definition), definition.column, definition)


def joined_columns_of(roots: Iterable[Node]) -> dict[str, JoinDefinition]:
    """The definitions that components hold, by column name."""
    return {node.name: node.definition for node in topological(roots) if isinstance(node, JoinedColumn)}


def definitions_read(component: Node, written: Node) -> dict[str, JoinDefinition]:
    """The definitions of the columns that a canonical component reads, from the expression as it was written.

    A canonical form may share a leaf with another expression, in which the column is a plain one.
    """
    names = {column.name for column in raw_columns(component)}
    return {name: one for name, one in joined_columns_of([written]).items() if name in names}
