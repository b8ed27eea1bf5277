"""Pages of text columns in Parquet files: headers, levels, codes and texts.

The bytes are untrusted: each position is checked before it is read. A function returns -1 or False for bytes that it does not
decode, damaged ones and rare ones alike; the caller then leaves the column to Arrow, which decodes all of them or raises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.positions import POSITION_MAX
from transforms.kernels.compiled import compiled, inlined, uncounted
from transforms.kernels.spans import copy_over, load32, load64

#: The fields of a page in the table of :func:`write_pages`.
KIND, BODY, STORED_BYTES, BYTES, VALUES, ENCODING = range(6)
PAGE_FIELDS = 6
#: Kinds of pages and encodings, as in Parquet's ``PageType`` and ``Encoding``.
DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8

#: Nested structures of a header that are skipped; those of the format have two levels.
_DEPTH = 8
#: Where a header's numbers go: three of the page, four of a data page, three of a dictionary page.
_DATA_FIELDS, _DICTIONARY_FIELDS, _HEADER_FIELDS = 3, 7, 10
_DATA_STRUCT, _DICTIONARY_STRUCT = 5, 7
#: Thrift's compact types.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12
_WIDEST_CODE = 32
_MOST_GROUPS = 2**28


@inlined
def _varint(data: Array, at: Any, end: Any) -> Any:
    """(a number of at most 63 bits, the position behind it); the position is -1 for another one."""
    value, shift = np.int64(0), np.int64(0)
    at = np.int64(at)
    while at < end and shift < 63:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(0), np.int64(-1)


@inlined
def _unzigzag(number: Any) -> Any:
    return (number >> 1) ^ -(number & 1)


@uncounted
def _read_header(data: Array, at: Any, end: Any, ids: Array, header: Array) -> Any:
    """Read the header of a page, Thrift's compact protocol; return the position behind it, or -1."""
    header[:] = -1
    ids[0] = 0
    depth = np.int64(0)
    while 0 <= at < end:
        byte = np.int64(data[at])
        at += 1
        if byte == 0:
            if depth == 0:
                return at
            depth -= 1
            continue
        kind, delta = byte & 15, byte >> 4
        if delta:
            ids[depth] += delta
        else:
            number, at = _varint(data, at, end)
            if at < 0:
                return np.int64(-1)
            ids[depth] = _unzigzag(number)
        field = ids[depth]
        if kind == _BYTE:
            at += 1
        elif kind == _DOUBLE:
            at += 8
        elif kind == _I16 or kind == _I32 or kind == _I64:  # noqa: SIM109 - numba
            number, at = _varint(data, at, end)
            number = _unzigzag(number)
            if depth == 0 and 1 <= field <= 3:
                header[field - 1] = number
            elif depth == 1 and ids[0] == _DATA_STRUCT and 1 <= field <= 4:
                header[_DATA_FIELDS + field - 1] = number
            elif depth == 1 and ids[0] == _DICTIONARY_STRUCT and 1 <= field <= 2:
                header[_DICTIONARY_FIELDS + field - 1] = number
        elif kind == _BINARY:
            number, at = _varint(data, at, end)
            if at < 0 or number > end - at:
                return np.int64(-1)
            at += number
        elif kind == _STRUCT and depth + 1 < _DEPTH:
            depth += 1
            ids[depth] = 0
        elif kind != _TRUE and kind != _FALSE:
            return np.int64(-1)
    return np.int64(-1)


