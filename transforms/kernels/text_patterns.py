"""Kernels that search text, by Arrow's own functions: regular expressions through RE2, prefixes, suffixes and parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns import positions
from transforms.columns.arrays import numpy_of
from transforms.columns.columns import Column, Constants, Numbers, RaggedItems, Strings, from_arrow
from transforms.errors import DataError
from transforms.kernels.arrow import to_arrow
from transforms.kernels.lists import picked
from transforms.kernels.lookup import texts, vocabulary_lookup
from transforms.kernels.spans import gather_spans
from transforms.operators.patterns import GROUP, only_group, parts_of_replacement, unnamed
from transforms.types import Dense, DType


def regex_extract(column: Column, *, pattern: str, group: int) -> Column:
    """One group of the first match; null without a match."""
    found = pc.extract_regex(arrow_text(column), only_group(pattern, group, f"(?P<{GROUP}>"))
    return from_arrow(found.flatten()[0], Dense(DType.STRING))


def regex_replace(column: Column, *, pattern: str, replacement: str) -> Column:
    """Every match replaced."""
    copies, filling = parts_of_replacement(replacement)
    most = _Growth(1 + copies + filling, filling)  # a match at each byte, and one after the last
    return _replaced(column, most, lambda text: pc.replace_substring_regex(text, unnamed(pattern), replacement))


def one_text(operator: str, text: str, **params: Any) -> str | None:
    """``regex_extract`` or ``regex_replace`` of one text, for references of patterns that Python reads differently."""
    kernels: dict[str, Callable[..., Column]] = {"regex_extract": regex_extract, "regex_replace": regex_replace}
    column = kernels[operator](from_arrow(pa.array([text]), Dense(DType.STRING)), **params)
    found: str | None = to_arrow(column, Dense(DType.STRING))[0].as_py()
    return found


def replace(column: Column, *, old: str, new: str) -> Column:
    """Every occurrence of one text replaced by another."""
    most = _Growth(max(math.ceil(len(new.encode()) / len(old.encode())), 1), 0)
    return _replaced(column, most, lambda text: pc.replace_substring(text, old, new))


def starts_with(column: Column, *, prefix: str) -> Column:
    """Whether each text begins so."""
    return _booleans(pc.starts_with(arrow_text(column), prefix))


def ends_with(column: Column, *, suffix: str) -> Column:
    """Whether each text ends so."""
    return _booleans(pc.ends_with(arrow_text(column), suffix))


def contains(column: Column, *, text: str) -> Column:
    """Whether a text occurs in each."""
    return _booleans(pc.match_substring(arrow_text(column), text))


def remove_stop_words(column: Column, *, words: tuple[str, ...]) -> Column:
    """The tokens that are none of the words."""
    if not isinstance(column, RaggedItems):
        raise DataError("the argument of remove_stop_words must be lists of text", value=type(column).__name__)
    if not words:
        return column
    found = vocabulary_lookup(column.items, Constants(texts(words)), oov_buckets=1)
    assert isinstance(found, Numbers), "an id for each token"
    kept = found.values >= len(words)
    offsets = np.concatenate([[0], np.cumsum(kept)])[column.offsets].astype(np.int32)
    return picked(column, offsets, np.flatnonzero(kept))


def arrow_text(column: Column) -> pa.Array:
    """A text column as an Arrow array without nulls; null slots are empty text."""
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    offsets, data = gather_spans(column.data, column.starts, column.ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), len(column), buffers)


@dataclass(frozen=True, slots=True)
class _Growth:
    """A bound on the output bytes of a text of n bytes: ``each * n + once``."""

    each: int
    once: int


def _replaced(column: Column, most: _Growth, replace_in: Callable[[pa.Array], pa.Array]) -> Column:
    """Apply ``replace_in`` to parts of the texts that are too small for Arrow's offsets to wrap silently."""
    text = arrow_text(column)
    sizes = np.diff(np.frombuffer(text.buffers()[1], np.int32)).astype(np.int64) * most.each + most.once
    if sizes.sum() <= positions.POSITION_MAX:
        return from_arrow(replace_in(text), Dense(DType.STRING))
    parts: list[pa.Array] = []
    total = 0
    for begin, end in _runs(np.minimum(sizes, positions.POSITION_MAX + 1)):
        wide = replace_in(text.slice(begin, end - begin).cast(pa.large_string()))
        total += pc.sum(pc.binary_length(wide)).as_py()
        positions.check_positions(total, "bytes of text")
        parts.append(wide.cast(pa.string()))
    return from_arrow(pa.concat_arrays(parts), Dense(DType.STRING))


def _runs(sizes: Array) -> Iterator[tuple[int, int]]:
    """Neighbouring rows that together are at most ``POSITION_MAX``, or one row that exceeds it by itself."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin] - sizes[begin])
        end = max(int(np.searchsorted(ends, before + positions.POSITION_MAX, side="right")), begin + 1)
        yield begin, end
        begin = end


def _booleans(array: pa.Array) -> Numbers:
    return Numbers(numpy_of(array))
