"""The inner loops that stack the ids of many columns into one array, without specs, names or Arrow.

A row of ``columns`` (int64, [inputs, :data:`FIELDS`]) describes where an input's ids are in memory; :mod:`trainer.run.reading.columns`
makes it and holds the arrays. A row of ``pieces`` (int64, [pieces, 5]) is a range of events: the number of its columns, the first
and the end of the range, and either -1 or the first position in ``taken`` of the events to take in place of the range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted

#: The fields of a column: how its ids are stored; addresses of its ids, of its offsets (int32), of its bitmap of events that
#: are not null, and of its weights (float32), 0 for none; its ids per event; its events and its ids; the bound of its ids; the
#: bit of its first event in the bitmap; and the bytes of an id: 8 for int64, else an unsigned integer of 1, 2 or 4.
KIND, IDS, OFFSETS, VALID, WEIGHTS, SIZE, EVENTS, COUNT, BOUND, FIRST_BIT, WIDTH = range(11)
FIELDS = 11
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


#: Addresses as pointers.
int64_at, int32_at, float32_at = map(_pointer, (types.int64, types.int32, types.float32))
uint8_at, uint16_at, uint32_at = map(_pointer, (types.uint8, types.uint16, types.uint32))


@compiled
def most_ids(pieces: Array, columns: Array, taken: Array) -> int:
    """The ids of all pieces at most, null ids included, or -1 if a piece's offsets do not ascend within its ids."""
    total = 0
    for p in range(len(pieces)):
        source, first, stop, at = pieces[p, 0], pieces[p, 1], pieces[p, 2], pieces[p, 3]
        for f in range(columns.shape[1]):
            column = columns[source, f]
            if column[KIND] != LISTS:
                total += (stop - first) * column[SIZE]
                continue
            offsets = carray(int32_at(column[OFFSETS]), column[EVENTS] + 1)
            if at < 0:
                if not 0 <= offsets[first] <= offsets[stop] <= column[COUNT]:
                    return -1
                total += offsets[stop] - offsets[first]
            else:
                length = _taken_length(offsets, taken[at : at + stop - first])
                if length < 0:
                    return -1
                total += length
    return total


@uncounted
def _taken_length(offsets: Array, taken: Array) -> int:
    total, descending = 0, 0
    for i in range(len(taken)):
        length = offsets[taken[i] + 1] - offsets[taken[i]]
        descending |= length < 0
        total += length
    return -1 if descending else total


@compiled
def stack_ids(
    pieces: Array, columns: Array, taken: Array, ids: Array, offsets: Array, weights: Array
) -> tuple[int, int, int]:
    """Fill ``ids``, ``offsets`` (int64 [inputs, events + 1]) and, if not empty, ``weights`` with the pieces, input by input.

    ``ids`` and ``weights`` are as long as :func:`most_ids` returned. Events behind those of the pieces are empty. Returns (0, the number of ids, 0), or what is
    wrong with which input and piece.
    """
    at: Any = np.int64(0)  # numba would compile what is called with a literal 0 once more, for literals
    for f in range(columns.shape[1]):
        row = offsets[f]
        row[0] = at
        event = 0
        for p in range(len(pieces)):
            column, piece = columns[pieces[p, 0], f], pieces[p]
            count = piece[2] - piece[1]
            ends = row[event + 1 : event + 1 + count]
            width, address = column[WIDTH], column[IDS]
            if width == 8:
                found = stack_piece(carray(int64_at(address), column[COUNT]), column, piece, taken, ids, ends, at)
            elif width == 1:
                found = stack_piece(carray(uint8_at(address), column[COUNT]), column, piece, taken, ids, ends, at)
            elif width == 2:
                found = stack_piece(carray(uint16_at(address), column[COUNT]), column, piece, taken, ids, ends, at)
            else:
                found = stack_piece(carray(uint32_at(address), column[COUNT]), column, piece, taken, ids, ends, at)
            if found < 0:
                return int(-found), f, p
            if len(weights):
                stack_weights(column, piece, taken, weights[at:found])
            event += count
            at = found
        row[event + 1 :] = at
    return 0, at, 0


