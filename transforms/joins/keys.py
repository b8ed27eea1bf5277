"""Keys of joins as numbers: equal keys of events and rows have equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.errors import InputError
from transforms.kernels.history_keys import number_range

#: Whole numbers of a range that is at most this many times as long as rows are numbered by their places in it.
_SPARSE = 4


class KeyNumbers(NamedTuple):
    """Keys as numbers.

    Attributes:
        rows: of each row, -1 for a key with a null: int64.
        events: of each event, -1 for a key with a null or without rows: int64.
        size: how many keys rows have.
    """

    rows: Array
    events: Array
    size: int


def number_keys(rows: Sequence[pa.Array], events: Sequence[pa.Array]) -> KeyNumbers:
    """The numbers of keys of one column or several. Raises :class:`InputError` for sides of other types."""
    found: KeyNumbers | None = None
    for place, (theirs, own) in enumerate(zip(rows, events, strict=True)):
        if theirs.type != own.type:
            raise InputError("the sides of a key must have one type", where=f"key {place + 1}", value=f"{theirs.type} and {own.type}",
                             next_step="cast one of them")  # fmt: skip
        column = _numbers(theirs, own)
        found = column if found is None else _both(found, column)
    assert found is not None
    return found


def _numbers(rows: pa.Array, events: pa.Array) -> KeyNumbers:
    if pa.types.is_int64(rows.type) and len(rows) > rows.null_count:
        bounds = pc.min_max(rows).as_py()
        if bounds["max"] - bounds["min"] < _SPARSE * len(rows):
            return KeyNumbers(*number_range(_filled(rows), _filled(events), bounds["min"], bounds["max"]))
    coded = rows.dictionary_encode()
    return KeyNumbers(_places(coded.indices), _places(pc.index_in(events, coded.dictionary)), len(coded.dictionary))


def _filled(keys: pa.Array) -> tuple[Array, Array]:
    """Whole numbers and which of them are not null; an empty array if all are not."""
    valid = np.asarray(keys.is_valid(), bool) if keys.null_count else np.empty(0, bool)
    return np.asarray(keys.fill_null(0) if keys.null_count else keys), valid


def _places(indices: pa.Array) -> Array:
    return np.asarray(pc.fill_null(indices, -1)).astype(np.int64)


def _both(a: KeyNumbers, b: KeyNumbers) -> KeyNumbers:
    """The numbers of pairs of keys, without those that no row has."""
    rows, events = (np.where((x < 0) | (y < 0), -1, x * max(b.size, 1) + y) for x, y in ((a.rows, b.rows), (a.events, b.events)))  # fmt: skip
    return _numbers(*(pa.array(each, mask=each < 0) for each in (rows, events)))
