"""Byte spans: reading words out of them, ordering them, and moving them between buffers.

Words are read unaligned and little endian, as Arrow lays its buffers out on every platform it runs on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from transforms.arrays import Array
from transforms.columns.positions import check_positions
from transforms.kernels.compiled import compiled, inlined, uncounted

_WORD_BITS = np.uint64(64)
_THREE = np.uint64(3)
#: The bytes that :func:`copy_over` moves at once.
_BLOCK = 32


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def load64(typing_context: Any, data: Any, at: Any) -> Any:
    """Eight bytes of a uint8 array as an unsigned number, little endian. The caller keeps within the array."""
    return types.uint64(data, types.int64), _load(64, swap=False)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def load64_big(typing_context: Any, data: Any, at: Any) -> Any:
    """Eight bytes of a uint8 array as an unsigned number, big endian: it orders as the bytes do."""
    return types.uint64(data, types.int64), _load(64, swap=True)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def load32(typing_context: Any, data: Any, at: Any) -> Any:
    """Four bytes of a uint8 array as an unsigned number, little endian, widened to 64 bits."""
    return types.uint64(data, types.int64), _load(32, swap=False)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The number of trailing zero bits of an unsigned 64-bit number that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


def _load(bits: int, *, swap: bool) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        check_load(context, builder, array, args[1], bits // 8)
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(bits).as_pointer())
        word = builder.load(pointer, align=1)
        word = builder.bswap(word) if swap else word
        return word if bits == 64 else builder.zext(word, ir.IntType(64))

    return codegen


def check_load(context: Any, builder: Any, array: Any, at: Any, size_bytes: int) -> None:
    """Emit a check that ``size`` bytes from a position on are within the array, if numba checks bounds."""
    if not config.BOUNDSCHECK:
        return
    for byte in (0, size_bytes - 1):
        cgutils.do_boundscheck(context, builder, builder.add(at, at.type(byte)), builder.extract_value(array.shape, 0))


@inlined
def prefix(data: Array, start: Any, end: Any) -> Any:
    """The first eight bytes of a span as a number that orders as they do; a shorter span is padded with zeros."""
    size = end - start
    if size == 0:
        return np.uint64(0)
    if start + 8 <= len(data):
        # Shift by the missing bytes, 0 for a longer span: a branch would be mispredicted, since sizes vary.
        shift = _WORD_BITS - (np.uint64(min(size, 8)) << _THREE)
        return (load64_big(data, start) >> shift) << shift
    word = np.uint64(0)
    for i in range(min(size, 8)):
        word |= np.uint64(data[start + i]) << np.uint64(56 - 8 * i)
    return word


@inlined
def equal_after_prefix(data_a: Array, start_a: Any, end_a: Any, data_b: Array, start_b: Any, end_b: Any) -> bool:
    """Whether two spans are equal, given that their prefixes are."""
    size = end_a - start_a
    if size != end_b - start_b:
        return False
    at = np.int64(8)
    while at + 8 <= size:
        if load64(data_a, start_a + at) != load64(data_b, start_b + at):
            return False
        at += 8
    while at < size:
        if data_a[start_a + at] != data_b[start_b + at]:
            return False
        at += 1
    return True


@inlined
def compare_after_prefix(data_a: Array, start_a: Any, end_a: Any, data_b: Array, start_b: Any, end_b: Any) -> Any:
    """-1, 0 or 1 as one span is before, equal to or after another, given that their prefixes are equal."""
    size_a, size_b = end_a - start_a, end_b - start_b
    common = min(size_a, size_b)
    i = 8
    while i + 8 <= common:
        word_a, word_b = load64_big(data_a, start_a + i), load64_big(data_b, start_b + i)
        if word_a != word_b:
            return -1 if word_a < word_b else 1
        i += 8
    while i < common:
        byte_a, byte_b = data_a[start_a + i], data_b[start_b + i]
        if byte_a != byte_b:
            return -1 if byte_a < byte_b else 1
        i += 1
    return 0 if size_a == size_b else -1 if size_a < size_b else 1


@compiled
def prefixes(data: Array, starts: Array, ends: Array) -> Array:
    """:func:`prefix` of every span."""
    keys = np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        keys[i] = prefix(data, starts[i], ends[i])
    return keys


@compiled
def extent(starts: Array, ends: Array) -> tuple[Any, Any]:
    """The least start and the greatest end over the spans that are not empty; (0, 0) if there is none."""
    low, high = np.int64(2**62), np.int64(0)
    for i in range(len(starts)):
        if ends[i] > starts[i]:
            low, high = min(low, np.int64(starts[i])), max(high, np.int64(ends[i]))
    return (low, high) if high else (np.int64(0), np.int64(0))


@compiled
def total_bytes(starts: Array, ends: Array) -> Any:
    """The total bytes of all spans, which may overlap or repeat and so exceed the buffer."""
    total = np.int64(0)
    for i in range(len(starts)):
        total += np.int64(ends[i]) - np.int64(starts[i])
    return total


@compiled
def most_pieces(starts: Array, ends: Array) -> Any:
    """A bound on the pieces, none of them empty, that separators of one byte or more leave of all spans together."""
    bound = np.int64(0)
    for i in range(len(starts)):
        bound += (np.int64(ends[i]) - np.int64(starts[i]) + 1) >> 1
    return bound


@compiled
def shift_spans(starts: Array, ends: Array, shift: int) -> tuple[Array, Array]:
    """The spans ``shift`` bytes further on; empty ones, which may lie anywhere, at 0."""
    new_starts, new_ends = np.zeros(len(starts), np.int32), np.zeros(len(starts), np.int32)
    for i in range(len(starts)):
        if ends[i] > starts[i]:
            new_starts[i], new_ends[i] = starts[i] + shift, ends[i] + shift
    return new_starts, new_ends


@compiled
def _adjacent(starts: Array, ends: Array) -> bool:
    for i in range(1, len(starts)):  # noqa: SIM110 - numba compiles no generators
        if starts[i] != ends[i - 1]:
            return False
    return True


@compiled
def _offsets(starts: Array, ends: Array) -> Array:
    offsets = np.empty(len(starts) + 1, np.int32)
    offsets[0] = 0
    for i in range(len(starts)):
        offsets[i + 1] = offsets[i] + (ends[i] - starts[i])
    return offsets


@uncounted
def copy_bytes(source: Array, start: int, size: int, target: Array, at: int) -> None:
    """``size`` bytes from one buffer to another."""
    for j in range(size):
        target[at + j] = source[start + j]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _copy_block(typing_context: Any, source: Any, start: Any, target: Any, at: Any) -> Any:
    """32 bytes from one uint8 array to another. The caller keeps within both."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), _BLOCK)
        pointers = []
        for kind, array, position in ((signature.args[0], args[0], args[1]), (signature.args[2], args[2], args[3])):
            held = context.make_array(kind)(context, builder, array)
            check_load(context, builder, held, position, _BLOCK)
            pointers.append(builder.bitcast(builder.gep(held.data, [position]), vector.as_pointer()))
        builder.store(builder.load(pointers[0], align=1), pointers[1], align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), codegen


