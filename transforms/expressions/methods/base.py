"""The base class of the families of methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from transforms.expressions.apply import Value, operand_node
from transforms.graphs.build import operation
from transforms.graphs.graph import Node
from transforms.types import ColumnType


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Methods:
    """A family of methods of :class:`~transforms.expressions.expression.Expr`, which is the only class that inherits it."""

    node: Node

    @property
    def type(self) -> ColumnType:
        """The column type of this expression."""
        return self.node.type

    def _apply(self, op: str, *others: Self | Value, **params: object) -> Self:
        """The operator over this expression and others; a plain value becomes a literal of a fitting type."""
        return type(self)(operation(op, [self.node, *map(self._operand, others)], params))

    def _apply_after(self, op: str, first: Self | Value) -> Self:
        """The operator with this expression as its second argument, as in ``1 - price``."""
        return type(self)(operation(op, [self._operand(first), self.node], {}))

    def _operand(self, value: Self | Value) -> Node:
        return value.node if isinstance(value, Methods) else operand_node(value, self.node)
