"""Kernels of the text family. Tokens are spans over the text they came from: no bytes move.

Compiled code lowers and normalises ASCII. A text with other characters that change goes through Python's tables, once per
distinct text (dictionary encoding).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.columns.positions import check_positions
from transforms.errors import DataError
from transforms.kernels import text_tables
from transforms.kernels.buffers import piece_bound, positions, spans
from transforms.kernels.compiled import compiled, uncounted
from transforms.kernels.spans import copy_over, extent, frozen, gather_spans
from transforms.kernels.text_tables import rows_with
from transforms.kernels.words import all_words
from transforms.operators import unicode14


def lower(column: Column) -> Column:
    """Lower case, for text or lists of text."""
    if isinstance(column, RaggedItems):
        return RaggedItems(column.offsets, _lower(_as_strings(column.items)))
    return _lower(_as_strings(column))


def upper(column: Column) -> Column:
    """Upper case."""
    strings = _as_strings(column)
    data, starts, ends = spans(strings)
    raised, is_ascii = _upper_ascii(data, *extent(starts, ends))
    plain = Strings(raised, starts, ends, strings.valid)
    if is_ascii:
        return plain
    return _map_rows(plain, rows_with(text_tables.raised(), data, starts, ends), unicode14.upper, original=data)


def normalize(column: Column) -> Column:
    """NFKC, for text or lists of text. ASCII is in that form already."""
    if isinstance(column, RaggedItems):
        return RaggedItems(column.offsets, _normalize(_as_strings(column.items)))
    return _normalize(_as_strings(column))


def split(column: Column, *, sep: str) -> Column:
    """The non-empty pieces between separators."""
    strings = _as_strings(column)
    separator = frozen(np.frombuffer(sep.encode(), np.uint8))
    data, starts, ends = spans(strings)
    return _tokens(strings, _split(data, starts, ends, separator, piece_bound(starts, ends)))


def unigrams(column: Column) -> Column:
    """The pieces between white space."""
    strings = _as_strings(column)
    data, starts, ends = spans(strings)
    return _tokens(strings, all_words(data, starts, ends, piece_bound(starts, ends)))


def char_ngrams(column: Column, *, n: int) -> Column:
    """Overlapping spans of n code points."""
    strings = _as_strings(column)
    data, starts, ends = spans(strings)
    offsets = _window_offsets(_code_points(data, starts, ends), n)
    check_positions(int(offsets[-1]), "character n-grams")
    return _tokens(strings, (offsets.astype(np.int32), *_char_windows(data, starts, ends, offsets, n)))


def length(column: Column) -> Column:
    """Code points of each text."""
    return Numbers(_code_points(*spans(_as_strings(column))))


def ngrams(column: Column, *, n: int, joiner: str) -> Column:
    """n neighbouring tokens joined. Bytes are copied only for n > 1."""
    if not isinstance(column, RaggedItems):
        raise DataError("the argument of ngrams must be lists of text", value=type(column).__name__)
    if n == 1:
        return column
    tokens = spans(_as_strings(column.items))
    between = frozen(np.frombuffer(joiner.encode(), np.uint8))
    token_offsets = positions(column.offsets)
    offsets = _window_offsets(frozen(np.diff(token_offsets).astype(np.int64)), n)
    check_positions(int(offsets[-1]), "n-grams")
    ends = _joined_ends(*tokens[1:], token_offsets, offsets, n, len(between))
    check_positions(int(ends[-1]) if len(ends) else 0, "bytes of n-grams")
    data = _join(*tokens, token_offsets, offsets, ends, n, between)
    starts = np.concatenate([np.zeros(1, np.int32), ends[:-1]]).astype(np.int32) if len(ends) else ends.astype(np.int32)
    return RaggedItems(offsets.astype(np.int32), Strings(data, starts, ends.astype(np.int32)))


def _as_strings(column: Column) -> Strings:
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    return column


def _tokens(strings: Strings, parts: tuple[Array, Array, Array]) -> RaggedItems:
    offsets, starts, ends = parts
    return RaggedItems(offsets, Strings(strings.data, starts, ends))


def _lower(strings: Strings) -> Strings:
    data, starts, ends = spans(strings)
    low, high = extent(starts, ends)
    lowered, is_ascii = _lower_ascii(data, low, high)
    plain = Strings(lowered, starts, ends, strings.valid)
    if is_ascii:
        return plain
    return _map_rows(plain, rows_with(text_tables.lowered(), data, starts, ends), unicode14.lower, original=data)


def _normalize(strings: Strings) -> Strings:
    data, starts, ends = spans(strings)
    if _is_ascii(data, *extent(starts, ends)):
        return strings
    picks = rows_with(text_tables.normalized(), data, starts, ends)
    return _map_rows(strings, picks, unicode14.normalize, original=data)


def _map_rows(strings: Strings, picks: Array, change: Callable[[str], str], original: Array) -> Strings:
    """Apply ``change`` to every distinct text of some rows of ``original``; the results are appended to the buffer."""
    data, starts, ends = spans(strings)
    if len(picks) == 0:
        return strings
    offsets, texts = gather_spans(original, starts[picks], ends[picks])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(texts))]
    encoded = pc.dictionary_encode(pa.Array.from_buffers(pa.string(), len(picks), buffers))
    changed = [change(text).encode() for text in encoded.dictionary.to_pylist()]
    ends_of = len(data) + np.cumsum([0, *map(len, changed)])
    check_positions(int(ends_of[-1]), "bytes of text")
    indices = numpy_of(encoded.indices)
    new_starts, new_ends = starts.copy(), ends.copy()
    new_starts[picks], new_ends[picks] = ends_of[indices], ends_of[indices + 1]
    extended = np.concatenate([data, np.frombuffer(b"".join(changed), np.uint8)])
    return Strings(extended, new_starts, new_ends, strings.valid)


@compiled
def _lower_ascii(data: Array, low: int, high: int) -> tuple[Array, Any]:
    """The buffer with A to Z lowered between two positions, and whether all bytes there are ASCII."""
    lowered = np.empty(high, np.uint8)
    seen = np.uint8(0)
    for i in range(low, high):
        byte = data[i]
        seen |= byte
        lowered[i] = byte | np.uint8(32) if np.uint8(65) <= byte <= np.uint8(90) else byte
    return lowered, seen < np.uint8(128)


@compiled
def _upper_ascii(data: Array, low: int, high: int) -> tuple[Array, Any]:
    """The buffer with a to z raised between two positions, and whether all bytes there are ASCII."""
    raised = np.empty(high, np.uint8)
    seen = np.uint8(0)
    for i in range(low, high):
        byte = data[i]
        seen |= byte
        raised[i] = byte & np.uint8(0xDF) if np.uint8(97) <= byte <= np.uint8(122) else byte
    return raised, seen < np.uint8(128)


@compiled
def _is_ascii(data: Array, low: int, high: int) -> Any:
    seen = np.uint8(0)
    for i in range(low, high):
        seen |= data[i]
    return seen < np.uint8(128)


@uncounted
def _matches(data: Array, at: Any, pattern: Array) -> bool:
    for j in range(1, len(pattern)):  # noqa: SIM110 - numba compiles no generators
        if data[at + j] != pattern[j]:
            return False
    return True


@compiled
def _split(data: Array, starts: Array, ends: Array, separator: Array, bound: int) -> tuple[Array, Array, Array]:
    first, size = separator[0], len(separator)
    offsets, begins, stops = np.empty(len(starts) + 1, np.int32), np.empty(bound, np.int32), np.empty(bound, np.int32)
    count = 0
    offsets[0] = 0
    for row in range(len(starts)):
        at, end = np.int64(starts[row]), np.int64(ends[row])
        begin = at
        while at + size <= end:
            if data[at] == first and _matches(data, at, separator):
                if at > begin:
                    begins[count], stops[count] = begin, at
                    count += 1
                at += size
                begin = at
            else:
                at += 1
        if end > begin:
            begins[count], stops[count] = begin, end
            count += 1
        offsets[row + 1] = count
    return offsets, begins[:count], stops[:count]


@compiled
def _code_points(data: Array, starts: Array, ends: Array) -> Array:
    counts = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        count = 0
        for i in range(starts[row], ends[row]):
            count += (data[i] & 0xC0) != 0x80
        counts[row] = count
    return counts


@compiled
def _window_offsets(counts: Array, n: int) -> Array:
    """int64 offsets of the windows of n neighbours over lists of the given lengths."""
    offsets = np.empty(len(counts) + 1, np.int64)
    offsets[0] = 0
    for row in range(len(counts)):
        offsets[row + 1] = offsets[row] + max(counts[row] - n + 1, 0)
    return offsets


@uncounted
def _next_code_point(data: Array, at: Any, end: Any) -> Any:
    at += 1
    while at < end and (data[at] & 0xC0) == 0x80:
        at += 1
    return at


@compiled
def _char_windows(data: Array, starts: Array, ends: Array, offsets: Array, n: int) -> tuple[Array, Array]:
    begins, stops = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    for row in range(len(starts)):
        begin = stop = np.int64(starts[row])
        end = np.int64(ends[row])
        if offsets[row + 1] > offsets[row]:
            for _ in range(n - 1):
                stop = _next_code_point(data, stop, end)
        for i in range(offsets[row], offsets[row + 1]):
            stop = _next_code_point(data, stop, end)
            begins[i], stops[i] = begin, stop
            begin = _next_code_point(data, begin, end)
    return begins, stops


@compiled
def _joined_ends(starts: Array, ends: Array, token_offsets: Array, offsets: Array, n: int, between: int) -> Array:
    """The end of each n-gram in the concatenation of all."""
    stops = np.empty(offsets[-1], np.int64)
    at = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            first = token_offsets[row] + i
            for token in range(first, first + n):
                at += ends[token] - starts[token]
            at += between * (n - 1)
            stops[offsets[row] + i] = at
    return stops


@compiled
def _join(
    data: Array, starts: Array, ends: Array, token_offsets: Array, offsets: Array, stops: Array, n: int, between: Array
) -> Array:
    joined = np.empty(stops[-1] if len(stops) else 0, np.uint8)
    at = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            first = token_offsets[row] + i
            for token in range(first, first + n):
                if token > first:
                    copy_over(between, np.int64(0), np.int64(len(between)), joined, np.int64(at))
                    at += len(between)
                copy_over(data, np.int64(starts[token]), np.int64(ends[token] - starts[token]), joined, np.int64(at))
                at += ends[token] - starts[token]
    return joined
