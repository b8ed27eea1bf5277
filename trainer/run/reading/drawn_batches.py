"""The arrays of the next batches of a window of shuffled events, made in one pass over the window.

A batch draws events from everywhere in its window. Batches that are made one by one read the whole window again and again, so here the
outer loop runs over the inputs: the ids of an input are stacked once for the window, which fit the processor's caches, and each of the
batches takes those of its events. The arrays are those of :func:`~trainer.run.reading.batches.assemble`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import carray

from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.kernels import (
    BAD_ID,
    BOUND,
    COUNT,
    EVENTS,
    FIRST_BIT,
    IDS,
    KIND,
    LISTS,
    NULLABLE,
    SIZE,
    VALID,
    WIDTH,
    copy_ids,
    copy_numbers,
    int64_at,
    most_ids,
    stack_piece,
    stack_weights,
    take_fixed,
    uint8_at,
    uint16_at,
    uint32_at,
)
from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted

#: So many ids are copied of each list without looking at its length; arrays are longer by as many.
_AT_ONCE = 2
#: A batch gets space for so many times the mean of ids, and if that is too little, for those that it has.
_SPACE = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class WindowPart:
    """Rows ``start`` to ``stop`` of a fragment."""

    decoded: DecodedFragment
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class DealtEvents:
    """The events of some batches of a window.

    Attributes:
        places: the place of each in the window, int32, batch after batch, ascending in each.
        ends: the end of each batch in ``places``, int64.
        parts: where the events of each part of the window begin and those of the last one end, in ``places``, int64 [batches, parts + 1].
    """

    places: Array
    ends: Array
    parts: Array


def deal_events(order: Array, ends: Array, part_ends: Array) -> DealtEvents:
    """Deal events to batches.

    Args:
        order: places in the window as they are drawn, int64, of all batches together.
        ends: the end of each batch in ``order``, int64.
        part_ends: the end of each part of the window, int64.
    """
    batch_of, places = np.full(int(part_ends[-1]), -1, np.int32), np.empty(len(order), np.int32)
    parts = np.empty((len(ends), len(part_ends) + 1), np.int64)
    _deal(order, ends, part_ends, batch_of, places, parts)
    return DealtEvents(places, ends, parts)


@compiled
def _deal(order: Array, ends: Array, part_ends: Array, batch_of: Array, places: Array, parts: Array) -> None:
    at = np.zeros(len(ends), np.int64)
    begin = 0
    for b in range(len(ends)):
        for i in range(begin, ends[b]):
            batch_of[order[i]] = b
        at[b] = begin
        begin = ends[b]
    parts[:, 0] = at
    first = 0
    for p in range(len(part_ends)):
        for place in range(first, part_ends[p]):
            b = batch_of[place]
            if b >= 0:
                places[at[b]] = place
                at[b] += 1
        first = part_ends[p]
        parts[:, p + 1] = at


@dataclass(frozen=True, slots=True)
class DrawnForm:
    """What the batches of a model have in common.

    Attributes:
        batch_rows: the events to which batches are padded.
        number_width: the numbers of an event.
        id_type: of ids in batches.
        is_weighted: whether ids have weights.
    """

    batch_rows: int
    number_width: int
    id_type: np.dtype[Any]
    is_weighted: bool


@dataclass(frozen=True, slots=True, eq=False)
class DrawnArrays:
    """The arrays of some batches of equal shape, but for their ids.

    Attributes:
        ids: of each batch.
        weights: of the ids of each batch, float32; None without any.
        offsets: int64 [batches, inputs, events of a batch + 1].
        dense: float32 [batches, events, numbers].
        labels: float32 [batches, events] or [batches, events, tasks].
    """

    ids: tuple[Array, ...]
    weights: tuple[Array, ...] | None
    offsets: Array
    dense: Array
    labels: Array


def draw_arrays(parts: Sequence[WindowPart], dealt: DealtEvents, form: DrawnForm) -> DrawnArrays | None:
    """The arrays of dealt batches; None if the ids or the lists of the window are not sound."""
    found = _drawn_ids(parts, dealt, form)
    if found is None:
        return None
    dense, labels = _drawn_numbers(parts, dealt, form)
    return DrawnArrays(*found, dense, labels)


def _drawn_numbers(parts: Sequence[WindowPart], dealt: DealtEvents, form: DrawnForm) -> tuple[Array, Array]:
    """The dense inputs and labels of batches."""
    batches, rows = len(dealt.ends), sum(part.stop - part.start for part in parts)
    dense = np.zeros((batches, form.batch_rows, form.number_width), np.float32)
    labels = np.zeros((batches, form.batch_rows, *parts[0].decoded.labels.shape[1:]), np.float32)
    numbers, at = np.empty((rows, form.number_width), np.float32), 0
    for part in parts:
        own = part.decoded.dense[part.start : part.stop]
        assert own.dtype == np.float32
        if own.size:
            row_step, column_step = (step // own.itemsize for step in own.strides)
            copy_numbers(own.ctypes.data, row_step, column_step, numbers[at : at + len(own)])
        at += len(own)
    stored = np.concatenate([part.decoded.labels[part.start : part.stop] for part in parts])
    _take_rows(numbers, dealt.places, dealt.ends, dense)
    _take_rows(stored.reshape(rows, -1), dealt.places, dealt.ends, labels.reshape(batches, form.batch_rows, -1))
    return dense, labels


@compiled
def _take_rows(source: Array, places: Array, ends: Array, out: Array) -> None:
    begin = 0
    for b in range(len(ends)):
        _take_each_row(source, places[begin : ends[b]], out[b])
        begin = ends[b]


@uncounted
def _take_each_row(source: Array, places: Array, out: Array) -> None:
    for i in range(len(places)):
        place = np.uint64(places[i])
        for c in range(out.shape[1]):
            out[np.uint64(i), np.uint64(c)] = source[place, np.uint64(c)]


def _drawn_ids(
    parts: Sequence[WindowPart], dealt: DealtEvents, form: DrawnForm
) -> tuple[tuple[Array, ...], tuple[Array, ...] | None, Array] | None:
    """The ids, weights and offsets of batches; None if they are not sound."""
    pieces, taken = _pieces(parts)
    columns = np.stack([part.decoded.ids.table for part in parts])
    rows = int((pieces[:, 2] - pieces[:, 1]).sum())
    most = most_ids(pieces, columns, taken)
    if most < 0:
        return None
    batches, inputs = len(dealt.ends), columns.shape[1]
    events = np.diff(dealt.ends, prepend=0)
    longest = _most_of_an_input(pieces, columns, taken) + _AT_ONCE
    scratch = np.empty(longest, form.id_type)
    weighed = np.empty(longest if form.is_weighted else 0, np.float32)
    bounds = np.zeros(rows + 1, np.int64)
    offsets = np.empty((batches, inputs, form.batch_rows + 1), np.int64)
    counts = np.zeros(batches, np.int64)
    space = (events * (most / max(rows, 1) * _SPACE)).astype(np.int64) + _AT_ONCE
    while True:
        begins = np.concatenate([[0], np.cumsum(space)])
        ids = np.empty(begins[-1], form.id_type)
        weights = np.empty(begins[-1] if form.is_weighted else 0, np.float32)
        wrong = _draw_ids(
            pieces, columns, taken, dealt.places, dealt.ends, begins, scratch, weighed, bounds, ids, weights, offsets, counts
        )  # fmt: skip
        if wrong >= 0:
            break
        space = counts + _AT_ONCE
    if wrong:
        return None
    ranges = list(zip(begins[:-1].tolist(), (begins[:-1] + counts).tolist(), strict=True))
    drawn = tuple(ids[begin:end] for begin, end in ranges)
    return drawn, tuple(weights[begin:end] for begin, end in ranges) if form.is_weighted else None, offsets


@compiled
def _most_of_an_input(pieces: Array, columns: Array, taken: Array) -> int:
    most: Any = np.int64(0)
    for f in range(columns.shape[1]):
        most = max(most, most_ids(pieces, columns[:, f : f + 1], taken))
    return int(most)


def _pieces(parts: Sequence[WindowPart]) -> tuple[Array, Array]:
    """The parts as pieces of :mod:`trainer.run.reading.kernels`, and the rows that those with rows of their own take."""
    pieces, taken, at = np.zeros((len(parts), 4), np.int64), [np.zeros(0, np.int64)], 0
    for p, part in enumerate(parts):
        if part.decoded.taken is None:
            pieces[p] = p, part.decoded.first + part.start, part.decoded.first + part.stop, -1
        else:
            pieces[p] = p, 0, part.stop - part.start, at
            taken.append(part.decoded.taken[part.start : part.stop])
            at += part.stop - part.start
    return pieces, np.concatenate(taken)


#: How the ids of an input in the whole window are loaded: one for each event, one or -1 for none, or lists between ``bounds``.
_ONE, _ONE_OR_NONE, _LISTS = range(3)
#: The ids of a batch have no space.
_NO_SPACE = -1


@compiled
def _draw_ids(
    pieces: Array, columns: Array, taken: Array, places: Array, ends: Array, begins: Array, scratch: Array, weighed: Array,
    bounds: Array, ids: Array, weights: Array, offsets: Array, counts: Array,
) -> int:  # fmt: skip
    """Fill the ids, offsets and weights of all batches, and ``counts`` with their ids.

    Returns what is wrong, else 0; :data:`_NO_SPACE` if a batch has more ids than space, with all counts.
    """
    fits = True
    counts[:] = 0
    for f in range(columns.shape[1]):
        way = _LISTS if len(weights) else _way_of(pieces, columns, f)
        wrong = _load(pieces, columns, f, way, taken, scratch, weighed, bounds)
        if wrong:
            return wrong
        longest = _longest(bounds) if way == _LISTS else 1
        begin = 0
        for b in range(len(ends)):
            own, ends_of = places[begin : ends[b]], offsets[b, f]
            at, space = counts[b], begins[b + 1] - begins[b] - _AT_ONCE
            begin = ends[b]
            if not fits or at + len(own) * longest > space:
                counts[b] += _total(way, scratch, bounds, own)
                fits &= counts[b] <= space
                if not fits:
                    continue
            out, filled = ids[begins[b] + at : begins[b + 1]], ends_of[: len(own) + 1]
            filled[0] = at
            if way == _ONE:
                _take_each(scratch, own, out)
                _count_up(at, filled)
                count = len(own)
            elif way == _ONE_OR_NONE:
                count = _take_valid(scratch, own, out, filled)
            elif longest <= 1:
                count = _take_few(scratch, bounds, own, out, filled)
            else:
                count = _take_many(scratch, bounds, own, out, filled)
            if len(weights):
                _take_weights(weighed, bounds, own, weights[begins[b] + at : begins[b + 1]])
            counts[b] = at + count
            ends_of[len(own) + 1 :] = at + count
    return 0 if fits else _NO_SPACE


@uncounted
def _way_of(pieces: Array, columns: Array, f: int) -> int:
    way = _ONE
    for p in range(len(pieces)):
        column = columns[pieces[p, 0], f]
        if column[KIND] == LISTS or column[SIZE] != 1:
            return _LISTS
        if column[KIND] == NULLABLE:
            way = _ONE_OR_NONE
    return way


@compiled
def _load(
    pieces: Array, columns: Array, f: int, how: int, taken: Array, scratch: Array, weighed: Array, bounds: Array
) -> int:  # fmt: skip
    """Stack the ids of an input of the whole window; returns what is wrong, else 0."""
    at: Any = np.int64(0)
    event = 0
    for p in range(len(pieces)):
        piece, column = pieces[p], columns[pieces[p, 0], f]
        count = piece[2] - piece[1]
        ends = bounds[event + 1 : event + 1 + count]
        width, address = column[WIDTH], column[IDS]
        if width == 8:
            found = _load_piece(carray(int64_at(address), column[COUNT]), column, piece, how, taken, scratch, ends, at)
        elif width == 1:
            found = _load_piece(carray(uint8_at(address), column[COUNT]), column, piece, how, taken, scratch, ends, at)
        elif width == 2:
            found = _load_piece(carray(uint16_at(address), column[COUNT]), column, piece, how, taken, scratch, ends, at)
        else:
            found = _load_piece(carray(uint32_at(address), column[COUNT]), column, piece, how, taken, scratch, ends, at)
        if found < 0:
            return int(-found)
        if len(weighed):
            stack_weights(column, piece, taken, weighed[at:found])
        event += count
        at = found
    return 0


@compiled
def _load_piece(
    source: Array, column: Array, piece: Array, how: int, taken: Array, scratch: Array, ends: Array, at: Any
) -> int:
    """Load the ids of a piece behind those before; returns the end, or what is wrong as a negative number."""
    if how == _LISTS:
        return int(stack_piece(source, column, piece, taken, scratch, ends, at))
    first, count = piece[1], piece[2] - piece[1]
    out, last = scratch[at : at + count], np.uint64(column[BOUND] - 1)
    if column[KIND] == NULLABLE:
        valid = carray(uint8_at(column[VALID]), (column[FIRST_BIT] + column[EVENTS] + 7) // 8)
        if piece[3] >= 0:
            wrong = _take_nullable(source, valid, column[FIRST_BIT], taken[piece[3] : piece[3] + count], out, last)
        else:
            wrong = _copy_nullable(source[first : first + count], valid, column[FIRST_BIT] + first, out, last)
    elif piece[3] >= 0:
        wrong = take_fixed(source, 1, taken[piece[3] : piece[3] + count], out, last)
    else:
        wrong = copy_ids(source[first : first + count], out, last)
    # The sign is set by an id below 0, and by an id above the last one.
    return -BAD_ID if wrong >> np.uint64(63) else int(at + count)


@uncounted
def _copy_nullable(source: Array, valid: Array, first_bit: int, out: Array, last: Any) -> Any:
    wrong, one_bit = np.uint64(0), np.uint64(1)
    for i in range(len(out)):
        bit = np.uint64(first_bit + i)
        is_valid = (np.uint64(valid[bit >> np.uint64(3)]) >> (bit & np.uint64(7))) & one_bit
        one = np.uint64(source[i])
        wrong |= (one | (last - one)) & (np.uint64(0) - is_valid)
        out[i] = np.int64(one | (is_valid - one_bit))
    return wrong


@uncounted
def _take_nullable(source: Array, valid: Array, first_bit: int, taken: Array, out: Array, last: Any) -> Any:
    wrong, one_bit = np.uint64(0), np.uint64(1)
    for i in range(len(out)):
        bit = np.uint64(first_bit + taken[i])
        is_valid = (np.uint64(valid[bit >> np.uint64(3)]) >> (bit & np.uint64(7))) & one_bit
        one = np.uint64(source[taken[i]])
        wrong |= (one | (last - one)) & (np.uint64(0) - is_valid)
        out[i] = np.int64(one | (is_valid - one_bit))
    return wrong


@uncounted
def _longest(bounds: Array) -> int:
    longest = np.int64(0)
    for i in range(len(bounds) - 1):
        longest = max(longest, bounds[i + 1] - bounds[i])
    return int(longest)


@uncounted
def _total(how: int, scratch: Array, bounds: Array, places: Array) -> int:
    total = 0
    for i in range(len(places)):
        if how == _LISTS:
            total += bounds[places[i] + 1] - bounds[places[i]]
        else:
            total += scratch[places[i]] >= 0
    return total


# The loops below count in unsigned numbers: numba takes a signed index below 0 as counted from the end, which doubles their time.
_NONE, _STEP, _TWO = np.uint64(0), np.uint64(1), np.uint64(_AT_ONCE)


@uncounted
def _take_each(source: Array, places: Array, out: Array) -> None:
    for i in range(len(places)):
        out[i] = source[np.uint64(places[i])]


@uncounted
def _count_up(first: int, out: Array) -> None:
    for i in range(len(out)):
        out[i] = first + i


@uncounted
def _take_valid(source: Array, places: Array, out: Array, ends: Array) -> int:
    """Take ids that are not -1; one more may be written behind the last one."""
    at, first = _NONE, ends[0]
    for i in range(len(places)):
        one = source[np.uint64(places[i])]
        out[at] = one
        at += np.uint64(one >= 0)
        ends[np.uint64(i) + _STEP] = first + np.int64(at)
    return int(np.int64(at))


@uncounted
def _take_few(source: Array, bounds: Array, places: Array, out: Array, ends: Array) -> int:
    """Take lists of at most one id; one more may be written behind the last one."""
    at, first = _NONE, ends[0]
    for i in range(len(places)):
        place = np.uint64(places[i])
        begin = np.uint64(bounds[place])
        out[at] = source[begin]
        at += np.uint64(bounds[place + _STEP]) - begin
        ends[np.uint64(i) + _STEP] = first + np.int64(at)
    return int(np.int64(at))


@uncounted
def _take_many(source: Array, bounds: Array, places: Array, out: Array, ends: Array) -> int:
    """Take lists; :data:`_AT_ONCE` more may be written behind the last one."""
    at, first = _NONE, ends[0]
    for i in range(len(places)):
        place = np.uint64(places[i])
        begin = np.uint64(bounds[place])
        length = np.uint64(bounds[place + _STEP]) - begin
        out[at], out[at + _STEP] = source[begin], source[begin + _STEP]
        if length > _TWO:
            for k in range(_TWO, length):
                out[at + k] = source[begin + k]
        at += length
        ends[np.uint64(i) + _STEP] = first + np.int64(at)
    return int(np.int64(at))


@uncounted
def _take_weights(source: Array, bounds: Array, places: Array, out: Array) -> None:
    at = 0
    for i in range(len(places)):
        for k in range(bounds[places[i]], bounds[places[i] + 1]):
            out[at] = source[k]
            at += 1
