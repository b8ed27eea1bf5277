"""Kernels that search text, by Arrow's own functions: regular expressions through RE2, prefixes, suffixes and parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.columns import Column, Constants, Numbers, RaggedItems, Strings, from_arrow
from transforms.errors import DataError
from transforms.kernels.buffers import check_positions
from transforms.kernels.lookup import texts, vocabulary_lookup
from transforms.kernels.ragged import picked
from transforms.kernels.spans import gather_spans
from transforms.operators.patterns import GROUP, only_group, unnamed
from transforms.types import Dense, DType


def regex_extract(column: Column, *, pattern: str, group: int) -> Column:
    """One group of the first match; null without a match."""
    found = pc.extract_regex(arrow_text(column), only_group(pattern, group, f"(?P<{GROUP}>"))
    return from_arrow(found.flatten()[0], Dense(DType.STRING))


def regex_replace(column: Column, *, pattern: str, replacement: str) -> Column:
    """Every match replaced."""
    replaced = pc.replace_substring_regex(arrow_text(column), unnamed(pattern), replacement)
    return from_arrow(replaced, Dense(DType.STRING))


def replace(column: Column, *, old: str, new: str) -> Column:
    """Every occurrence of one text replaced by another."""
    return from_arrow(pc.replace_substring(arrow_text(column), old, new), Dense(DType.STRING))


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
        raise DataError("remove_stop_words reads lists of tokens", value=type(column).__name__)
    if not words:
        return column
    found = vocabulary_lookup(column.items, Constants(texts(words)), oov_buckets=1)
    assert isinstance(found, Numbers), "an id for each token"
    kept = found.values >= len(words)
    offsets = np.concatenate([[0], np.cumsum(kept)])[column.offsets].astype(np.int32)
    return picked(column, offsets, np.flatnonzero(kept))


def arrow_text(column: Column) -> pa.Array:
    """A text column as an Arrow array without nulls; what stands in null slots is empty."""
    if not isinstance(column, Strings):
        raise DataError("a text kernel was given something else", value=type(column).__name__)
    offsets, data = gather_spans(column.data, column.starts, column.ends)
    check_positions(int(offsets[-1]), "bytes of text")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), len(column), buffers)


def _booleans(array: pa.Array) -> Numbers:
    return Numbers(array.to_numpy(zero_copy_only=False))
