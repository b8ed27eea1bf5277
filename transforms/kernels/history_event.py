"""What one event sees of the rows of its key, by one pass from the latest row back to the start of its longest window.

The rows that are seen are folded along the trie over the bits of their times, of which only the path to the current row is held: a state is that of
:mod:`transforms.kernels.history_states`, to the last bit, and no trie is made.

Rows of one key are in the order of time. Truth values are bits, as in Arrow's arrays. An array that is not needed is empty.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined
from transforms.kernels.floats import bits_of, from_bits
from transforms.kernels.history_states import COUNT, LEAST, MOST, SUM, combined

#: What the values of rows are: none, whole numbers, floats, truth values.
NO_VALUES, WHOLE, FLOATS, TRUTHS = 0, 1, 2, 3
#: The column of a path beside those of a state.
_SPLIT = 4
#: The most parts of a trie on the path to a row: one for each bit of a time, and the row itself.
_DEPTH = 65
_MAGNITUDE = np.int64((1 << 63) - 1)
#: The rank of NaN where the least value is found, and the time of a row without one.
_NAN_RANK = _NO_TIME = -(1 << 63)
_NO_LEAST, _NO_MOST = (1 << 63) - 1, -(1 << 63)


@inlined
def _bit(bits: Array, row: int) -> int:
    return (int(bits[row >> 3]) >> (row & 7)) & 1


@inlined
def _is_seen(row: int, valid: Array, used: Array, known: Array, before: int) -> bool:
    """Whether a row within the window has a value, is used, and is known by then."""
    if len(valid) and not _bit(valid, row):
        return False
    if len(used) and not _bit(used, row):
        return False
    return len(known) == 0 or _NO_TIME < known[row] < before


@compiled
def first_from(time: Array, start: int, stop: int, bound: int) -> int:
    """The first of the rows in ``[start, stop)`` whose time is not before a bound, or ``stop``."""
    while start < stop:
        middle = (start + stop) >> 1
        if time[middle] < bound:
            start = middle + 1
        else:
            stop = middle
    return start


@inlined
def _rank(kind: int, whole: Array, truths: Array, row: int) -> int:
    """The rank of a value, as :func:`~transforms.joins.ranks.number_ranks` has it."""
    rank = 0
    if kind == WHOLE:
        rank = whole[row]
    elif kind == FLOATS:
        rank = whole[row] ^ ((whole[row] >> 63) & _MAGNITUDE)
    elif kind == TRUTHS:
        rank = _bit(truths, row)
    return rank


@inlined
def _state_of(row: int, time: Array, kind: int, whole: Array, truths: Array, half_life: float) -> tuple[int, float, int, int]:  # fmt: skip
    """The state of a row alone."""
    low = high = _rank(kind, whole, truths, row)
    number = 1.0 if kind == NO_VALUES else np.float64(high)
    if kind == FLOATS:
        number = from_bits(whole[row])
        if np.isnan(number):
            low = _NAN_RANK
    if half_life > 0:
        high = time[row]
    return 1, number, low, high


@compiled
def _of_one_time(
    first: int, end: int, time: Array, kind: int, whole: Array, truths: Array, valid: Array, used: Array, known: Array, half_life: float, before: int,
) -> tuple[int, float, int, int]:  # fmt: skip
    """The state of the seen rows of one time, folded in the order of their values."""
    rows, of_rows = np.empty(end - first, np.int64), np.empty(end - first, np.int64)
    seen = 0
    for row in range(first, end):
        if _is_seen(row, valid, used, known, before):
            rows[seen], of_rows[seen] = row, _rank(kind, whole, truths, row)
            seen += 1
    state = (0, 0.0, _NO_LEAST, _NO_MOST)
    for place in np.argsort(of_rows[:seen]):
        state = combined(state, _state_of(rows[place], time, kind, whole, truths, half_life), half_life)
    return state


@inlined
def _get(states: Array, at: int) -> tuple[int, float, int, int]:
    return states[at, COUNT], from_bits(states[at, SUM]), states[at, LEAST], states[at, MOST]


@inlined
def _set(states: Array, at: int, state: tuple[int, float, int, int]) -> None:
    states[at, COUNT], states[at, SUM], states[at, LEAST], states[at, MOST] = state[0], bits_of(state[1]), state[2], state[3]  # fmt: skip


@inlined
def _write_whole(path: Array, depth: int, half_life: float, at: int, out: Array) -> None:
    """Write the fold of all parts on a path, of which the last one holds the earliest rows."""
    if depth:
        state = _get(path, depth - 1)
        for part in range(depth - 2, -1, -1):
            state = combined(state, _get(path, part), half_life)
        _set(out, at, state)


def new_path() -> Array:
    """The path of an event before its first row: the state of each part, and the bits in which its times differ from later ones; at the end how far it is."""
    return np.zeros((_DEPTH + 1, 5), np.int64)


@compiled
def write_event_states(
    time: Array, start: int, stop: int, kind: int, whole: Array, truths: Array, valid: Array, used: Array, known: Array, half_life: float,
    lows: Array, last: int, before: int, bounds: Array, begin: int, end: int, tile_states: Array, tile_known: Array, path: Array, is_whole: bool, out: Array,
) -> None:  # fmt: skip
    """Write the states of the rows that an event sees in each of its windows; that of a window without rows is left as it is.

    Rows may come in several calls, later rows first; rows of one time come in one.

    Args:
        time: of each row: int64.
        start: the first row of the key.
        stop: the row after its last one.
        kind: what the values are: :data:`NO_VALUES`, :data:`WHOLE`, :data:`FLOATS` or :data:`TRUTHS`.
        whole: values, or the bits of floats: int64.
        truths: values as bits: uint8.
        valid: which rows have a value, as bits; empty if all have: uint8.
        used: which rows are used, as bits; empty if all are: uint8.
        known: from when on each row is known; empty if all are known at their time: int64.
        half_life: 0, or the microseconds after which a number counts half.
        lows: the first time of each window, none earlier than the next one: int64.
        last: the last time of all windows.
        before: the time before which rows must be known.
        bounds: the first row of each tile and the row after its last one (:mod:`transforms.kernels.history_tiles`); rows may be in none: int64 [tiles, 2].
        begin: the first tile of the key.
        end: the tile after its last one.
        tile_states: of the rows of each tile that are seen at some time: int64, 4 columns.
        tile_known: when all of these rows are known; empty without ``known``: int64.
        path: :func:`new_path`, or as the call with the next later rows has left it.
        is_whole: whether no earlier rows come.
        out: the states of the windows, as :func:`~transforms.kernels.history_states.write_states` has them, zeros at the first call: int64, 4 columns.
    """
    windows = len(lows)
    row = first_from(time, start, stop, last + 1) - 1
    if kind == NO_VALUES and len(valid) == 0 and len(used) == 0 and len(known) == 0 and half_life == 0:
        for window in range(windows):
            out[window, COUNT] += row + 1 - first_from(time, start, row + 1, lows[window])
        return
    depth, window, later = path[_DEPTH, 0], path[_DEPTH, 1], np.uint64(path[_DEPTH, 2])
    tile = end - 1
    while row >= start:
        at = time[row]
        while window < windows and at < lows[window]:
            _write_whole(path, depth, half_life, window, out)
            window += 1
        if window == windows:
            break
        while tile >= begin and bounds[tile, 0] > row:
            tile -= 1
        first, is_tile = row, False
        if tile >= begin and row == bounds[tile, 1] - 1:
            is_tile = time[bounds[tile, 0]] >= lows[window] and (len(known) == 0 or tile_known[tile] < before)
        if is_tile:
            first = bounds[tile, 0]
            state = _get(tile_states, tile)
        else:
            while first > start and time[first - 1] == at:
                first -= 1
            if first < row:
                state = _of_one_time(first, row + 1, time, kind, whole, truths, valid, used, known, half_life, before)  # fmt: skip
            elif _is_seen(row, valid, used, known, before):
                state = _state_of(row, time, kind, whole, truths, half_life)
            else:
                state = (0, 0.0, _NO_LEAST, _NO_MOST)
        row = first - 1
        if state[0] == 0:
            continue
        if depth:
            split = np.uint64(at) ^ later
            while depth > 1 and np.uint64(path[depth - 1, _SPLIT]) < split and np.uint64(path[depth - 1, _SPLIT]) < (np.uint64(path[depth - 1, _SPLIT]) ^ split):  # fmt: skip
                depth -= 1  # the highest bit is lower
                part = combined(_get(path, depth), _get(path, depth - 1), half_life)
                _set(path, depth - 1, part)
            path[depth, _SPLIT] = np.int64(split)
        _set(path, depth, state)
        later = np.uint64(time[first])
        depth += 1
    while is_whole and window < windows:
        _write_whole(path, depth, half_life, window, out)
        window += 1
    path[_DEPTH, 0], path[_DEPTH, 1], path[_DEPTH, 2] = depth, window, np.int64(later)


@compiled
def write_tile_states(
    bounds: Array, time: Array, kind: int, whole: Array, truths: Array, valid: Array, used: Array, known: Array, half_life: float, out: Array, out_known: Array,
) -> None:  # fmt: skip
    """Write the state of the rows of each tile that are seen at some time, and when all of them are known.

    Args:
        bounds: see :func:`write_event_states`, and so the others that are not here.
        time: see there.
        kind: see there.
        whole: see there.
        truths: see there.
        valid: see there.
        used: see there.
        known: see there.
        half_life: see there.
        out: zeros: int64, 4 columns.
        out_known: empty without ``known``; then it is not written: int64.
    """
    lows, always = np.full(1, _NO_TIME), (1 << 63) - 1
    of_tile, path = np.empty((1, 4), np.int64), np.empty((_DEPTH + 1, 5), np.int64)
    for tile in range(len(bounds)):
        first, end = bounds[tile, 0], bounds[tile, 1]
        of_tile[:], path[_DEPTH] = 0, 0
        write_event_states(time, first, end, kind, whole, truths, valid, used, known, half_life, lows, time[end - 1], always, bounds, 0, 0, out, out_known, path, True, of_tile)  # fmt: skip
        out[tile] = of_tile[0]
        if len(known):
            out_known[tile] = _NO_TIME
            for row in range(first, end):
                if _is_seen(row, valid, used, known, always):
                    out_known[tile] = max(out_known[tile], known[row])


@compiled
def seen_rows(
    time: Array, start: int, stop: int, valid: Array, used: Array, known: Array, low: int, last: int, before: int, bounds: Array, begin: int, end: int,
    tile_states: Array, most: int, from_end: bool,
) -> tuple[Array, bool]:  # fmt: skip
    """The first or the last rows that an event sees, ascending, and whether two of them have one time.

    They are ``most`` ones, or all if there are fewer, and those of the same time as the one that is furthest in.

    Args:
        time: see :func:`write_event_states`, and so the others that are not here.
        start: see there.
        stop: see there.
        valid: see there.
        used: see there.
        known: see there.
        low: the first time of the window.
        last: the last one.
        before: see there.
        bounds: see there; tiles without a row that is seen at some time are passed over.
        begin: see there.
        end: see there.
        tile_states: see there.
        most: at least 1.
        from_end: whether the last rows are taken.
    """
    behind = first_from(time, start, stop, last + 1)
    first = first_from(time, start, behind, low)
    row, tile = (behind - 1, end - 1) if from_end else (first, begin)
    rows = np.empty(min(most, 16), np.int64)
    found, border, is_tied = 0, 0, False
    while first <= row < behind:
        while from_end and tile >= begin and bounds[tile, 0] > row:
            tile -= 1
        while not from_end and tile < end and bounds[tile, 1] <= row:
            tile += 1
        if begin <= tile < end and bounds[tile, 0] <= row < bounds[tile, 1] and tile_states[tile, COUNT] == 0:
            row = bounds[tile, 0] - 1 if from_end else bounds[tile, 1]
            continue
        if _is_seen(row, valid, used, known, before):
            is_same = found > 0 and time[row] == border
            if found >= most and not is_same:
                break
            is_tied |= is_same
            border = time[row]
            if found == len(rows):
                longer = np.empty(2 * found, np.int64)
                longer[:found] = rows
                rows = longer
            rows[found] = row
            found += 1
        row += -1 if from_end else 1
    return (rows[:found][::-1].copy() if from_end else rows[:found].copy()), is_tied
