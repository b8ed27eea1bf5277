"""Decoding of a file's integer segments: one compiled call decodes many, since a call from Python costs as much as 10,000 values.

A row of ``jobs`` (int64) describes a segment and what it becomes. :func:`measure` checks each row by itself, before any memory is
allocated: its bytes are those of its encoding. It does not check ``FIRST`` and ``PLACE``: the caller keeps the bytes of each row
within the stored words (``_Segments._inside``) and its output within the arena (``_Segments._decode``). Only with both does no
content make :func:`decode` read or write out of bounds.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled
from warehouse.files.memo_format.bit_packing import LANES, LONGEST_CODE_BITS, to_offsets, unpack, unpack_terms, words_of
from warehouse.files.memo_format.encoding import Codec

#: What a segment becomes: 64-bit or 32-bit numbers, or 32-bit offsets, the sums of its values.
INT64, INT32, OFFSETS = 0, 1, 2
#: The columns of ``jobs``: the segment's first word among the stored words, its bytes, its encoding, and the output: its role,
#: its length in words of 64 bits, and its first word in the arena.
FIRST, STORED_BYTES, VALUES, BASE, TERMS, CODEC, WIDTH, CODE_WIDTH, ROLE, SIZE, PLACE = range(11)
JOB_FIELDS = 11
#: The entries of the table of terms.
TABLE_LENGTH = 1 << LONGEST_CODE_BITS
#: More than any file holds, and far from the limits of the arithmetic.
_MOST_VALUES = 1 << 40
_RAW, _PACKED, _TERMS = int(Codec.RAW), int(Codec.PACKED), int(Codec.TERMS)


@compiled
def measure(jobs: Array, constants: int) -> int:
    """Set the output size of each job; returns the first whose bytes do not match its encoding, or -1.

    A job must not have more than ``constants`` values without stored bytes.
    """
    for i in range(len(jobs)):
        job = jobs[i]
        count, codec, width, code_width = job[VALUES], job[CODEC], job[WIDTH], job[CODE_WIDTH]
        item_bytes = 8 if job[ROLE] == INT64 else 4
        if count < 0 or count > _MOST_VALUES or width > 64:
            return i
        if codec == _RAW:
            expected, free = count * item_bytes, False
        elif codec == _PACKED:
            expected, free = 8 * words_of(count, width), width == 0
        elif codec == _TERMS and code_width <= LONGEST_CODE_BITS and 1 <= job[TERMS] <= 1 << code_width:
            expected, free = 8 * (words_of(job[TERMS], width) + words_of(count, code_width)), code_width == 0
        else:
            return i
        if job[STORED_BYTES] != expected or (free and count > constants):
            return i
        length = count + (1 if job[ROLE] == OFFSETS else 0)
        job[SIZE] = (length * item_bytes + 7) // 8
    return -1


@compiled
def decode(words: Array, jobs: Array, table: Array, arena: Array, narrow: Array) -> int:
    """Decode measured jobs into ``arena`` (int64), of which ``narrow`` is the int32 view.

    ``words``: the stored bytes as uint64. ``table``: :data:`TABLE_LENGTH` int64. Returns the first job with a
    negative length or with lengths that add up to 2^31 or more, or -1.
    """
    for i in range(len(jobs)):
        job = jobs[i]
        count, first = job[VALUES], job[PLACE]
        stored = words[job[FIRST] : job[FIRST] + (job[STORED_BYTES] + 7) // 8]
        if job[ROLE] == INT64:
            wide = arena[first : first + count]
            if job[CODEC] == _RAW:
                wide[:] = stored.view(np.int64)
            else:
                _decode_packed(stored, job, table, wide)
        else:
            start = 2 * first + (1 if job[ROLE] == OFFSETS else 0)
            out = narrow[start : start + count]
            if job[CODEC] == _RAW:
                out[:] = stored.view(np.int32)[:count]
            else:
                _decode_packed(stored, job, table, out)
            if job[ROLE] == OFFSETS and to_offsets(out, narrow[start - 1 : start + count]) < 0:
                return i
    return -1


@compiled
def _decode_packed(stored: Array, job: Array, table: Array, out: Array) -> None:
    base, width, code_width, terms = job[BASE], job[WIDTH], job[CODE_WIDTH], job[TERMS]
    if job[CODEC] == _PACKED:
        _unpack_or_fill(stored, base, width, out)
        return
    head = words_of(terms, width)
    _unpack_or_fill(stored[:head], base, width, table[:terms])
    table[terms : 1 << code_width] = 0
    if code_width == 0:
        out[:] = table[0]
    else:
        unpack_terms(stored[head:], code_width, table[: 1 << code_width], out, LANES)


@compiled
def _unpack_or_fill(stored: Array, base: int, width: int, out: Array) -> None:
    if width == 0:
        out[:] = base
    else:
        unpack(stored, base, width, out, LANES)
