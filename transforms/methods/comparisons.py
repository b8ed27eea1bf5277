"""Comparing expressions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from transforms.errors import InputError
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

    def __invert__(self) -> Expr:
        return self._apply("not")

    def is_in(self, values: Collection[int] | Collection[str]) -> Expr:
        """Whether the value is one of ``values``, whose order and repetition mean nothing."""
        if isinstance(values, str):
            raise InputError("is_in takes several values", value=values, next_step=f"write [{values!r}]")
        texts = sorted({value for value in values if isinstance(value, str)})
        whole = [value for value in values if not isinstance(value, str)]
        if all(type(value) is int for value in whole):
            whole = sorted(set(whole))
        return self._apply("is_in", whole=tuple(whole), texts=tuple(texts))
