"""The words of a text, separated by runs of white space.

One text at a time, so that a kernel which only compares or hashes words need not keep where all words of a batch are.
White space is found 64 bytes at a time: one vector comparison gives a bit for each byte that may begin it, and only
those bytes are looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import types
from numba.extending import intrinsic

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted
from transforms.kernels.spans import check_load, trailing_zeros

_BLOCK = 64
#: Bytes beyond ASCII that begin a white space character: of U+0085 and U+00A0, U+1680, U+2000 to U+205F, U+3000.
_LEADS = (0xC2, 0xE1, 0xE2, 0xE3)
_ONE, _ALL = np.uint64(1), np.uint64(2**64 - 1)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _maybe_space(typing_context: Any, data: Any, at: Any) -> Any:
    """A bit for each of 64 bytes that may begin white space: at most 32, or a lead byte. The caller keeps within the array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), _BLOCK)

        def every(byte: int) -> Any:
            return ir.Constant(vector, [byte] * _BLOCK)

        array = context.make_array(signature.args[0])(context, builder, args[0])
        check_load(context, builder, array, args[1], _BLOCK)
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), vector.as_pointer())
        block = builder.load(pointer, align=1)
        found = builder.icmp_unsigned("<=", block, every(32))
        for lead in _LEADS:
            found = builder.or_(found, builder.icmp_unsigned("==", block, every(lead)))
        return builder.bitcast(found, ir.IntType(64))

    return types.uint64(data, types.int64), codegen


@uncounted
def space_size(data: Array, at: Any, end: Any) -> int:
    """Bytes of the white space character at a position; 0 for another character."""
    byte = data[at]
    if byte <= 32:
        return 1 if byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31 else 0
    if byte == 0xC2 and at + 1 < end:  # U+0085, U+00A0
        return 2 if data[at + 1] == 0x85 or data[at + 1] == 0xA0 else 0
    if at + 2 >= end:
        return 0
    second, third = data[at + 1], data[at + 2]
    if byte == 0xE1:  # U+1680
        return 3 if second == 0x9A and third == 0x80 else 0
    if byte == 0xE2 and second == 0x80:  # U+2000 to U+200A, U+2028, U+2029, U+202F
        return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0
    if byte == 0xE2 and second == 0x81:  # U+205F
        return 3 if third == 0x9F else 0
    return 3 if byte == 0xE3 and second == 0x80 and third == 0x80 else 0  # U+3000


@uncounted
def most_words(starts: Array, ends: Array) -> Any:
    """A bound on the words of any one text."""
    longest = 0
    for row in range(len(starts)):
        longest = max(longest, ends[row] - starts[row])
    return (longest + 1) >> 1


@inlined
def write_words(data: Array, start: Any, end: Any, begins: Array, stops: Array, count: Any) -> Any:
    """Write the starts and ends of the words of a text from position ``count`` on; return the next position."""
    at, begin, stop = np.int64(start), np.int64(start), np.int64(end)
    while at < stop:
        if at + _BLOCK > len(data):
            while at < stop:
                size = space_size(data, at, stop)
                if size and at > begin:
                    begins[count], stops[count] = begin, at
                    count += 1
                begin = at + size if size else begin
                at += max(size, 1)
            break
        candidates = _maybe_space(data, at)
        if stop - at < _BLOCK:
            candidates &= (_ONE << np.uint64(stop - at)) - _ONE
        while candidates:
            found = at + np.int64(trailing_zeros(candidates))
            candidates &= candidates - _ONE
            size = 1 if data[found] == 32 else space_size(data, found, stop)
            if size:
                if found > begin:
                    begins[count], stops[count] = begin, found
                    count += 1
                begin = found + size
        at += _BLOCK
    if stop > begin:
        begins[count], stops[count] = begin, stop
        count += 1
    return count


@compiled
def all_words(data: Array, starts: Array, ends: Array, bound: int) -> tuple[Array, Array, Array]:
    """(offsets, begins, stops) of the words of every text, at most ``bound`` words."""
    offsets, begins, stops = np.empty(len(starts) + 1, np.int32), np.empty(bound, np.int32), np.empty(bound, np.int32)
    count = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        count = write_words(data, starts[row], ends[row], begins, stops, count)
        offsets[row + 1] = count
    return offsets, begins[:count], stops[:count]