@compiled
def write_pages(chunk: Array, values: int, pages: Array) -> Any:
    """Write one row of :data:`PAGE_FIELDS` a page until the data pages hold ``values`` values.

    Returns the number of pages, which may exceed the rows of ``pages``: the rest are not written. -1 for bytes that are not a
    column chunk of at most one dictionary page and data pages of version 1, or whose data pages hold more values.
    """
    ids, header = np.zeros(_DEPTH, np.int64), np.empty(_HEADER_FIELDS, np.int64)
    at, seen, count = np.int64(0), np.int64(0), 0
    while seen < values:
        at = _read_header(chunk, at, len(chunk), ids, header)
        kind, size, stored = header[0], header[1], header[2]
        if at < 0 or size < 0 or stored < 0 or size > POSITION_MAX or stored > len(chunk) - at:
            return -1
        if kind == DATA_PAGE:
            held, encoding = header[_DATA_FIELDS], header[_DATA_FIELDS + 1]
            if held < 0 or held > values - seen or header[_DATA_FIELDS + 2] != RLE:
                return -1
            seen += held
        elif kind == DICTIONARY_PAGE and count == 0:
            held, encoding = header[_DICTIONARY_FIELDS], header[_DICTIONARY_FIELDS + 1]
        else:
            return -1
        if count < len(pages):
            pages[count, KIND], pages[count, BODY] = kind, at
            pages[count, STORED_BYTES], pages[count, BYTES] = stored, size
            pages[count, VALUES], pages[count, ENCODING] = held, encoding
        count += 1
        at += stored
    return count


@uncounted
def read_levels(data: Array, at: Any, end: Any, levels: Array) -> Any:
    """Fill ``levels`` with the definition levels, 0 or 1, at a position; return the sum of them, or -1."""
    count, defined = np.int64(0), np.int64(0)
    at = np.int64(at)
    while count < len(levels):
        run, at = _varint(data, at, end)
        size = run >> 1
        if at < 0 or size == 0 or size > _MOST_GROUPS:
            return np.int64(-1)
        if run & 1:
            if size > end - at:
                return np.int64(-1)
            whole = min(size, (len(levels) - count) >> 3)
            for i in range(whole):
                byte, first = data[at + i], count + 8 * i
                for bit in range(8):
                    level = (byte >> np.uint8(bit)) & np.uint8(1)
                    levels[first + bit] = level
                    defined += level
            count += 8 * whole
            if whole < size:
                byte = data[at + whole]
                for bit in range(len(levels) - count):
                    level = (byte >> np.uint8(bit)) & np.uint8(1)
                    levels[count] = level
                    defined += level
                    count += 1
            at += size
        else:
            if at >= end or data[at] > 1:
                return np.int64(-1)
            stop = min(count + size, len(levels))
            defined += (stop - count) * data[at]
            levels[count:stop] = data[at]
            count = stop
            at += 1
    return defined


