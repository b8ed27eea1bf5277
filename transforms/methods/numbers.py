"""What an expression over numbers offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods
from transforms.types import DType, Ragged

if TYPE_CHECKING:
    from transforms.expression import Expr, Value


class NumberMethods(Methods):
    """Numbers."""

    __slots__ = ()

    def log1p(self) -> Expr:
        """log(1 + x)."""
        return self._apply("log1p")

    def clip(self, low: float, high: float) -> Expr:
        """Values held within [low, high]."""
        return self._apply("clip", low=low, high=high)

    def scale(self, factor: float, offset: float = 0.0) -> Expr:
        """x · factor + offset."""
        return self._apply("scale", factor=factor, offset=offset)

    def bucketize(self, boundaries: list[float] | tuple[float, ...]) -> Expr:
        """The index of the interval a value falls in; a boundary belongs to the interval on its right."""
        return self._apply("bucketize", boundaries=tuple(float(boundary) for boundary in boundaries))

    def fill_null(self, value: Value) -> Expr:
        """``value`` where this is null."""
        if isinstance(value, int) and not isinstance(value, bool) and self.type.dtype in {DType.FLOAT32, DType.FLOAT64}:
            value = float(value)
        return self._apply("fill_null", value=value)

    def cast(self, dtype: DType | str) -> Expr:
        """The same value as another element type."""
        return self._apply("cast", dtype=str(dtype))

    def __add__(self, other: Expr | Value) -> Expr:
        return self._apply("add", other)

    def __radd__(self, other: Value) -> Expr:
        return self._apply_after("add", other)

    def __sub__(self, other: Expr | Value) -> Expr:
        if isinstance(self.type, Ragged):
            return self._apply("difference", other)
        return self._apply("subtract", other)

    def __rsub__(self, other: Value) -> Expr:
        return self._apply_after("subtract", other)

    def __mul__(self, other: Expr | Value) -> Expr:
        return self._apply("multiply", other)

    def __rmul__(self, other: Value) -> Expr:
        return self._apply_after("multiply", other)

    def __truediv__(self, other: Expr | Value) -> Expr:
        return self._apply("divide", other)

    def __rtruediv__(self, other: Value) -> Expr:
        return self._apply_after("divide", other)