@compiled
def stack_piece(source: Array, column: Array, piece: Array, taken: Array, ids: Array, ends: Array, at: Any) -> int:
    """Stack one input of one piece from ``ids[at]`` on; returns the end, or what is wrong as a negative number."""
    first, count, kind, size = piece[1], piece[2] - piece[1], column[KIND], column[SIZE]
    last = np.uint64(column[BOUND] - 1)
    own = taken[piece[3] : piece[3] + count] if piece[3] >= 0 else taken[:0]
    if kind == NULLABLE:
        valid = carray(uint8_at(column[VALID]), (column[FIRST_BIT] + column[EVENTS] + 7) // 8)
        out = ids[at : at + count]
        if piece[3] >= 0:
            wrong, kept = _take_valid(source, valid, column[FIRST_BIT], own, out, ends, at, last)
        else:
            wrong, kept = _copy_valid(
                source[first : first + count], valid, np.uint64(column[FIRST_BIT] + first), out, ends, at, last
            )
        at += np.int64(kept)
    elif kind == FIXED:
        out = ids[at : at + count * size]
        if piece[3] >= 0:
            wrong = take_fixed(source, size, own, out, last)
        else:
            wrong = copy_ids(source[first * size : (first + count) * size], out, last)
        _count_by(size, at, ends)
        at += count * size
    else:
        offsets = carray(int32_at(column[OFFSETS]), column[EVENTS] + 1)
        if piece[3] < 0:
            begin, stop = np.int64(offsets[first]), np.int64(offsets[first + count])
            if _shift(offsets[first : first + count + 1], at - begin, ends) or begin < 0 or stop > column[COUNT]:
                return -BAD_OFFSETS
            wrong = copy_ids(source[begin:stop], ids[at : at + stop - begin], last)
            at += stop - begin
        else:
            wrong, end = _take_lists(source, offsets, own, ids, ends, at, last)
            if end < 0:
                return -BAD_OFFSETS
            at = end
    # The sign is set by an id below 0, and by an id above the last one.
    return -BAD_ID if wrong >> np.uint64(63) else int(at)


@uncounted
def copy_ids(source: Array, out: Array, last: Any) -> Any:
    """Copy ids; the sign of the result is set if one is not in [0, last]."""
    wrong = np.uint64(0)
    for i in range(len(out)):
        one = np.uint64(source[i])
        wrong |= one | (last - one)
        out[i] = np.int64(one)
    return wrong


@uncounted
def _count_by(size: int, at: int, ends: Array) -> None:
    for i in range(len(ends)):
        ends[i] = at + (i + 1) * size


@uncounted
def _shift(offsets: Array, by: int, ends: Array) -> int:
    """Fill the ends of lists; not 0 if one is before its begin."""
    descending = np.int32(0)
    for i in range(len(ends)):
        descending |= np.int32(offsets[i + 1] < offsets[i])
        ends[i] = by + offsets[i + 1]
    return int(descending)


@uncounted
def _copy_valid(
    source: Array, valid: Array, first_bit: Any, out: Array, ends: Array, at: int, last: Any
) -> tuple[Any, Any]:
    """Copy the ids that are not null; returns the sign of :func:`_copy` and their number."""
    wrong, kept, one_bit = np.uint64(0), np.uint64(0), np.uint64(1)
    for i in range(len(ends)):
        bit = first_bit + np.uint64(i)
        is_valid = (np.uint64(valid[bit >> np.uint64(3)]) >> (bit & np.uint64(7))) & one_bit
        one = np.uint64(source[i])
        out[kept] = np.int64(one)
        wrong |= (one | (last - one)) & (np.uint64(0) - is_valid)
        kept += is_valid
        ends[i] = at + np.int64(kept)
    return wrong, kept


@uncounted
def _take_valid(
    source: Array, valid: Array, first_bit: int, taken: Array, out: Array, ends: Array, at: int, last: Any
) -> tuple[Any, Any]:
    wrong, kept, one_bit = np.uint64(0), np.uint64(0), np.uint64(1)
    for i in range(len(ends)):
        bit = np.uint64(first_bit + taken[i])
        is_valid = (np.uint64(valid[bit >> np.uint64(3)]) >> (bit & np.uint64(7))) & one_bit
        one = np.uint64(source[taken[i]])
        out[kept] = np.int64(one)
        wrong |= (one | (last - one)) & (np.uint64(0) - is_valid)
        kept += is_valid
        ends[i] = at + np.int64(kept)
    return wrong, kept


@uncounted
def take_fixed(source: Array, size: int, taken: Array, out: Array, last: Any) -> Any:
    """Copy the ids of the taken events, ``size`` each; the sign of the result is that of :func:`copy_ids`."""
    wrong, at = np.uint64(0), 0
    if size == 1:
        for i in range(len(taken)):
            one = np.uint64(source[taken[i]])
            wrong |= one | (last - one)
            out[i] = np.int64(one)
        return wrong
    for i in range(len(taken)):
        for k in range(taken[i] * size, taken[i] * size + size):
            one = np.uint64(source[k])
            wrong |= one | (last - one)
            out[at] = np.int64(one)
            at += 1
    return wrong


@uncounted
def _take_lists(
    source: Array, offsets: Array, taken: Array, ids: Array, ends: Array, at: int, last: Any
) -> tuple[Any, int]:
    """Copy the lists of the taken events; returns the sign of :func:`_copy` and the end, -1 for offsets that do not ascend."""
    wrong = np.uint64(0)
    for i in range(len(taken)):
        begin, stop = np.int64(offsets[taken[i]]), np.int64(offsets[taken[i] + 1])
        if begin < 0 or stop < begin or stop > len(source):
            return wrong, -1
        for k in range(begin, stop):
            one = np.uint64(source[k])
            wrong |= one | (last - one)
            ids[at] = np.int64(one)
            at += 1
        ends[i] = at
    return wrong, at


@compiled
def copy_numbers(address: int, row_step: int, column_step: int, out: Array) -> None:
    """Fill ``out`` (float32 [rows, columns]) from an address; a number is ``row_step`` and ``column_step`` numbers after its neighbours."""
    rows, columns = out.shape
    source = carray(float32_at(address), (rows - 1) * row_step + (columns - 1) * column_step + 1)
    for i in range(rows):
        for c in range(columns):
            out[i, c] = source[i * row_step + c * column_step]


@compiled
def are_finite(bits: Array) -> bool:
    """Whether no float32 is NaN or infinite, of their bits (uint32)."""
    return bool(_has_full_exponent(bits) == 0)


@uncounted
def _has_full_exponent(bits: Array) -> Any:
    found = np.uint32(0)
    for i in range(len(bits)):
        found |= np.uint32((bits[i] & np.uint32(0x7F800000)) == np.uint32(0x7F800000))
    return found


@compiled
def stack_weights(column: Array, piece: Array, taken: Array, out: Array) -> None:
    """The weights of one input of one (checked) piece; 1 for an input without any."""
    if column[WEIGHTS] == 0:
        out[:] = np.float32(1.0)
        return
    first, count, taken_at = piece[1], piece[2] - piece[1], piece[3]
    source = carray(float32_at(column[WEIGHTS]), column[COUNT])
    ends = carray(int32_at(column[OFFSETS]), column[EVENTS] + 1)
    at = 0
    for i in range(count):
        place = taken[taken_at + i] if taken_at >= 0 else first + i
        for k in range(ends[place], ends[place + 1]):
            out[at] = source[k]
            at += 1
