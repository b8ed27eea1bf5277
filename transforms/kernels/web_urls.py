"""Compiled parts of the URL kernels: finding the parts of a URL in its bytes, and decoding what is escaped.

The grammar is that of :mod:`transforms.operators.addresses`. Parts that are not there start at -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.spans import copy_bytes

_COLON, _SLASH, _AT, _QUESTION, _HASH = ord(":"), ord("/"), ord("@"), ord("?"), ord("#")
_PERCENT, _PLUS, _SPACE, _AND, _EQUALS = ord("%"), ord("+"), ord(" "), ord("&"), ord("=")
_OPEN, _CLOSE, _DOT = ord("["), ord("]"), ord(".")
_NOT_IN_HOST = b'"#%/:<>?@[\\]^`{|}\x7f'

#: Whether a byte may stand in a host; bytes of characters beyond ASCII may.
IN_HOST = np.array([byte > 0x20 and byte not in _NOT_IN_HOST for byte in range(256)])
#: What a hexadecimal digit is worth; -1 for another byte.
HEX = np.array([int(chr(byte), 16) if chr(byte) in "0123456789abcdefABCDEF" else -1 for byte in range(256)], np.int8)
_IN_SCHEME = np.array([byte < 128 and (chr(byte).isalnum() or chr(byte) in "+-.") for byte in range(256)])


@uncounted
def is_digit(byte: Any) -> Any:
    """Whether a byte is a decimal digit."""
    return np.uint8(48) <= byte <= np.uint8(57)


@uncounted
def _scheme_end(data: Array, start: Any, end: Any) -> Any:
    """The position of the colon after the scheme; -1 without a scheme."""
    if start == end or not np.uint8(65) <= (data[start] & 0xDF) <= np.uint8(90):
        return np.int64(-1)
    for at in range(start + 1, end):
        if data[at] == _COLON:
            return np.int64(at)
        if not _IN_SCHEME[data[at]]:
            break
    return np.int64(-1)


@compiled
def schemes(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """The span of each URL's scheme."""
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        stop = _scheme_end(data, starts[row], ends[row])
        begins[row] = starts[row] if stop >= 0 else -1
        stops[row] = stop
    return begins, stops


@uncounted
def _authority(data: Array, start: Any, end: Any) -> tuple[Any, Any]:
    """The span of the authority; without one, (-1, where the path begins)."""
    begin = np.int64(_scheme_end(data, start, end) + 1)
    if begin == 0:
        begin = np.int64(start)
    if begin + 2 > end or data[begin] != _SLASH or data[begin + 1] != _SLASH:
        return np.int64(-1), begin
    stop = begin + 2
    while stop < end and data[stop] != _SLASH and data[stop] != _QUESTION and data[stop] != _HASH:
        stop += 1
    return begin + 2, stop


@uncounted
def _host(data: Array, start: Any, end: Any) -> tuple[Any, Any]:
    """The span of the host in an authority; (-1, -1) if it is malformed."""
    begin = start
    for at in range(start, end):
        if data[at] == _AT:
            begin = np.int64(at + 1)
    stop = begin
    if begin < end and data[begin] == _OPEN:
        stop += 1
        while stop < end and (HEX[data[stop]] >= 0 or data[stop] == _COLON or data[stop] == _DOT):
            stop += 1
        if stop == end or stop == begin + 1 or data[stop] != _CLOSE:
            return np.int64(-1), np.int64(-1)
        stop += 1
    else:
        while stop < end and IN_HOST[data[stop]]:
            stop += 1
    port = stop
    if port < end and data[port] == _COLON:
        port += 1
        while port < end and is_digit(data[port]):
            port += 1
    return (begin, stop) if stop > begin and port == end else (np.int64(-1), np.int64(-1))


@uncounted
def _is_bare_host(data: Array, start: Any, end: Any) -> bool:
    for at in range(start, end):
        if not IN_HOST[data[at]]:
            return False
    return bool(end > start)


@compiled
def hosts(data: Array, starts: Array, ends: Array, or_bare: bool) -> tuple[Array, Array]:
    """The span of each URL's host; with ``or_bare`` a text that is nothing but a host is one."""
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    for row in range(len(starts)):
        begin, stop = np.int64(starts[row]), np.int64(ends[row])
        if not or_bare or not _is_bare_host(data, begin, stop):
            begin, stop = _authority(data, begin, stop)
            if begin >= 0:
                begin, stop = _host(data, begin, stop)
        begins[row], stops[row] = begin, stop
    return begins, stops


@compiled
def path_segments(data: Array, starts: Array, ends: Array, bound: int) -> tuple[Array, Array, Array]:
    """(offsets, starts, ends) of the path segments that are not empty, at most ``bound``."""
    offsets, begins, stops = np.empty(len(starts) + 1, np.int32), np.empty(bound, np.int32), np.empty(bound, np.int32)
    count = 0
    offsets[0] = 0
    for row in range(len(starts)):
        end = np.int64(ends[row])
        _, begin = _authority(data, starts[row], end)
        at = begin
        while True:
            over = at == end or data[at] == _QUESTION or data[at] == _HASH
            if over or data[at] == _SLASH:
                if at > begin:
                    begins[count], stops[count] = begin, at
                    count += 1
                begin = at + 1
            if over:
                break
            at += 1
        offsets[row + 1] = count
    return offsets, begins[:count], stops[:count]


