"""Kernels that choose between columns. They handle nulls themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import one_buffer, positions
from transforms.kernels.list_items import check_same_lengths
from transforms.kernels.lists import emptied, spread, take_lists, without_nulls
from transforms.kernels.numbers import numbers
from transforms.operators.declaration import Scalar


def if_else(cond: Column, a: Column, b: Column) -> Column:
    """The value of ``a`` where cond is true, ``b`` where false; null where cond is null; of lists item by item."""
    lists = [column for column in (cond, a, b) if isinstance(column, RaggedItems)]
    if isinstance(a, RaggedItems) and isinstance(b, RaggedItems) and not isinstance(cond, RaggedItems):
        return _whole_lists(_dense(cond), a, b)
    if lists:
        return _over_items(lists, cond, a, b)
    chosen = _choose(numbers(cond), _dense(a), _dense(b))
    return _with_valid(chosen, _and(_valid(cond), chosen.valid))


def _over_items(lists: Sequence[RaggedItems], *columns: Column) -> Column:
    """The choice for each item of lists of equal lengths; dense arguments are repeated, null items dropped."""
    for other in lists[1:]:
        check_same_lengths(
            lists[0].offsets, other.offsets, "another of if_else", "fill the nulls of what makes the lists"
        )
    offsets = lists[0].offsets
    parts = [column.items if isinstance(column, RaggedItems) else spread(column, offsets) for column in columns]
    return without_nulls(RaggedItems(offsets, _dense(if_else(*parts))))


def _whole_lists(cond: Numbers | Strings, a: RaggedItems, b: RaggedItems) -> Column:
    """The whole list of one or the other; the empty list where cond is null."""
    items = _joined(a.items, b.items)
    first, second = a.offsets.astype(np.int64), b.offsets.astype(np.int64)
    both = RaggedItems(np.concatenate([first, second[1:] + first[-1]]), items)
    rows = np.arange(len(cond))
    chosen = take_lists(both, np.where(numbers(cond), rows, rows + len(cond)))
    return chosen if cond.valid is None else emptied(chosen, cond.valid)


def _joined(a: Numbers | Strings, b: Numbers | Strings) -> Numbers | Strings:
    """The items of both, one after the other."""
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        return Numbers(np.concatenate([a.values, b.values]))
    texts = one_buffer([part for part in (a, b) if isinstance(part, Strings)])
    return Strings(texts[0].data, *(np.concatenate(ends) for ends in (
        [positions(text.starts) for text in texts], [positions(text.ends) for text in texts])))  # fmt: skip


def coalesce(*columns: Column) -> Column:
    """The first valid value of each row."""
    result = _dense(columns[-1])
    for column in reversed(columns[:-1]):
        valid = _valid(column)
        taken = np.ones(len(column), np.bool_) if valid is None else valid
        result = _choose(taken, _dense(column), result)
    return result


def fill_null(column: Column, *, value: Scalar) -> Column:
    """``value`` where there is none."""
    dense = _dense(column)
    if dense.valid is None:
        return dense
    if isinstance(dense, Numbers):
        return Numbers(np.where(dense.valid, dense.values, np.array(value).astype(dense.values.dtype)))
    data = np.frombuffer(str(value).encode(), np.uint8)
    rows = len(dense)
    constant = Strings(data, np.zeros(rows, np.int32), np.full(rows, len(data), np.int32))
    return _choose(dense.valid, Strings(dense.data, dense.starts, dense.ends), constant)


def fill_nan(column: Column, *, value: float) -> Column:
    """``value`` where x is NaN."""
    values = numbers(column)
    with np.errstate(over="ignore"):
        fill = np.array(value).astype(values.dtype)
    return Numbers(np.where(np.isnan(values), fill, values))


def is_nan(column: Column) -> Column:
    """Where x is NaN."""
    return Numbers(np.isnan(numbers(column)))


def is_null(column: Column) -> Column:
    """Where there is no value."""
    valid = _valid(column)
    return Numbers(np.zeros(len(column), np.bool_) if valid is None else ~valid)


def missing_indicator(column: Column) -> Column:
    """1 where there is no value."""
    valid = _valid(column)
    return Numbers(np.zeros(len(column), np.int64) if valid is None else (~valid).astype(np.int64))


def _choose(taken: Array, a: Numbers | Strings, b: Numbers | Strings) -> Numbers | Strings:
    valid = None
    if a.valid is not None or b.valid is not None:
        valid = np.where(taken, _all_if_none(a), _all_if_none(b))
    if isinstance(a, Numbers) and isinstance(b, Numbers):
        dtype = np.result_type(a.values.dtype, b.values.dtype)
        return Numbers(np.where(taken, a.values.astype(dtype, copy=False), b.values.astype(dtype, copy=False)), valid)
    if isinstance(a, Strings) and isinstance(b, Strings):
        a, b = one_buffer([a, b])
        starts = np.where(taken, positions(a.starts), positions(b.starts))
        return Strings(a.data, starts, np.where(taken, positions(a.ends), positions(b.ends)), valid)
    raise DataError("text and numbers must not be mixed", value=(type(a).__name__, type(b).__name__))


def _dense(column: Column) -> Numbers | Strings:
    if isinstance(column, Numbers | Strings):
        return column
    raise DataError("the argument of the kernel must be one value per row")


def _valid(column: Column) -> Array | None:
    return _dense(column).valid


def _all_if_none(column: Numbers | Strings) -> Array:
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def _and(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    both: Array = a & b
    return both


def _with_valid(column: Numbers | Strings, valid: Array | None) -> Numbers | Strings:
    if isinstance(column, Numbers):
        return Numbers(column.values, valid)
    return Strings(column.data, column.starts, column.ends, valid)