@uncounted
def read_codes(data: Array, at: Any, codes: Array) -> bool:
    """Fill ``codes`` with the codes at a position, behind the byte of their width. A code may exceed the dictionary."""
    count, wanted, end = np.int64(0), len(codes), len(data)
    if wanted == 0:
        return True
    if at >= end or data[at] > _WIDEST_CODE:
        return False
    width = np.int64(data[at])
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    at = np.int64(at) + 1
    while count < wanted:
        run, at = _varint(data, at, end)
        size = run >> 1
        if at < 0 or size == 0 or size > _MOST_GROUPS:
            return False
        if run & 1:
            if size * width > end - at:
                return False
            here = min(8 * size, wanted - count)
            whole = np.int64(0)  # values whose eight bytes are all within the data
            if width and end - at >= 8:
                whole = min(here, ((end - at - 8) * 8) // width + 1)
            for i in range(whole):
                bit = i * width
                word = load64(data, at + (bit >> 3)) >> np.uint64(bit & 7)
                codes[count + i] = np.int32(word & mask)
            for i in range(whole, here):
                bit = i * width
                word = np.uint64(0)
                for byte in range(bit >> 3, (bit + width + 7) >> 3):
                    word |= np.uint64(data[at + byte]) << np.uint64(8 * (byte - (bit >> 3)))
                codes[count + i] = np.int32((word >> np.uint64(bit & 7)) & mask)
            at += size * width
        else:
            here, bytes_of = min(size, wanted - count), (width + 7) >> 3
            if bytes_of > end - at:
                return False
            word = np.uint64(0)
            for byte in range(bytes_of):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            codes[count : count + here] = np.int32(word)
            at += bytes_of
        count += here
    return True


@inlined
def _all_below(codes: Array, count: Any, distinct: Any) -> Any:
    greatest = np.uint32(0)
    for i in range(count):
        greatest = max(greatest, np.uint32(codes[i]))
    return count == 0 or np.int64(greatest) < distinct


@uncounted
def read_nullable(data: Array, levels: Array) -> Any:
    """(the rows that are not null, the position behind the levels) of a page that begins with levels; -1 for both otherwise."""
    bad = np.int64(-1), np.int64(-1)
    if len(data) < 4:
        return bad
    end = 4 + np.int64(load32(data, np.int64(0)))
    if end > len(data):
        return bad
    defined = read_levels(data, np.int64(4), end, levels)
    return bad if defined < 0 else (defined, end)


@uncounted
def read_checked_codes(data: Array, at: Any, distinct: int, codes: Array) -> bool:
    """As :func:`read_codes`; False also for a code of ``distinct`` or more."""
    return read_codes(data, at, codes) and _all_below(codes, len(codes), distinct)


@compiled
def read_coded_page(data: Array, nullable: bool, distinct: int, levels: Array, codes: Array, rows: Array) -> Any:
    """Write the code of each row of a page, ``distinct`` for a null one; return the number of nulls, or -1.

    ``levels`` and ``codes`` are overwritten; ``levels`` has at least as many entries as ``rows``, ``codes`` one more.
    """
    size, defined, at = len(rows), np.int64(len(rows)), np.int64(0)
    if nullable:
        defined, at = read_nullable(data, levels[:size])
        if defined < 0:
            return np.int64(-1)
    if defined == size:
        return np.int64(0) if read_checked_codes(data, at, distinct, rows) else np.int64(-1)
    if not read_checked_codes(data, at, distinct, codes[:defined]):
        return np.int64(-1)
    null, taken = np.int32(distinct), np.int64(0)
    for row in range(size):
        rows[row] = codes[taken] if levels[row] else null
        taken += levels[row]
    return size - defined


@compiled
def measure_plain(data: Array, at: Any, levels: Array, offsets: Array) -> Any:
    """Continue ``offsets``, whose first is set, over the texts at a position. ``levels`` is empty where none is null."""
    end, total, nullable = len(data), np.int64(offsets[0]), len(levels) > 0
    at = np.int64(at)
    for row in range(len(offsets) - 1):
        if not nullable or levels[row]:
            if end - at < 4:
                return False
            size = np.int64(load32(data, at))
            at += 4
            if size > end - at:
                return False
            at += size
            total += size
        offsets[row + 1] = np.int32(total)
    return total <= POSITION_MAX


@compiled
def copy_plain(data: Array, at: Any, levels: Array, offsets: Array, texts: Array) -> None:
    """Copy the texts that :func:`measure_plain` measured to their offsets."""
    nullable = len(levels) > 0
    at = np.int64(at)
    for row in range(len(offsets) - 1):
        if not nullable or levels[row]:
            size = np.int64(offsets[row + 1] - offsets[row])
            copy_over(data, at + 4, size, texts, np.int64(offsets[row]))
            at += 4 + size


@compiled
def measure_coded(codes: Array, levels: Array, distinct: Array, offsets: Array) -> Any:
    """As :func:`measure_plain`, for codes into texts with the offsets ``distinct``. The caller has checked the codes."""
    total, nullable, at = np.int64(offsets[0]), len(levels) > 0, np.int64(0)
    for row in range(len(offsets) - 1):
        if not nullable or levels[row]:
            total += distinct[codes[at] + 1] - distinct[codes[at]]
            at += 1
        offsets[row + 1] = np.int32(total)
    return total <= POSITION_MAX


@compiled
def copy_coded(codes: Array, levels: Array, distinct: Array, data: Array, offsets: Array, texts: Array) -> None:
    """Copy the texts that :func:`measure_coded` measured to their offsets."""
    nullable, at = len(levels) > 0, np.int64(0)
    for row in range(len(offsets) - 1):
        if not nullable or levels[row]:
            size = np.int64(offsets[row + 1] - offsets[row])
            copy_over(data, np.int64(distinct[codes[at]]), size, texts, np.int64(offsets[row]))
            at += 1
