"""What the families of methods share: applying an operator to the expression itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.graph import Node
from transforms.types import ColumnType

if TYPE_CHECKING:
    from transforms.expression import Expr, Value


class Methods:
    """A family of methods of :class:`~transforms.expression.Expr`, which is the only class that inherits it."""

    __slots__ = ()

    node: Node

    @property
    def type(self) -> ColumnType:
        """The column type this expression yields."""
        return self.node.type

    def _apply(self, op: str, *others: Expr | Value, **params: object) -> Expr:
        """The operator over this expression and others; a plain value becomes a literal of a fitting type."""
        from transforms.expression import apply, operand

        return apply(op, self._self(), *(operand(other, self._self()) for other in others), **params)

    def _apply_after(self, op: str, first: Expr | Value) -> Expr:
        """The operator with this expression as its second argument, as in ``1 - price``."""
        from transforms.expression import apply, operand

        return apply(op, operand(first, self._self()), self._self())

    def _self(self) -> Expr:
        return self  # type: ignore[return-value]