@uncounted
def _decoded_byte(data: Array, at: Any, end: Any, plus_is_space: bool) -> tuple[Any, Any]:
    """(The byte that stands at a position, how many bytes spell it)."""
    byte = data[at]
    if byte == _PERCENT and at + 2 < end and HEX[data[at + 1]] >= 0 and HEX[data[at + 2]] >= 0:
        return np.uint8(16 * np.int64(HEX[data[at + 1]]) + HEX[data[at + 2]]), 3
    return np.uint8(_SPACE) if plus_is_space and byte == _PLUS else byte, 1


@uncounted
def _is_name(data: Array, start: Any, end: Any, name: Array) -> bool:
    at, matched = start, 0
    while at < end:
        byte, size = _decoded_byte(data, at, end, True)
        if matched == len(name) or byte != name[matched]:
            return False
        matched += 1
        at += size
    return matched == len(name)


@uncounted
def _query_start(data: Array, start: Any, end: Any) -> Any:
    """The start of the query; ``end`` without one."""
    at = start
    while at < end and data[at] != _QUESTION and data[at] != _HASH:
        at += 1
    return at + 1 if at < end and data[at] == _QUESTION else end


@compiled
def parameter_values(data: Array, starts: Array, ends: Array, name: Array) -> tuple[Array, Array]:
    """The span of the value of each URL's first query parameter of this name, still encoded."""
    begins, stops = np.full(len(starts), -1, np.int32), np.full(len(starts), -1, np.int32)
    for row in range(len(starts)):
        end = np.int64(ends[row])
        at = _query_start(data, np.int64(starts[row]), end)
        while at < end:
            stop, key_end = at, np.int64(-1)
            while stop < end and data[stop] != _AND and data[stop] != _HASH:
                if key_end < 0 and data[stop] == _EQUALS:
                    key_end = stop
                stop += 1
            if _is_name(data, at, key_end if key_end >= 0 else stop, name):
                begins[row], stops[row] = key_end + 1 if key_end >= 0 else stop, stop
                break
            at = stop + 1 if stop < end and data[stop] == _AND else end
    return begins, stops


@compiled
def has_escape(data: Array, starts: Array, ends: Array, plus_is_space: bool) -> bool:
    """Whether any span has something to decode."""
    for row in range(len(starts)):
        for at in range(starts[row], ends[row]):
            if data[at] == _PERCENT or (plus_is_space and data[at] == _PLUS):
                return True
    return False


@compiled
def decoded(data: Array, starts: Array, ends: Array, plus_is_space: bool, total: int) -> tuple[Array, Array, Array]:
    """(data, starts, ends) of the texts, of ``total`` bytes, decoded; one whose escapes do not spell UTF-8 as it is written."""
    texts = np.empty(total, np.uint8)
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    to = 0
    for row in range(len(starts)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        begins[row] = to
        beyond_ascii = False
        while at < end:
            byte, size = _decoded_byte(data, at, end, plus_is_space)
            beyond_ascii |= size == 3 and byte >= 128
            texts[to] = byte
            to += 1
            at += size
        if beyond_ascii and not is_utf8(texts, begins[row], to):
            copy_bytes(data, starts[row], ends[row] - starts[row], texts, begins[row])
            to = begins[row] + ends[row] - starts[row]
        stops[row] = to
    return texts[:to], begins, stops


@compiled
def is_utf8(data: Array, start: Any, end: Any) -> bool:
    """Whether bytes are UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF."""
    at = start
    while at < end:
        lead = data[at]
        size = 1 if lead < 0x80 else 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4
        if size == 4 and not 0xF0 <= lead <= 0xF4:
            return False
        if at + size > end:
            return False
        for i in range(1, size):
            if (data[at + i] & 0xC0) != 0x80:
                return False
        if size > 2:
            second = data[at + 1]
            if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second >= 0xA0):
                return False
            if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second >= 0x90):
                return False
        at += size
    return True


@compiled
def has_upper(data: Array, starts: Array, ends: Array) -> bool:
    """Whether any span has an ASCII letter in upper case."""
    for row in range(len(starts)):
        for at in range(starts[row], ends[row]):
            if np.uint8(65) <= data[at] <= np.uint8(90):
                return True
    return False


@compiled
def lowered(data: Array, starts: Array, ends: Array, total: int) -> tuple[Array, Array, Array]:
    """(data, starts, ends) of the texts, of ``total`` bytes, next to each other with ASCII letters in lower case."""
    texts = np.empty(total, np.uint8)
    begins, stops = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    to = 0
    for row in range(len(starts)):
        begins[row] = to
        for at in range(starts[row], ends[row]):
            byte = data[at]
            texts[to] = byte | np.uint8(32) if np.uint8(65) <= byte <= np.uint8(90) else byte
            to += 1
        stops[row] = to
    return texts, begins, stops