@inlined
def copy_over(source: Array, start: Any, size: Any, target: Array, at: Any) -> None:
    """As :func:`copy_bytes`, faster; also overwrites up to 31 bytes behind, which the caller writes afterwards."""
    if start + size + _BLOCK <= len(source) and at + size + _BLOCK <= len(target):
        done = np.int64(0)
        while done < size:
            _copy_block(source, start + done, target, at + done)
            done += _BLOCK
    else:
        copy_bytes(source, start, size, target, at)


@compiled
def _gather(data: Array, starts: Array, ends: Array, offsets: Array) -> Array:
    gathered = np.empty(offsets[-1], np.uint8)
    for i in range(len(starts)):
        copy_over(data, np.int64(starts[i]), np.int64(ends[i] - starts[i]), gathered, np.int64(offsets[i]))
    return gathered


def gather_spans(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Spans next to each other: (int32 offsets with one more entry than spans, their bytes).

    Bytes are copied only if the spans are not adjacent already. Raises :class:`~transforms.errors.DataError` for more
    bytes than 32-bit positions can count.
    """
    data, starts, ends = frozen(data), frozen(starts), frozen(ends)
    adjacent = len(starts) > 0 and _adjacent(starts, ends)
    check_positions(int(ends[-1]) - int(starts[0]) if adjacent else total_bytes(starts, ends), "bytes of text")
    offsets: Array = _offsets(starts, ends)
    if adjacent:
        return offsets, data[starts[0] : ends[-1]]
    return offsets, _gather(data, starts, ends, offsets)


def frozen(array: Array) -> Array:
    """A read-only view, so that a kernel is compiled for one type of array only."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
