"""Comparisons of expressions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from transforms.errors import InputError
from transforms.expressions.apply import Value
from transforms.expressions.methods.base import Methods
from transforms.operators.plain_values import as_values


class ComparisonMethods(Methods):
    """Comparisons and boolean logic."""

    __slots__ = ()

    def __eq__(self, other: Self | Value) -> Self:  # type: ignore[override]
        return self._apply("equal", other)

    def __ne__(self, other: Self | Value) -> Self:  # type: ignore[override]
        return self._apply("not_equal", other)

    def __lt__(self, other: Self | Value) -> Self:
        return self._apply("less", other)

    def __le__(self, other: Self | Value) -> Self:
        return self._apply("less_equal", other)

    def __gt__(self, other: Self | Value) -> Self:
        return self._apply("greater", other)

    def __ge__(self, other: Self | Value) -> Self:
        return self._apply("greater_equal", other)

    def __invert__(self) -> Self:
        return self._apply("not")

    def is_in(self, values: Collection[int] | Collection[str]) -> Self:
        """Whether the value is one of ``values``; their order and repetition have no effect."""
        given = as_values(values, "operator is_in", '["Oslo", "Bergen"]')
        for value in given:
            if not isinstance(value, int | str) or isinstance(value, bool):
                raise InputError("a value of is_in must be an integer or text", where="operator is_in", value="None" if value is None else value,
                                 allowed="int or str", next_step="compare others by ==, and use is_null() for null")  # fmt: skip
        texts = sorted({value for value in given if isinstance(value, str)})
        whole = sorted({int(value) for value in given if isinstance(value, int)})
        return self._apply("is_in", whole=tuple(whole), texts=tuple(texts))
