"""The aggregates of the rows that events see, as columns of events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.positions import POSITION_MAX, check_positions
from transforms.durations import MOST_MICROS
from transforms.joins.column_names import Aggregate
from transforms.joins.definition import JoinDefinition
from transforms.joins.histories import Histories, History, Window
from transforms.joins.parts import Parts
from transforms.joins.ranks import LEAST as NAN_RANK
from transforms.joins.ranks import number_ranks, values_of
from transforms.joins.visibility import SECOND_US, seen_at, window_end
from transforms.kernels.histories import Trie
from transforms.kernels.history_distinct import distinct_values, hashes_of
from transforms.kernels.history_latest import latest_in_time
from transforms.kernels.history_rows import known_rows, last_of_ranges, list_offsets, one_of_ranges, valid_before
from transforms.kernels.history_states import (
    COUNT,
    LEAST,
    MOST,
    SUM,
    Values,
    decayed_to,
    new_climbs,
    node_states,
    write_states,
)


def aggregated(definition: JoinDefinition, parts: Parts, made: Histories) -> pa.Array:
    """The column of a definition."""
    if definition.aggregate is Aggregate.LATEST and not definition.known_at and made.are_in_time(parts):
        latest = _latest_in_time(definition, parts, made)
        if latest is not None:
            return latest
    history = made.of(definition, parts)
    window = history.window(definition)
    match definition.aggregate:
        case Aggregate.LATEST | Aggregate.FIRST:
            return _one_row(definition, parts, made, history, window)
        case Aggregate.LAST | Aggregate.AGES:
            return _last_rows(definition, parts, made, history, window)
        case Aggregate.DISTINCT:
            return _distinct(definition, parts, made, history, window)
        case Aggregate.COUNT if history.known is None:
            return pa.array(_of_events(made, history, np.maximum(window.end - window.first, 0)), pa.int64())
    return _finished(definition, parts, made, _states(definition, parts, made, history, window))


def _of_events(made: Histories, history: History, found: Array) -> Array:
    """Numbers of sorted events in the order of the table; 0 for events that have no key or time."""
    out = np.zeros(len(made.events.time), found.dtype)
    out[history.events.order] = found
    return out


def _latest_in_time(definition: JoinDefinition, parts: Parts, made: Histories) -> pa.Array | None:
    """The column of the latest rows where rows and events come in the order of time; None if rows of one key and time must be ordered."""
    assert parts.value is not None
    values, keys = made.rows.columns[parts.value.identity], made.keys(parts)
    used = np.asarray(values.is_valid(), bool) if values.null_count else np.empty(0, bool)
    if parts.where is not None:
        is_kept = np.asarray(pc.fill_null(made.rows.columns[parts.where.identity], False), bool)
        used = is_kept & used if len(used) else is_kept
    at = seen_at(definition, made.events.time)
    found, is_tied = latest_in_time(keys.rows, made.rows.time, used, keys.events, at, keys.size, window_end(definition), definition.window_micros is None, -(definition.window_micros or 0), definition.hop_micros)  # fmt: skip
    return None if is_tied else _taken(values, pa.array(found, mask=found < 0))


def _one_row(definition: JoinDefinition, parts: Parts, made: Histories, history: History, window: Window) -> pa.Array:
    assert parts.value is not None
    values = made.rows.columns[parts.value.identity]
    is_latest = definition.aggregate is Aggregate.LATEST
    order = history.order(parts.order, parts.value)
    first, end, rows = _ranges(history, window, order, values, 1, is_latest)
    taken = one_of_ranges(first, end, rows, history.events.order, len(made.events.time), is_latest)
    return _taken(values, pa.array(taken, mask=taken < 0))


def _taken(values: pa.Array, rows: pa.Array) -> pa.Array:
    """The values of rows. Raises :class:`~transforms.errors.DataError` for texts of more bytes than one column can hold."""
    if pa.types.is_string(values.type):
        lengths = pc.binary_length(values)
        if (pc.max(lengths).as_py() or 0) * len(rows) > POSITION_MAX:
            check_positions(pc.sum(lengths.take(rows)).as_py() or 0, "bytes of texts of a joined column")
    return values.take(rows)


def _last_rows(definition: JoinDefinition, parts: Parts, made: Histories, history: History, window: Window) -> pa.Array:
    values = None if parts.value is None else made.rows.columns[parts.value.identity]
    order = history.order(parts.order, parts.value)
    first, end, rows = _ranges(history, window, order, values, definition.rows, True)
    end = _of_events(made, history, end)
    offsets = list_offsets(_of_events(made, history, first), end, definition.rows)
    check_positions(int(offsets[-1]), "items of lists of a joined column")
    items = rows[last_of_ranges(end, offsets)]
    if definition.aggregate is Aggregate.AGES:
        event = np.repeat(made.events.time, np.diff(offsets))
        listed = pa.array((event - made.rows.time[items]).astype(np.float64) / SECOND_US, pa.float64())
    else:
        assert values is not None
        listed = _taken(values, pa.array(items))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), listed).cast(parts.kind)


def _ranges(
    history: History, window: Window, order: Array, values: pa.Array | None, most: int, from_end: bool
) -> tuple[Array, Array, Array]:
    """Of each event the range of rows with a value that it sees, and the positions of these rows in the table."""
    valid = np.ones(len(order), bool) if values is None else np.asarray(values.is_valid(), bool)[order]
    if history.known is not None:
        offsets, taken = known_rows(history.trie_in(order), valid, window.first, window.end, history.root, window.before, most, from_end=from_end)  # fmt: skip
        return offsets[:-1], offsets[1:], order[taken]
    if values is None or not values.null_count:
        return window.first, window.end, order
    before = valid_before(valid)
    return before[window.first], before[window.end], order[valid]


def _distinct(definition: JoinDefinition, parts: Parts, made: Histories, history: History, window: Window) -> pa.Array:
    assert parts.value is not None
    column = made.rows.columns[parts.value.identity]
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    coded = (column if is_text else pa.array(number_ranks(column), mask=np.asarray(column.is_null(), bool))).dictionary_encode()  # fmt: skip
    order = history.rows.order
    codes = np.asarray(pc.fill_null(coded.indices, -1)).astype(np.int64)[order]
    known = np.empty(0, np.int64) if history.known is None else history.known[order]
    found = distinct_values(history.rows.starts, history.events.starts, *window, codes, known, hashes_of(coded.dictionary), definition.exact_most, definition.precision)  # fmt: skip
    return pa.array(_of_events(made, history, found), pa.int64())


def sharing_order(definition: JoinDefinition, parts: Parts) -> tuple[str, ...]:
    """A name by which columns are computed one after the other that share what is made for them, and longer windows after shorter ones."""
    history = (*(one.identity for one in (*parts.other, *parts.own)), "" if parts.where is None else parts.where.identity, definition.known_at)  # fmt: skip
    value = "" if parts.value is None else parts.value.identity
    window = MOST_MICROS + 1 if definition.window_micros is None else definition.window_micros
    return (*history, value, *map(str, _end_name(definition)), f"{window:020d} {definition.hop_micros:020d}")


def _end_name(definition: JoinDefinition) -> tuple[object, ...]:
    return definition.half_life_micros, definition.as_of, definition.available_after_micros, definition.includes_equal


def _states(definition: JoinDefinition, parts: Parts, made: Histories, history: History, window: Window) -> Array:
    """The states of events, in the order of the table."""
    value = None if parts.value is None else parts.value.identity

    def make() -> Array:
        trie, values, nodes = made.nodes.of((id(history), value, definition.half_life_micros), lambda: _nodes(definition, parts, made, history))  # fmt: skip
        climbs = made.climbs.of((id(history), value, *_end_name(definition)), lambda: new_climbs(len(window.first)))
        out = np.zeros((len(made.events.time), 4), np.int64)
        made.in_parts(lambda begin, stop: write_states(trie, values, nodes, climbs, *window[:2], history.root, window.before, begin, stop, history.events.order, out), len(window.first))  # fmt: skip
        return out

    return made.states.of(
        (id(history), value, *_end_name(definition), definition.window_micros, definition.hop_micros), make
    )


def _nodes(definition: JoinDefinition, parts: Parts, made: Histories, history: History) -> tuple[Trie, Values, Array]:
    """The trie of a history in the order of a value, its values, and the states of its nodes."""
    order = history.order(parts.value)
    values = _values(made.rows.columns, None if parts.value is None else parts.value.identity, order)
    if definition.half_life_micros:
        values = values._replace(high=history.rows.time, half_life=float(definition.half_life_micros))
    trie = history.trie_in(order)
    return trie, values, node_states(trie, values)


def _values(columns: Mapping[str, pa.Array], value: str | None, order: Array) -> Values:
    if value is None:
        none = np.zeros(len(order), np.int64)
        return Values(np.ones(len(order)), none, none, np.ones(len(order), bool))
    column = columns[value]
    low = high = number_ranks(column)
    if pa.types.is_floating(column.type):
        numbers = np.asarray(column.cast(pa.float64()).fill_null(0.0))
        low = np.where(np.isnan(numbers), NAN_RANK, low)
    else:
        numbers = high.astype(np.float64)
    return Values(numbers[order], low[order], high[order], np.asarray(column.is_valid(), bool)[order])


def _finished(definition: JoinDefinition, parts: Parts, made: Histories, states: Array) -> pa.Array:
    count, total = states[:, COUNT], states.view(np.float64)[:, SUM]
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
        case Aggregate.DECAYED:
            at = seen_at(definition, made.events.time)
            return pa.array(decayed_to(at, states, total, float(definition.half_life_micros)), pa.float64())
    return values_of(states[:, LEAST if definition.aggregate is Aggregate.MIN else MOST], is_empty, parts.kind)
