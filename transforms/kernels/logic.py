"""Kernels of three-valued logic and of membership. Null slots hold False."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of
from transforms.columns.columns import Column, Numbers, Strings
from transforms.errors import DataError
from transforms.kernels.arrow import to_arrow
from transforms.kernels.numbers import numbers
from transforms.types import Dense, DType


def and_(*columns: Column) -> Column:
    """Whether all hold; known as soon as one is false."""
    parts = [_condition(column) for column in columns]
    holds = reduce(np.logical_and, [part.values for part in parts])
    if all(part.valid is None for part in parts):
        return Numbers(holds)
    return Numbers(holds, reduce(np.logical_or, [_known(part) & ~part.values for part in parts], _all_known(parts)))


def or_(*columns: Column) -> Column:
    """Whether one holds; known as soon as one is true."""
    parts = [_condition(column) for column in columns]
    holds = reduce(np.logical_or, [part.values for part in parts])
    if all(part.valid is None for part in parts):
        return Numbers(holds)
    return Numbers(holds, holds | _all_known(parts))


def not_(column: Column) -> Column:
    """Whether it does not hold."""
    return Numbers(~numbers(column))


def is_in(column: Column, *, whole: tuple[int, ...], texts: tuple[str, ...]) -> Column:
    """Whether each value is one of those given."""
    if isinstance(column, Strings):
        return _texts_in(column, texts)
    return Numbers(np.isin(numbers(column), np.array(whole, np.int64)))


def _texts_in(column: Strings, texts: tuple[str, ...]) -> Column:
    array = to_arrow(Strings(column.data, column.starts, column.ends), Dense(DType.STRING))
    found = pc.is_in(array, value_set=pa.array(texts, pa.string()))
    return Numbers(numpy_of(found))


def _condition(column: Column) -> Numbers:
    if not isinstance(column, Numbers):
        raise DataError("the argument of a logic kernel must be bools", value=type(column).__name__)
    return column


def _known(part: Numbers) -> Array:
    return np.ones(len(part), np.bool_) if part.valid is None else part.valid


def _all_known(parts: list[Numbers]) -> Array:
    known: Array = reduce(np.logical_and, [_known(part) for part in parts])
    return known
