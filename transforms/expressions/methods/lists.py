"""Methods of expressions over lists."""

from __future__ import annotations

from typing import Self

import numpy as np

from transforms.expressions.apply import Value
from transforms.expressions.methods.base import Methods
from transforms.operators.plain_values import as_float64
from transforms.types import DType


class ListMethods(Methods):
    """Lists as sets and as sequences. ``&`` and ``|`` over booleans are logic, in :mod:`transforms.operators.logic`."""

    __slots__ = ()

    def unique(self) -> Self:
        """Distinct items in order of first occurrence."""
        return self._apply("unique")

    def head(self, n: int) -> Self:
        """The first ``n`` items."""
        return self._apply("head", n=n)

    def tail(self, n: int) -> Self:
        """The last ``n`` items."""
        return self._apply("tail", n=n)

    def count(self) -> Self:
        """The number of items."""
        return self._apply("count")

    def sort(self, *, descending: bool = False) -> Self:
        """The items in order; text by its UTF-8 bytes, NaN last."""
        return self._apply("sort", descending=descending)

    def filter(self, mask: Self) -> Self:
        """The items where ``mask`` holds, as in ``items.filter(items > 3)``."""
        return self._apply("filter", mask)

    def pad(self, size: int, value: Value) -> Self:
        """A vector of the first ``size`` items, filled up with ``value``."""
        return self._apply("pad", size=size, value=self._item(value))

    def positions(self, limit: int = 0) -> Self:
        """0, 1, 2, ... for the items; ``limit`` makes ids of as many buckets, the last for all that follow."""
        return self._apply("positions", limit=limit)

    def zip(self, other: Self, joiner: str) -> Self:
        """The items of two lists joined one by one, as far as the shorter list goes."""
        return self._apply("zip", other, joiner=joiner)

    def contains_item(self, value: Value) -> Self:
        """Whether an item equals ``value``."""
        return self._apply("contains_item", value=self._item(value))

    def session_index(self, gap_secs: float) -> Self:
        """The session of each timestamp, from 0; more than ``gap_secs`` since the one before begins a new one."""
        return self._apply("session_index", gap_secs=gap_secs)

    def gaps_secs(self) -> Self:
        """Seconds from the timestamp before to each; 0 for the first."""
        return self._apply("gaps_secs")

    def overlap_count(self, other: Self) -> Self:
        """The number of distinct values in both lists."""
        return self._apply("overlap_count", other)

    def jaccard(self, other: Self) -> Self:
        """Distinct values in both lists, as a share of those in either."""
        return self._apply("jaccard", other)

    def _item(self, value: Value) -> Value:
        """A plain number as an item of this list; a float of its width in a list of floats."""
        if self.type.dtype not in {DType.FLOAT32, DType.FLOAT64} or isinstance(value, bool | str):
            return value
        if not isinstance(value, int | float):
            return value  # the operator refuses it
        number = as_float64(value, f"an item of {self.type}")
        with np.errstate(over="ignore"):
            return float(np.float32(number)) if self.type.dtype is DType.FLOAT32 else number

    def __and__(self, other: Self) -> Self:
        return self._apply("and" if self.type.dtype is DType.BOOL else "intersect", other)

    def __or__(self, other: Self) -> Self:
        return self._apply("or" if self.type.dtype is DType.BOOL else "union", other)
