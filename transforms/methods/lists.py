"""What an expression over lists offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods

if TYPE_CHECKING:
    from transforms.expression import Expr


class ListMethods(Methods):
    """Lists as sets and as sequences."""

    __slots__ = ()

    def unique(self) -> Expr:
        """Distinct items in order of first occurrence."""
        return self._apply("unique")

    def head(self, n: int) -> Expr:
        """The first ``n`` items."""
        return self._apply("head", n=n)

    def count(self) -> Expr:
        """How many items."""
        return self._apply("count")

    def __and__(self, other: Expr) -> Expr:
        return self._apply("intersect", other)

    def __or__(self, other: Expr) -> Expr:
        return self._apply("union", other)
