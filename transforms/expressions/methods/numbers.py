"""Methods of expressions over numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import Self

from transforms.expressions.apply import Value
from transforms.expressions.methods.base import Methods
from transforms.operators.plain_values import as_float64, as_values
from transforms.time_range import microseconds
from transforms.types import DType, Ragged

#: The types that ``to_number`` reads from text; all others are casts.
_FROM_TEXT = (DType.INT64, DType.FLOAT32, DType.FLOAT64)


class NumberMethods(Methods):
    """Arithmetic, rounding, ranges and conversion of numbers."""

    __slots__ = ()

    def log1p(self) -> Self:
        """log(1 + x)."""
        return self._apply("log1p")

    def log(self) -> Self:
        """log(x)."""
        return self._apply("log")

    def sign_log(self) -> Self:
        """log(1 + |x|) with the sign of x."""
        return self._apply("sign_log")

    def sqrt(self) -> Self:
        """The square root."""
        return self._apply("sqrt")

    def sin_periodic(self, period: float) -> Self:
        """sin(2 pi x / period)."""
        return self._apply("sin_periodic", period=period)

    def cos_periodic(self, period: float) -> Self:
        """cos(2 pi x / period)."""
        return self._apply("cos_periodic", period=period)

    def abs(self) -> Self:
        """|x|."""
        return self._apply("abs")

    def floor(self) -> Self:
        """The greatest whole number that is not above x."""
        return self._apply("floor")

    def ceil(self) -> Self:
        """The least whole number that is not below x."""
        return self._apply("ceil")

    def clip(self, low: float = -math.inf, high: float = math.inf) -> Self:
        """Values limited to [low, high]; each bound is optional."""
        return self._apply("clip", low=low, high=high)

    def scale(self, factor: float, offset: float = 0.0) -> Self:
        """x · factor + offset."""
        return self._apply("scale", factor=factor, offset=offset)

    def min_max(self, low: float, high: float, *, clip: bool = True) -> Self:
        """(x - low) / (high - low), held within [0, 1] if ``clip``."""
        return self._apply("min_max", low=low, high=high, clip=clip)

    def standardize(self, mean: float, standard_deviation: float) -> Self:
        """(x - mean) / standard_deviation; a deviation of 0 gives 0."""
        return self._apply("standardize", mean=mean, standard_deviation=standard_deviation)

    def bucketize(self, boundaries: Sequence[float]) -> Self:
        """The index of the interval a value falls in; a boundary belongs to the interval on its right."""
        where = "operator bucketize, parameter boundaries"
        return self._apply("bucketize", boundaries=as_values(boundaries, where, "[10, 100]"))

    def fill_null(self, value: Value) -> Self:
        """``value`` where this is null."""
        if isinstance(value, int) and not isinstance(value, bool) and self.type.dtype in {DType.FLOAT32, DType.FLOAT64}:
            value = as_float64(value, "operator fill_null, parameter value")
        if isinstance(value, str | date) and self.type.dtype is DType.TIMESTAMP:
            value = microseconds(value)
        return self._apply("fill_null", value=value)

    def fill_nan(self, value: float) -> Self:
        """``value`` where this is NaN."""
        return self._apply("fill_nan", value=value)

    def is_nan(self) -> Self:
        """Whether this is NaN."""
        return self._apply("is_nan")

    def is_null(self) -> Self:
        """Whether there is no value."""
        return self._apply("is_null")

    def missing_indicator(self) -> Self:
        """The id 1 where there is no value, else 0."""
        return self._apply("missing_indicator")

    def cast(self, dtype: DType | str) -> Self:
        """The same value as another element type; a number that a text writes, null where it writes none."""
        if self.type.dtype is DType.STRING and dtype in _FROM_TEXT:
            return self._apply("to_number", dtype=dtype)
        return self._apply("cast", dtype=dtype)

    def __add__(self, other: Self | Value) -> Self:
        return self._apply("add", other)

    def __radd__(self, other: Value) -> Self:
        return self._apply_after("add", other)

    def __sub__(self, other: Self | Value) -> Self:
        if isinstance(self.type, Ragged) and isinstance(getattr(other, "type", None), Ragged):
            return self._apply("difference", other)
        return self._apply("subtract", other)

    def __rsub__(self, other: Value) -> Self:
        return self._apply_after("subtract", other)

    def __mul__(self, other: Self | Value) -> Self:
        return self._apply("multiply", other)

    def __rmul__(self, other: Value) -> Self:
        return self._apply_after("multiply", other)

    def __truediv__(self, other: Self | Value) -> Self:
        return self._apply("divide", other)

    def __rtruediv__(self, other: Value) -> Self:
        return self._apply_after("divide", other)

    def __mod__(self, n: int) -> Self:
        return self._apply("modulo", n=n)

    def __neg__(self) -> Self:
        return self._apply("multiply", -1)

    def __abs__(self) -> Self:
        return self._apply("abs")
