"""The inner loops that stack the ids of many columns into one array, without specs, names or Arrow.

A row of ``columns`` (int64, [inputs, :data:`FIELDS`]) describes where an input's ids are in memory; :mod:`trainer.reading.columns`
makes it and holds the arrays. A row of ``pieces`` (int64, [pieces, 5]) is a range of events: the number of its columns, the first
and the end of the range, and either -1 or the first position in ``taken`` of the events to take in place of the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from transforms.kernels.compiled import compiled, uncounted

Array = np.ndarray[Any, np.dtype[Any]]

#: The fields of a column: how its ids are stored; addresses of its ids (int64), of its offsets (int32), of its bitmap of events that
#: are not null, and of its weights (float32), 0 for none; its ids per event; its events and its ids; the bound of its ids; and the
#: bit of its first event in the bitmap.
KIND, IDS, OFFSETS, VALID, WEIGHTS, SIZE, EVENTS, COUNT, BOUND, FIRST_BIT = range(10)
FIELDS = 10
#: An event has SIZE ids; an event has one id, or none if it is null; an event has a list of ids.
FIXED, NULLABLE, LISTS = range(3)
#: What is wrong with an input: offsets that do not ascend within its ids, or an id out of its bounds.
BAD_OFFSETS, BAD_ID = 1, 2


def _pointer(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def pointer(typing_context: Any, address: Any) -> Any:
        """An address as a pointer."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return pointer


_int64_at, _int32_at, _bytes_at, _float32_at = map(_pointer, (types.int64, types.int32, types.uint8, types.float32))


@compiled
def count_ids(pieces: Array, columns: Array, taken: Array) -> int:
    """The ids of all pieces, or -1 if a piece's offsets do not ascend within its ids."""
    total = 0
    for p in range(len(pieces)):
        source, first, stop, at = pieces[p, 0], pieces[p, 1], pieces[p, 2], pieces[p, 3]
        for f in range(columns.shape[1]):
            column = columns[source, f]
            kind, events = column[KIND], column[EVENTS]
            if kind == FIXED:
                total += (stop - first) * column[SIZE]
            elif kind == NULLABLE:
                valid = carray(_bytes_at(column[VALID]), (column[FIRST_BIT] + events + 7) // 8)
                for i in range(first, stop):
                    bit = column[FIRST_BIT] + (taken[at + i - first] if at >= 0 else i)
                    total += valid[bit >> 3] >> (bit & 7) & 1
            elif at < 0:
                offsets = carray(_int32_at(column[OFFSETS]), events + 1)
                if not 0 <= offsets[first] <= offsets[stop] <= column[COUNT]:
                    return -1
                total += offsets[stop] - offsets[first]
            else:
                offsets = carray(_int32_at(column[OFFSETS]), events + 1)
                for i in range(at, at + stop - first):
                    length = offsets[taken[i] + 1] - offsets[taken[i]]
                    if length < 0:
                        return -1
                    total += length
    return total


@compiled
def stack_ids(
    pieces: Array, columns: Array, taken: Array, ids: Array, offsets: Array, weights: Array
) -> tuple[int, int, int]:
    """Fill ``ids``, ``offsets`` (int64 [inputs, events + 1]) and, if not empty, ``weights`` with the pieces, input by input.

    ``ids`` is longer than :func:`count_ids` by one, which is overwritten too. Events behind those of the pieces are empty. Returns (0, 0, 0), or what is wrong
    with which input and piece.
    """
    at = 0
    for f in range(columns.shape[1]):
        row = offsets[f]
        row[0] = at
        event = 0
        for p in range(len(pieces)):
            column = columns[pieces[p, 0], f]
            found = _stack_piece(column, pieces[p], taken, ids, row, event, at, weights)
            if found < 0:
                return int(-found), f, p
            event += pieces[p, 2] - pieces[p, 1]
            at = found
        for b in range(event, len(row) - 1):
            row[b + 1] = at
    return 0, 0, 0


@compiled
def _stack_piece(
    column: Array, piece: Array, taken: Array, ids: Array, row: Array, event: int, at: Any, weights: Array
) -> int:
    """Stack one input of one piece from ``ids[at]`` on; returns the end, or what is wrong as a negative number."""
    first, count, taken_at = piece[1], piece[2] - piece[1], piece[3]
    source = carray(_int64_at(column[IDS]), column[COUNT])
    ends = row[event + 1 : event + 1 + count]
    start = at
    if taken_at < 0 and column[KIND] == FIXED:
        size = column[SIZE]
        _copy(source[first * size : (first + count) * size], ids[at : at + count * size])
        for i in range(count):
            ends[i] = at + (i + 1) * size
        at += count * size
    elif taken_at < 0 and column[KIND] == LISTS:
        offsets = carray(_int32_at(column[OFFSETS]), column[EVENTS] + 1)[first : first + count + 1]
        begin, stop = np.int64(offsets[0]), np.int64(offsets[count])
        descending = 0
        for i in range(count):
            descending |= offsets[i + 1] < offsets[i]
            ends[i] = at - begin + offsets[i + 1]
        if descending or begin < 0 or stop > column[COUNT]:
            return -BAD_OFFSETS
        _copy(source[begin:stop], ids[at : at + stop - begin])
        at += stop - begin
    elif column[KIND] == FIXED:
        size = column[SIZE]
        for i in range(count):
            begin = taken[taken_at + i] * size
            for k in range(size):
                ids[at + k] = source[begin + k]
            at += size
            ends[i] = at
    elif column[KIND] == NULLABLE:
        valid = carray(_bytes_at(column[VALID]), (column[FIRST_BIT] + column[EVENTS] + 7) // 8)
        for i in range(count):
            place = taken[taken_at + i] if taken_at >= 0 else first + i
            bit = column[FIRST_BIT] + place
            ids[at] = source[place]
            at += valid[bit >> 3] >> (bit & 7) & 1
            ends[i] = at
    else:
        offsets = carray(_int32_at(column[OFFSETS]), column[EVENTS] + 1)
        for i in range(count):
            begin, stop = np.int64(offsets[taken[taken_at + i]]), np.int64(offsets[taken[taken_at + i] + 1])
            if begin < 0 or stop < begin or stop > column[COUNT]:
                return -BAD_OFFSETS
            for k in range(stop - begin):
                ids[at + k] = source[begin + k]
            at += stop - begin
            ends[i] = at
    if _greatest(ids[start:at]) >= np.uint64(column[BOUND]) and at > start:
        return -BAD_ID
    if len(weights):
        _stack_weights(column, piece, taken, weights[start:at])
    return int(at)


@uncounted
def _copy(source: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = source[i]


@uncounted
def _greatest(ids: Array) -> Any:
    """The greatest id as an unsigned number: that of a negative id is above all bounds."""
    found = np.uint64(0)
    for i in range(len(ids)):
        found = max(found, np.uint64(ids[i]))
    return found


@compiled
def _stack_weights(column: Array, piece: Array, taken: Array, out: Array) -> None:
    """The weights of one input of one (checked) piece; 1 for an input without any."""
    if column[WEIGHTS] == 0:
        out[:] = np.float32(1.0)
        return
    first, count, taken_at = piece[1], piece[2] - piece[1], piece[3]
    source = carray(_float32_at(column[WEIGHTS]), column[COUNT])
    ends = carray(_int32_at(column[OFFSETS]), column[EVENTS] + 1)
    at = 0
    for i in range(count):
        place = taken[taken_at + i] if taken_at >= 0 else first + i
        for k in range(ends[place], ends[place + 1]):
            out[at] = source[k]
            at += 1
