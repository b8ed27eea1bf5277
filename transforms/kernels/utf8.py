"""Checks of offsets and of the bytes of text, before any other kernel reads them.

Only these kernels accept unchecked data: they read the stated range in order, and follow a position from the data only
after its check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import types
from numba.extending import intrinsic

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, inlined, uncounted
from transforms.kernels.spans import check_load, load64

_CONTINUATION, _TOP_BITS = 0x80, 0xC0
#: The high bit of each of eight bytes.
_HIGH_BITS = np.uint64(0x8080808080808080)
_BLOCK = 64
#: A byte and the two limits of the byte behind it, where these are not those of every continuation (Unicode, table 3-7).
_NARROWED = ((0xE0, 0xA0, 0xC0), (0xED, 0x80, 0xA0), (0xF0, 0x90, 0xC0), (0xF4, 0x80, 0x90))


@compiled
def ascends(offsets: Array) -> Any:
    """Whether no offset is negative, nor less than the one before it."""
    seen = offsets[0]
    zero = seen ^ seen
    # In the offsets' own width, which is fast: without a negative one no difference wraps.
    for i in range(1, len(offsets)):
        seen |= offsets[i] | (offsets[i] - offsets[i - 1])
    return seen >= zero


@compiled
def is_ascii(data: Array) -> Any:
    """Whether every byte is below 128."""
    seen, whole = np.uint64(0), len(data) // 8
    for word in range(whole):
        seen |= load64(data, 8 * word)
    for i in range(8 * whole, len(data)):
        seen |= np.uint64(data[i])
    return (seen & _HIGH_BITS) == np.uint64(0)


@compiled
def cuts_character(data: Array, offsets: Array) -> bool:
    """Whether an offset, all of which lie within ``data`` or at its end, stands inside of a character."""
    cuts = 0
    for i in range(len(offsets)):
        at = offsets[i]
        if at < len(data):
            cuts += (data[at] & _TOP_BITS) == _CONTINUATION
    return cuts > 0


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _any_wrong(typing_context: Any, data: Any, at: Any) -> Any:
    """Whether one of 64 bytes cannot stand behind the three before it. The caller keeps ``at - 3`` and ``at + 64`` within.

    A byte is a continuation exactly where one of the three before it leads that far; the byte behind four of the leads has
    narrower limits; C0, C1 and F5 to FF are never there.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), _BLOCK)

        def every(byte: int) -> Any:
            return ir.Constant(vector, [byte] * _BLOCK)

        def behind(count: int) -> Any:
            position = builder.sub(args[1], ir.Constant(ir.IntType(64), count))
            check_load(context, builder, array, position, _BLOCK)
            pointer = builder.bitcast(builder.gep(array.data, [position]), vector.as_pointer())
            return builder.load(pointer, align=1)

        def is_(sign: str, block: Any, byte: int) -> Any:
            return builder.icmp_unsigned(sign, block, every(byte))

        array = context.make_array(signature.args[0])(context, builder, args[0])
        it, first, second, third = (behind(count) for count in range(4))
        continues = builder.icmp_unsigned("==", builder.and_(it, every(_TOP_BITS)), every(_CONTINUATION))
        led = builder.or_(is_(">=", first, 0xC0), builder.or_(is_(">=", second, 0xE0), is_(">=", third, 0xF0)))
        wrong = builder.xor(continues, led)
        never = builder.or_(is_("==", builder.and_(it, every(0xFE)), 0xC0), is_(">=", it, 0xF5))
        wrong = builder.or_(wrong, never)
        for lead, low, high in _NARROWED:
            outside = is_("<", it, low) if low > _CONTINUATION else is_(">=", it, high)
            wrong = builder.or_(wrong, builder.and_(is_("==", first, lead), outside))
        return builder.icmp_unsigned("!=", builder.bitcast(wrong, ir.IntType(64)), ir.Constant(ir.IntType(64), 0))

    return types.boolean(data, types.int64), codegen


@inlined
def _is_wrong(byte: Any, first: Any, second: Any, third: Any) -> Any:
    """As :func:`_any_wrong`, for one byte."""
    if ((byte & 0xC0) == 0x80) != (first >= 0xC0 or second >= 0xE0 or third >= 0xF0):
        return True
    if (byte & 0xFE) == 0xC0 or byte >= 0xF5:
        return True
    if (first == 0xE0 and byte < 0xA0) or (first == 0xF0 and byte < 0x90):
        return True
    return (first == 0xED and byte >= 0xA0) or (first == 0xF4 and byte >= 0x90)


@uncounted
def is_utf8(data: Array) -> bool:
    """Whether bytes are UTF-8 when they are read as one text."""
    size = len(data)
    at = np.int64(0)
    while at < size:
        if at >= 3 and at + _BLOCK <= size:
            if _any_wrong(data, at):
                return False
            at += _BLOCK
            continue
        first = data[at - 1] if at > 0 else np.uint8(0)
        second = data[at - 2] if at > 1 else np.uint8(0)
        third = data[at - 3] if at > 2 else np.uint8(0)
        if _is_wrong(data[at], first, second, third):
            return False
        at += 1
    cut = (size > 0 and data[size - 1] >= 0xC0) or (size > 1 and data[size - 2] >= 0xE0)
    return not (cut or (size > 2 and data[size - 3] >= 0xF0))
