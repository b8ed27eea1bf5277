"""Compiled parts of ``ip_prefix``: reading IP addresses and writing their networks, as numbers of 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.decimals import write_decimal
from transforms.kernels.web_urls import HEX, is_digit

#: ``xxxx:`` seven times, ``xxxx`` and ``/128``.
PREFIX_BYTES_MAX = 43
_COLON, _DOT, _SLASH, _OPEN, _CLOSE = ord(":"), ord("."), ord("/"), ord("["), ord("]")
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@uncounted
def _read_v4(data: Array, start: Any, end: Any) -> Any:
    """The address as a number; -1 if this is none."""
    address, octets, at = np.int64(0), 0, start
    while octets < 4:
        octet, begin = np.int64(0), at
        while at < end and is_digit(data[at]) and at < begin + 3:
            octet = 10 * octet + np.int64(data[at]) - 48
            at += 1
        if at == begin or octet > 255 or (at > begin + 1 and data[begin] == 48):
            return np.int64(-1)
        address = (address << 8) | octet
        octets += 1
        if octets < 4:
            if at == end or data[at] != _DOT:
                return np.int64(-1)
            at += 1
    return address if at == end else np.int64(-1)


@compiled
def _read_v6(data: Array, start: Any, end: Any, groups: Array) -> bool:
    """Whether this is an IPv6 address; if so ``groups`` holds its eight numbers."""
    count, gap, at = 0, -1, start
    if end - start < 2 or (data[start] == _COLON and data[start + 1] != _COLON):
        return False
    if data[start] == _COLON:
        gap, at = 0, start + 2
    while at < end:
        begin, group = at, np.int64(0)
        while at < end and HEX[data[at]] >= 0 and at < begin + 4:
            group = 16 * group + HEX[data[at]]
            at += 1
        if at < end and data[at] == _DOT and count <= 6:
            v4 = _read_v4(data, begin, end)
            if v4 < 0:
                return False
            groups[count], groups[count + 1] = v4 >> 16, v4 & 0xFFFF
            count += 2
            break
        if at == begin or count == 8:
            return False
        groups[count] = group
        count += 1
        if at == end:
            break
        at += 1
        if data[at - 1] != _COLON or at == end:
            return False
        if data[at] == _COLON:
            if gap >= 0:
                return False
            gap = count
            at += 1
    if gap < 0:
        return count == 8
    return count < 8 and _fill_gap(groups, count, gap)


@uncounted
def _fill_gap(groups: Array, count: Any, gap: Any) -> bool:
    """Move the groups behind ``::`` to the end, with zeros between; True."""
    for i in range(1, count - gap + 1):
        groups[8 - i] = groups[count - i]
    for i in range(gap, 8 - (count - gap)):
        groups[i] = 0
    return True


@compiled
def _write_v4(address: Any, texts: Array, to: Any) -> Any:
    for shift in range(24, -1, -8):
        to += write_decimal(np.int64((address >> shift) & 255), texts, to)
        if shift:
            texts[to] = _DOT
            to += 1
    return to


@uncounted
def _longest_zeros(groups: Array) -> tuple[Any, Any]:
    """(first, count) of the first longest run of at least two groups of zero; (8, 0) without one."""
    first, longest = 8, 0
    for start in range(8):
        size = 0
        while start + size < 8 and groups[start + size] == 0:
            size += 1
        if size >= 2 and size > longest:
            first, longest = start, size
    return first, longest


@compiled
def _write_v6(groups: Array, texts: Array, to: Any) -> Any:
    """Canonical text as RFC 5952, section 4, has it."""
    first, zeros = _longest_zeros(groups)
    i = 0
    while i < 8:
        if i == first:
            texts[to], texts[to + 1] = _COLON, _COLON
            to += 2
            i += zeros
            continue
        if i > 0 and i != first + zeros:
            texts[to] = _COLON
            to += 1
        shift = 12
        while shift > 0 and groups[i] >> shift == 0:
            shift -= 4
        while shift >= 0:
            texts[to] = _DIGITS[(groups[i] >> shift) & 15]
            to += 1
            shift -= 4
        i += 1
    return to


@compiled
def _is_mapped(groups: Array) -> bool:
    for i in range(5):
        if groups[i]:
            return False
    return bool(groups[5] == 0xFFFF)


@compiled
def prefixes(data: Array, starts: Array, ends: Array, v4_bits: int, v6_bits: int) -> tuple[Array, Array, Array, Array]:
    """(data, starts, ends, valid) of the networks' texts."""
    texts, groups = np.empty(len(starts) * PREFIX_BYTES_MAX, np.uint8), np.zeros(8, np.int64)
    begins, stops = np.zeros(len(starts), np.int32), np.zeros(len(starts), np.int32)
    valid = np.zeros(len(starts), np.bool_)
    to = 0
    for row in range(len(starts)):
        start, end = np.int64(starts[row]), np.int64(ends[row])
        v4 = _read_v4(data, start, end)
        v6 = False
        if v4 < 0:
            if end - start > 2 and data[start] == _OPEN and data[end - 1] == _CLOSE:
                start, end = start + 1, end - 1
            v6 = _read_v6(data, start, end, groups)
            if v6 and _is_mapped(groups):
                v4, v6 = (groups[6] << 16) | groups[7], False
        if v4 < 0 and not v6:
            continue
        begins[row], valid[row] = to, True
        if v6:
            for i in range(8):
                groups[i] &= 0xFFFF << min(max(16 * (i + 1) - v6_bits, 0), 16)
            to = _write_v6(groups, texts, to)
        else:
            to = _write_v4(v4 >> (32 - v4_bits) << (32 - v4_bits), texts, to)
        texts[to] = _SLASH
        to += 1
        to += write_decimal(np.int64(v6_bits if v6 else v4_bits), texts, to)
        stops[row] = to
    return texts[:to], begins, stops, valid
