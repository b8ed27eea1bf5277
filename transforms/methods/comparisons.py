"""Comparing expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods

if TYPE_CHECKING:
    from transforms.expression import Expr, Value


class ComparisonMethods(Methods):
    """Comparisons and boolean logic."""

    __slots__ = ()

    def __eq__(self, other: Expr | Value) -> Expr:  # type: ignore[override]
        return self._apply("equal", other)

    def __ne__(self, other: Expr | Value) -> Expr:  # type: ignore[override]
        return self._apply("not_equal", other)

    def __lt__(self, other: Expr | Value) -> Expr:
        return self._apply("less", other)

    def __le__(self, other: Expr | Value) -> Expr:
        return self._apply("less_equal", other)

    def __gt__(self, other: Expr | Value) -> Expr:
        return self._apply("greater", other)

    def __ge__(self, other: Expr | Value) -> Expr:
        return self._apply("greater_equal", other)
