"""Computes a joined column from the events of a table and the rows of another one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.errors import DataError, InputError
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node, component_from_document
from transforms.joins.definition import Aggregate, JoinDefinition, column_type
from transforms.kernels.histories import (
    Folds,
    History,
    first_rows,
    folds,
    history,
    last_rows,
    latest_rows,
    window_states,
)
from transforms.types import ColumnType, arrow_type

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def joined_column(
    definition: JoinDefinition, events: pa.Table, event_time: str, rows: pa.Table, row_time: str
) -> pa.Array:
    """The joined column of these events, row i for event i, in the Arrow layout of its type.

    A function of the set of rows and of each event alone: neither the order of rows nor other events change a bit.

    Args:
        events: their raw columns with the times ``event_time``, timestamps.
        rows: those of the other table, with their times ``row_time``. Rows that no event sees may be left out.

    Raises :class:`DataError` for an operator that fails, and what :meth:`~transforms.execution.plan.Plan.run` raises.
    """
    kind = column_type(definition)
    own = _computed({f"key {k}": one.own for k, one in enumerate(definition.keys)}, events)
    named = {f"key {k}": one.other for k, one in enumerate(definition.keys)}
    named |= {name: one for name, one in (("value", definition.value), ("where", definition.where), ("order", definition.order)) if one is not None}  # fmt: skip
    other = _computed(named, rows)
    places, codes = _codes(own, other, len(definition.keys))
    time = _micros(rows[row_time])
    is_used = (codes >= 0) & (time > _LEAST)
    if "where" in other:
        is_used &= np.asarray(pc.fill_null(other["where"], False), bool)
    known = np.minimum(time, _MOST - definition.available_after_micros) + definition.available_after_micros
    if definition.known_at:
        at = _micros(rows[definition.known_at])
        is_used &= at > _LEAST
        known = np.maximum(known, at)
    order = _order(codes, time, other, is_used)
    values = other["value"].take(pa.array(order)) if "value" in other else None
    starts = np.searchsorted(codes[order], np.arange(int(codes.max(initial=-1)) + 2)).astype(np.int64)
    made = history(starts, np.ascontiguousarray(time[order]), np.ascontiguousarray(known[order]))
    low, high, seen = _bounds(definition, _micros(events[event_time]), places, len(starts) - 1)
    return _aggregated(definition, kind, made, values, (seen, low, high))


def _computed(documents: Mapping[str, Mapping[str, object]], table: pa.Table) -> dict[str, pa.Array]:
    """Components by name over a table."""
    nodes: dict[str, Node] = {name: component_from_document(dict(one)) for name, one in documents.items()}
    found = compile_plan(nodes).run(table)
    for name, failure in found.failures.items():
        raise DataError("an expression of a join must not fail", where=name, value=str(failure))
    return found.columns


def _codes(own: Mapping[str, pa.Array], other: Mapping[str, pa.Array], keys: int) -> tuple[Array, Array]:
    """The number of each event's and of each row's key; -1 for one with a null. Equal keys have equal numbers."""
    events, rows = np.zeros(len(own["key 0"]), np.int64), np.zeros(len(other["key 0"]), np.int64)
    for k in range(keys):
        mine, theirs = own[f"key {k}"], other[f"key {k}"]
        if mine.type != theirs.type:
            raise InputError("the sides of a key must have one type", where=f"key {k + 1}", value=f"{mine.type} and {theirs.type}",
                             next_step="cast one of them")  # fmt: skip
        known = pc.unique(pa.chunked_array([mine, theirs])).drop_null()
        places = [np.asarray(pc.fill_null(pc.index_in(one, known), -1), np.int64) for one in (mine, theirs)]
        events, rows = (_combined(codes, each, len(known)) for codes, each in zip((events, rows), places, strict=True))
        events, rows = _dense(events, rows)
    return events, rows


def _combined(codes: Array, places: Array, size: int) -> Array:
    return np.where((codes < 0) | (places < 0), -1, codes * size + places)


def _dense(events: Array, rows: Array) -> tuple[Array, Array]:
    """The same numbers from 0 on, without gaps."""
    known = np.unique(np.concatenate([events, rows]))
    known = known[known >= 0]
    return tuple(np.where(each < 0, -1, np.searchsorted(known, each)).astype(np.int64) for each in (events, rows))  # type: ignore[return-value]


def _micros(times: pa.ChunkedArray | pa.Array) -> Array:
    """Times as microseconds since 1970; a null as the least number, which no event sees and no event is at."""
    whole = times.combine_chunks() if isinstance(times, pa.ChunkedArray) else times
    if not pa.types.is_timestamp(whole.type):
        raise DataError("the time of a join must be a column of timestamps", value=str(whole.type))
    zoned = whole.cast(pa.timestamp("us", whole.type.tz), safe=False)
    return np.asarray(pc.fill_null(zoned.cast(pa.int64()), _LEAST), np.int64)


def _order(codes: Array, time: Array, other: Mapping[str, pa.Array], is_used: Array) -> Array:
    """The used rows by key, time, the order of equal times, and the bytes of the value: never by their place in a file."""
    ties = [_ranks(other[name]) for name in ("value", "order") if name in other]
    order = np.lexsort((*ties, time, codes))
    return order[is_used[order]].astype(np.int64)


def _ranks(values: pa.Array) -> Array:
    """Numbers in the order of values: nulls first, then by bytes of texts and by numbers; NaN last, -0.0 before 0.0."""
    if pa.types.is_floating(values.type):
        bits = np.asarray(values.fill_null(0.0)).astype(np.float64).view(np.int64)
        ranked = np.where(bits < 0, np.int64(_MOST) - (bits & _MOST) - np.int64(_MOST), bits)
        return np.where(np.asarray(values.is_null()), _LEAST, ranked)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        ranks = pc.rank(values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary()), "ascending", null_placement="at_start", tiebreaker="dense")  # fmt: skip
        return np.asarray(ranks).astype(np.int64)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), _LEAST), np.int64)


def _bounds(definition: JoinDefinition, at: Array, places: Array, keys: int) -> tuple[Array, Array, Array]:
    """The window of each event, and its key; -1 for an event without a time or a key."""
    seen = np.where((at > _LEAST) & (places < keys), places, -1)
    equal = 1 if definition.includes_equal else 0
    high = np.minimum(at, _MOST - equal) + equal
    window = definition.window_micros
    low = np.full(len(at), _LEAST) if window is None else np.maximum(at, _LEAST + window) - window
    return low, high, seen


def _aggregated(
    definition: JoinDefinition,
    kind: ColumnType,
    made: History,
    values: pa.Array | None,
    seen_by: tuple[Array, Array, Array],
) -> pa.Array:
    rows = len(made.time)
    valid = np.ones(rows, bool) if values is None else np.asarray(values.is_valid(), bool)
    match definition.aggregate:
        case Aggregate.LATEST | Aggregate.FIRST:
            assert values is not None
            take = latest_rows if definition.aggregate is Aggregate.LATEST else first_rows
            found = take(made, valid, *seen_by)
            return values.take(pa.array(found, mask=found < 0))
        case Aggregate.LAST:
            assert values is not None
            lengths, taken = last_rows(made, valid, *seen_by, definition.rows)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values.take(pa.array(taken))).cast(arrow_type(kind))  # fmt: skip
    numbers = np.zeros(rows) if values is None else np.asarray(values.cast(pa.float64()).fill_null(0.0), np.float64)
    state: Folds = folds(made, numbers, valid)
    count, total, least, most = window_states(made, state, *seen_by)
    return _finished(definition, count, total, least, most)


def _finished(definition: JoinDefinition, count: Array, total: Array, least: Array, most: Array) -> pa.Array:
    is_empty = count == 0
    match definition.aggregate:
        case Aggregate.COUNT:
            return pa.array(count, pa.int64())
        case Aggregate.SUM:
            return pa.array(total, pa.float64())
        case Aggregate.MEAN:
            return pa.array(total / np.maximum(count, 1), pa.float64(), mask=is_empty)
        case Aggregate.RATIO:
            add, to = definition.prior
            below = count + to
            return pa.array((total + add) / np.where(below > 0, below, 1.0), pa.float64(), mask=below <= 0)
        case Aggregate.MIN:
            return pa.array(least, pa.float64(), mask=is_empty)
        case _:
            return pa.array(most, pa.float64(), mask=is_empty)
