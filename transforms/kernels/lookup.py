"""Kernels that look values up in a table of texts.

The table has open addressing over FarmHash Fingerprint64, is at most half full, and is cached, since many fragments use
the same one. A slot holds a term's position; fingerprints are compared before bytes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Constants, Numbers, Strings, WeightedItems
from transforms.columns.positions import as_positions
from transforms.errors import DataError
from transforms.kernels.buffers import dense, spans, take
from transforms.kernels.compiled import compiled
from transforms.kernels.decimals import write_decimal
from transforms.kernels.farmhash import fingerprint64
from transforms.kernels.spans import frozen, gather_spans
from transforms.operators.lookup import held

_DIGITS_MAX = 20
_TABLES_KEPT = 32


@dataclass(frozen=True, slots=True)
class TermTable:
    """``slots[h]``: 1 + the position of a term, 0 where free; a power of two of them. The rest is the terms."""

    slots: Array
    hashes: Array
    data: Array
    starts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.starts)


_tables: OrderedDict[bytes, TermTable] = OrderedDict()
_lock = threading.Lock()


def lookup(
    column: Column, *, keys: Sequence[str], values: Sequence[float | str], dtype: str, default: Sequence[float | str]
) -> Column:
    """The value of each key, or the default, or null."""
    found = _positions(dense(column), _table(texts(keys)))
    # The default is after the values; without one, any value is there, and is null.
    known: Array = found < len(keys)
    taken = take(_as_column([*values, *(default or values[:1])], dtype), found)
    return taken if default else _nulled(taken, known)


def vocabulary_lookup(column: Column, terms: Column, *, oov_buckets: int) -> Column:
    """The position of each value among the terms, or an id after them."""
    if not isinstance(terms, Constants) or not isinstance(terms.items, Strings):
        raise DataError("the terms of a vocabulary must be text", value=type(terms).__name__)
    table = _table(terms.items)
    if isinstance(column, WeightedItems):
        return WeightedItems(column.offsets, Numbers(_ids(column.items, table, oov_buckets)), column.weights)
    return Numbers(_ids(dense(column), table, oov_buckets))


def texts(values: Sequence[str]) -> Strings:
    """Python texts as a column."""
    encoded = [value.encode() for value in values]
    offsets = as_positions(np.cumsum([0, *(len(value) for value in encoded)], dtype=np.int64), "bytes of text")
    return Strings(np.frombuffer(b"".join(encoded), np.uint8), offsets[:-1], offsets[1:])


def _as_column(values: Sequence[float | str], dtype: str) -> Numbers | Strings:
    whole = [held(value, dtype) for value in values]
    if dtype == "string":
        return texts([str(value) for value in whole])
    return Numbers(np.array(whole, np.int64 if dtype == "int64" else np.float64))


def _nulled(column: Numbers | Strings, valid: Array) -> Numbers | Strings:
    if isinstance(column, Strings):
        return Strings(column.data, column.starts, column.ends, valid)
    return Numbers(column.values, valid)


def _table(terms: Strings) -> TermTable:
    """The table of these terms, built or cached. It owns its bytes, so that it keeps no batch alive."""
    offsets, data = gather_spans(*spans(terms))
    key = hashlib.blake2b(data.tobytes(), digest_size=16)
    key.update(np.diff(offsets).tobytes())
    with _lock:
        found = _tables.get(key.digest())
        if found is None:
            found = _tables[key.digest()] = _built(data, offsets)
        _tables.move_to_end(key.digest())
        while len(_tables) > _TABLES_KEPT:
            _tables.popitem(last=False)
    return found


def _built(data: Array, offsets: Array) -> TermTable:
    owned, starts, ends = frozen(data.copy()), frozen(offsets[:-1].copy()), frozen(offsets[1:].copy())
    slots = np.zeros(2 << max(len(starts) - 1, 1).bit_length(), np.int32)
    hashes = np.empty(len(starts), np.uint64)
    _fill(owned, starts, ends, slots, hashes)
    return TermTable(frozen(slots), frozen(hashes), owned, starts, ends)


@compiled
def _fill(data: Array, starts: Array, ends: Array, slots: Array, hashes: Array) -> None:
    mask = np.uint64(len(slots) - 1)
    for i in range(len(starts)):
        hashed = fingerprint64(data, starts[i], ends[i] - starts[i])
        hashes[i] = hashed
        at = hashed & mask
        while slots[at] != 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = i + 1


@compiled
def _found(slots: Array, hashes: Array, data: Array, starts: Array, ends: Array, hashed: Any, text: Array, start: int, size: int) -> Any:  # fmt: skip
    """The position of the term that a text is, or -1."""
    mask = np.uint64(len(slots) - 1)
    at = hashed & mask
    while slots[at] != 0:
        i = slots[at] - 1
        if hashes[i] == hashed and ends[i] - starts[i] == size:
            same = 0
            while same < size and data[starts[i] + same] == text[start + same]:
                same += 1
            if same == size:
                return i
        at = (at + np.uint64(1)) & mask
    return -1


def _positions(items: Numbers | Strings, table: TermTable) -> Array:
    """The position of each value, and ``len(table)`` for one that is not there."""
    return _ids(items, table, 1)


def _ids(items: Numbers | Strings, table: TermTable, oov_buckets: int) -> Array:
    parts: tuple[Any, ...] = (table.slots, table.hashes, table.data, table.starts, table.ends, np.uint64(oov_buckets))
    ids: Array
    if isinstance(items, Strings):
        ids = _ids_of_spans(*spans(items), *parts)
    else:
        ids = _ids_of_integers(frozen(items.values), *parts)
    return ids


@compiled
def _ids_of_spans(
    text: Array, text_starts: Array, text_ends: Array,
    slots: Array, hashes: Array, data: Array, starts: Array, ends: Array, oov_buckets: Any,
) -> Array:  # fmt: skip
    ids = np.empty(len(text_starts), np.int64)
    for row in range(len(text_starts)):
        start: Any = np.int64(text_starts[row])
        size: Any = np.int64(text_ends[row]) - start
        hashed = fingerprint64(text, start, size)
        found = _found(slots, hashes, data, starts, ends, hashed, text, start, size)
        ids[row] = found if found >= 0 else len(starts) + np.int64(hashed % oov_buckets)
    return ids


@compiled
def _ids_of_integers(
    values: Array, slots: Array, hashes: Array, data: Array, starts: Array, ends: Array, oov_buckets: Any
) -> Array:
    ids, text = np.empty(len(values), np.int64), np.empty(_DIGITS_MAX, np.uint8)
    for row in range(len(values)):
        size = write_decimal(values[row], text, 0)
        hashed = fingerprint64(text, 0, size)
        found = _found(slots, hashes, data, starts, ends, hashed, text, 0, size)
        ids[row] = found if found >= 0 else len(starts) + np.int64(hashed % oov_buckets)
    return ids
