"""The bodies of frames about rows: rows that are fetched, gradients, and saved values. Each array begins at a multiple of 8 bytes.

Rows are numbered by the server: row 0 of a part is its first row there. A message has them part after part, with a count for each part. The flags of
a frame say how its rows and values are encoded; those of a fetch say, too, how the values of its answer are to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainer.options.hashed import MOST_STEPS
from trainer.tables.engine import ChangedRows, RowValues
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.routes.servers.frames import Header, Kind
from trainer.tables.wire import row_numbers
from trainer.tables.wire.encoded_values import (
    VALUE_FLAGS,
    decode_pieces,
    encoded_bytes,
    floats_of_pieces,
    split_pieces,
    value_flag,
)
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError

#: Flags of fetches and updates: rows are int64; rows are as :mod:`~trainer.tables.wire.row_numbers` writes them; neither: rows are int32.
LONG_ROWS, ENCODED_ROWS = 1, 2
_ROW_FLAGS = LONG_ROWS | ENCODED_ROWS
_FLAGS = _ROW_FLAGS | VALUE_FLAGS
#: The memory of a body and what is decoded from it, over its bytes: a row of 8 bytes comes in at least 1, a value of 4 in at least 1.75, and an
#: update has a value for each row. By whether rows and values are encoded.
_MOST_OF_FETCH = 9
_MOST_OF_UPDATE = {(False, False): 1, (True, False): 3, (False, True): 4, (True, True): 6}
_ALIGNED = 8
_PADDING = bytes(_ALIGNED)
_NO_LOOKUPS = np.zeros(0, np.int32)
_READ = np.dtype("<i8")
_UNSIGNED, _SHORT = np.dtype("<u8"), np.dtype("<i4")
#: The types of arrays in a body, and the bytes of an item.
_ITEM_BYTES: dict[Any, int] = {_READ: 8, np.int64: 8, _UNSIGNED: 8, _SHORT: 4, np.int32: 4, np.float32: 4, np.uint8: 1}


class RowNumbers(NamedTuple):
    """Rows of the parts of a server; a tuple, which takes less time to make than to read a message of few rows.

    Attributes:
        rows: int32 or int64, part after part.
        counts: int64, the rows of each part.
        encoded: the rows as they are sent, uint8; None: as they are.
    """

    rows: Array
    counts: Array
    encoded: Array | None = None

    @property
    def flags(self) -> int:
        """The flags of a message with these rows."""
        return flags_of(self.rows) if self.encoded is None else ENCODED_ROWS


class RowGradients(NamedTuple):
    """An update; a tuple, as :class:`RowNumbers` is.

    Attributes:
        numbers: the rows.
        rates: float32, the learning rates of the parts.
        values: float32, the summed gradients of the rows.
        lookups: int32, how often each row was looked up; empty for tables that do not need it.
    """

    numbers: RowNumbers
    rates: Array
    values: Array
    lookups: Array = _NO_LOOKUPS


@dataclass(frozen=True, slots=True)
class RowSpread:
    """Rows of a part from ``first`` up to ``stop`` whose numbers leave ``remainder`` when they are divided by ``stride``."""

    first: int
    stop: int
    stride: int = 1
    remainder: int = 0

    @property
    def rows(self) -> range:
        """Their numbers, of a part that is read by rows."""
        return range(self.first + (self.remainder - self.first) % self.stride, self.stop, self.stride)


def flags_of(rows: Array) -> int:
    """The flags of a message with these rows as they are."""
    return LONG_ROWS if rows.itemsize == _READ.itemsize else 0


def encode_rows(rows: Array, counts: Array) -> RowNumbers:
    """Rows, int64, that are sent as differences where those take fewer bytes, which ascending ones do."""
    memory = np.empty(row_numbers.most_bytes(len(rows), len(counts)), np.uint8)
    return RowNumbers(rows, counts, memory[: row_numbers.encode(rows, counts, memory)].copy())


def write_numbers(numbers: RowNumbers) -> list[Bytes]:
    """The body of a fetch."""
    return [_joined([numbers.counts, *_sent_rows(numbers)])]


def write_gradients(
    numbers: RowNumbers, rates: Array, values: Sequence[Array], lookups: Array | None = None
) -> list[Bytes]:
    """The body of an update: a copy of the numbers, and views of the values.

    ``values``: the gradients in pieces, float32, or what they are encoded to; ``lookups``: of the rows, for tables that need them.
    """
    head = _joined([numbers.counts, rates, *_sent_rows(numbers), *(() if lookups is None else (lookups,))])
    return [head, *[one.data.cast("B") for one in values if len(one)]]


def _sent_rows(numbers: RowNumbers) -> tuple[Array, ...]:
    """The rows as they are sent; encoded ones after their number of bytes."""
    if numbers.encoded is None:
        return (numbers.rows,)
    return np.array([len(numbers.encoded)], np.int64), numbers.encoded


def write_values(numbers: RowNumbers, values: RowValues) -> list[Bytes]:
    """The body of values that replace those of rows, int64: weights, then slots."""
    return _views([numbers.counts, numbers.rows, values.weights, values.slots])


def read_values(body: Bytes, dims: Array, slot_dims: Array) -> tuple[RowNumbers, RowValues]:
    """The inverse of :func:`write_values`. Raises :class:`DataError` for a body of another length, and for values that are not finite."""
    reader = _Reader(body)
    counts = _read_counts(reader, len(dims))
    rows = reader.take(_READ, _total(counts))
    values = RowValues(*(reader.take(np.float32, _floats(counts, widths)) for widths in (dims, slot_dims)))
    reader.end()
    check_values(values)
    return RowNumbers(rows, counts), values


def split_by_part(flat: Array, counts: Array, dims: Array) -> list[Array]:
    """The values of each part, [rows, dim]; ``flat``: one row after the other, part after part."""
    found = np.split(flat, np.cumsum(counts * dims)[:-1])
    shapes = zip(counts.tolist(), dims.tolist(), strict=True)
    return [one.reshape(shape) for one, shape in zip(found, shapes, strict=True)]


def check_values(values: RowValues) -> None:
    """Raise :class:`DataError` for values that are not finite."""
    if not (np.isfinite(values.weights).all() and np.isfinite(values.slots).all()):
        raise DataError("values of rows must be finite")


def read_numbers(body: Bytes, parts: int, flags: int) -> RowNumbers:
    """The rows of a fetch. Raises :class:`DataError` for a body of another length, for counts below 0, and for rows that no encoder writes."""
    reader = _Reader(body)
    counts, total = _read_totals(reader, parts)
    numbers = RowNumbers(_read_rows(reader, counts, total, flags), counts)
    reader.end()
    return numbers


def read_gradients(body: Bytes, dims: Array, flags: int, *, has_lookups: bool = False) -> RowGradients:
    """An update of parts with so many columns; ``has_lookups``: their tables need these.

    Raises :class:`DataError` for a body of another length, for rates that are no numbers, and for rows and values that no encoder writes.
    """
    reader = _Reader(body)
    counts, total = _read_totals(reader, len(dims))
    rates = reader.take(np.float32, len(dims))
    listed = rates.tolist()
    if listed and not (min(listed) >= 0.0 and sum(listed) < math.inf):  # no sum of float32 is too large for float64
        raise DataError(
            "learning rates must be finite and >= 0", value=rates[~(np.isfinite(rates) & (rates >= 0))][:4].tolist()
        )
    rows = _read_rows(reader, counts, total, flags)
    lookups = reader.take(_SHORT, len(rows)) if has_lookups else _NO_LOOKUPS
    if len(lookups) and int(lookups.min()) < 0:
        raise DataError("lookups of rows must be >= 0", value=int(lookups.min()))
    values = _read_values(reader, counts, dims, flags)
    reader.end()
    return RowGradients(RowNumbers(rows, counts), rates, values, lookups)


def write_part(found: ChangedRows, ages: Array | None = None) -> list[Bytes]:
    """The body of saved rows; ``ages``: those of rows of a hashed table."""
    arrays = [np.ascontiguousarray(one).reshape(-1) for one in (found.weights, found.slots)]
    return _views([np.array([len(found.rows)], np.int64), found.rows, *arrays, *(() if ages is None else (ages,))])


def read_part(body: Bytes, dim: int, slots: int) -> ChangedRows:
    """Saved rows with so many weights and slot values. Raises :class:`DataError`."""
    reader = _Reader(body)
    found = _read_part(reader, dim, slots)
    reader.end()
    return found


def read_aged_part(body: Bytes, dim: int, slots: int) -> tuple[ChangedRows, Array]:
    """As :func:`read_part`, rows of a hashed table with their ages, int64. Raises :class:`DataError`."""
    reader = _Reader(body)
    found = _read_part(reader, dim, slots)
    ages = _read_ages(reader, len(found.rows))
    reader.end()
    return found, ages


def write_load(part: int, found: ChangedRows, ages: Array | None = None) -> list[Bytes]:
    """The body of rows to load into a part; ``ages``: those of rows of a hashed table."""
    return [*_views([np.array([part], np.int64)]), *write_part(found, ages)]


def read_load(
    body: Bytes, dims: Array, slot_dims: Array, is_hashed: Sequence[bool] = ()
) -> tuple[int, ChangedRows, Array | None]:
    """A part, the rows to load into it and, if it is a hashed one, their ages; by default none is. Raises :class:`DataError`."""
    reader = _Reader(body)
    part = _read_part_number(reader, len(dims))
    found = _read_part(reader, int(dims[part]), int(slot_dims[part]))
    ages = _read_ages(reader, len(found.rows)) if part < len(is_hashed) and is_hashed[part] else None
    reader.end()
    return part, found, ages


def write_history(part: int, history: KeptHistory, first: int = 0) -> list[Bytes]:
    """The body of what a hashed part has beside its rows, with its candidates from ``first`` on."""
    numbers = [part, history.step, history.evicted, first, len(history.candidates)]
    return _views([np.array(numbers, np.int64), history.candidates])


def read_history(body: Bytes, has_history: Sequence[bool]) -> tuple[int, KeptHistory, int]:
    """The inverse of :func:`write_history`. Raises :class:`DataError`."""
    reader = _Reader(body)
    part = _read_part_number(reader, len(has_history))
    step, evicted, first, count = (int(one) for one in reader.take(_READ, 4))
    if not has_history[part] or not 0 <= step <= MOST_STEPS or not 0 <= evicted < 1 << 62 or first < 0:
        raise DataError("only a hashed or pruned part has a history", value=(part, step, evicted, first))
    candidates = reader.take(_UNSIGNED, count)
    reader.end()
    return part, KeptHistory(step, candidates, evicted), first


def read_numbers_of_history(body: Bytes, has_history: Sequence[bool]) -> tuple[int, int, int]:
    """The part, and the first candidate and that after the last one, of a request for a history. Raises :class:`DataError`."""
    reader = _Reader(body)
    part = _read_part_number(reader, len(has_history))
    first, stop = (int(one) for one in reader.take(_READ, 2))
    reader.end()
    if not has_history[part] or not 0 <= first <= stop:
        raise DataError("only a hashed or pruned part has a history", value=(part, first, stop))
    return part, first, stop


def _read_part_number(reader: _Reader, parts: int) -> int:
    part = int(reader.take(_READ, 1)[0])
    if not 0 <= part < parts:
        raise DataError("a message must name a part of the server", value=part, allowed=f"0 to {parts - 1}")
    return part


def _read_ages(reader: _Reader, count: int) -> Array:
    ages = reader.take(_READ, count)
    if count and not (int(ages.min()) >= 0 and int(ages.max()) <= MOST_STEPS):
        raise DataError(
            "ages of rows must be numbers of steps",
            value=(int(ages.min()), int(ages.max())),
            allowed=f"0 to {MOST_STEPS}",
        )
    return ages


def read_range(body: Bytes, sizes: Array) -> tuple[int, int, int]:
    """The part, the first row and the row after the last one that a snapshot is asked for. Raises :class:`DataError`."""
    reader = _Reader(body)
    part, first, stop = (int(one) for one in reader.take(_READ, 3))
    reader.end()
    if not 0 <= part < len(sizes) or not 0 <= first <= stop <= sizes[part]:
        raise DataError("the range of a snapshot must be rows of a part", value=(part, first, stop))
    return part, first, stop


def write_spread(part: int, spread: RowSpread) -> list[Bytes]:
    """The body of a request for the saved rows among some of a part; of a snapshot's hashed part, from one rank by id to another."""
    return write_counts([part, spread.first, spread.stop, spread.stride, spread.remainder])


def read_spread(body: Bytes, sizes: Array) -> tuple[int, RowSpread]:
    """The inverse of :func:`write_spread`, of parts of these sizes. Raises :class:`DataError`."""
    reader = _Reader(body)
    part, first, stop, stride, remainder = (int(one) for one in reader.take(_READ, 5))
    reader.end()
    if not 0 <= part < len(sizes) or not 0 <= first <= stop <= sizes[part] or not 0 <= remainder < stride:
        raise DataError(
            "the rows that are asked for must be those of a part", value=(part, first, stop, stride, remainder)
        )
    return part, RowSpread(first, stop, stride, remainder)


def write_rows(part: int, rows: Array) -> list[Bytes]:
    """The body of a request for saved rows of a part; ``rows``: int64, ascending."""
    return _views([np.array([part, len(rows)], np.int64), rows])


def read_rows(body: Bytes, sizes: Array) -> tuple[int, Array]:
    """The part and the rows that a request asks for. Raises :class:`DataError` for those that are not ascending rows of a part."""
    reader = _Reader(body)
    part, count = (int(one) for one in reader.take(_READ, 2))
    rows = reader.take(_READ, count)
    reader.end()
    is_part = 0 <= part < len(sizes)
    if not is_part or (
        count and not (int(rows[0]) >= 0 and int(rows[-1]) < sizes[part] and (rows[1:] > rows[:-1]).all())
    ):
        raise DataError("rows that are asked for must be ascending rows of a part", value=(part, rows[:4].tolist()))
    return part, rows


def write_counts(counts: Sequence[int] | Array) -> list[Bytes]:
    """The body of numbers."""
    return _views([np.asarray(counts, np.int64)])


def read_counts(body: Bytes, parts: int) -> tuple[int, ...]:
    """Numbers, of each part one. Raises :class:`DataError`."""
    reader = _Reader(body)
    counts = _read_counts(reader, parts)
    reader.end()
    return tuple(counts.tolist())


def check_flags(header: Header) -> None:
    """Raise :class:`DataError` for flags that a request of this kind does not have."""
    if not header.flags:
        return
    known = _FLAGS if header.kind in (Kind.FETCH, Kind.UPDATE) else 0
    if not _are_known(header.flags, known):
        raise _unknown_flags(header.flags, known)


def _are_known(flags: int, known: int) -> bool:
    return not flags or not (flags & ~known or flags & _ROW_FLAGS == _ROW_FLAGS or flags & VALUE_FLAGS == VALUE_FLAGS)


def _unknown_flags(flags: int, known: int) -> DataError:
    return DataError("the flags of a frame must be known", value=flags,
                     allowed=f"of {known}; one encoding of rows, and one of values")  # fmt: skip


def memory_bytes(header: Header) -> int:
    """The most bytes that the body of a request and what is decoded from it take in memory."""
    if not header.flags:
        return header.body_bytes
    has_rows, has_values = bool(header.flags & ENCODED_ROWS), bool(header.flags & VALUE_FLAGS)
    if header.kind == Kind.FETCH:
        return header.body_bytes * (_MOST_OF_FETCH if has_rows else 1)
    return header.body_bytes * (_MOST_OF_UPDATE[has_rows, has_values] if header.kind == Kind.UPDATE else 1)


def _read_rows(reader: _Reader, counts: Array, total: int, flags: int) -> Array:
    row_type = _row_type(flags)
    if not flags & ENCODED_ROWS:
        return reader.take(row_type, total)
    size = int(reader.take(_READ, 1)[0])
    return row_numbers.decode(reader.take(np.uint8, size), counts)


def _read_values(reader: _Reader, counts: Array, dims: Array, flags: int) -> Array:
    total, flag = _floats(counts, dims), value_flag(flags)
    if not flag:
        return reader.take(np.float32, total)
    floats = floats_of_pieces(counts, dims)
    encoded = reader.take(np.uint8, encoded_bytes(floats, flag))
    values = np.empty(total, np.float32)
    decode_pieces(encoded, split_pieces([values], floats), flag)
    return values


def _read_counts(reader: _Reader, parts: int) -> Array:
    return _read_totals(reader, parts)[0]


def _read_totals(reader: _Reader, parts: int) -> tuple[Array, int]:
    """Counts, and their sum, which does not wrap around."""
    counts = reader.take(_READ, parts)
    listed = counts.tolist()
    if listed and min(listed) < 0:
        raise DataError("counts must be >= 0", value=min(listed))
    return counts, sum(listed)


def _read_part(reader: _Reader, dim: int, slots: int) -> ChangedRows:
    count = int(reader.take(_READ, 1)[0])
    rows = reader.take(_READ, count)
    weights = reader.take(np.float32, count * dim).reshape(count, dim)
    values = reader.take(np.float32, count * slots).reshape(count, slots)
    if count and (int(rows[0]) < 0 or not (rows[1:] > rows[:-1]).all()):
        raise DataError("saved rows must ascend from 0 on", value=rows[:4].tolist())
    if not (np.isfinite(weights).all() and np.isfinite(values).all()):
        raise DataError("saved values must be finite")
    return ChangedRows(rows, weights, values)


def _row_type(flags: int) -> type:
    if not flags:
        return np.int32
    if not _are_known(flags, _FLAGS):
        raise _unknown_flags(flags, _FLAGS)
    return np.int64 if flags & LONG_ROWS else np.int32


def _total(counts: Array) -> int:
    """The sum of counts, which no sum of hostile ones wraps around."""
    return sum(counts.tolist())


def _floats(counts: Array, dims: Array) -> int:
    """The values of rows; see :func:`_total`."""
    return sum(map(int.__mul__, counts.tolist(), dims.tolist()))


def _joined(arrays: Sequence[Array]) -> bytes:
    """A copy of contiguous arrays: a message of few rows is sent in less time than their views are made."""
    parts: list[Any] = []
    for array in arrays:
        parts.append(array)
        if padding := -array.nbytes % _ALIGNED:
            parts.append(_PADDING[:padding])
    return b"".join(parts)


def _views(arrays: Sequence[Array]) -> list[Bytes]:
    found: list[Bytes] = []
    for array in arrays:
        if len(array):
            found.append(np.ascontiguousarray(array).data.cast("B"))
        if padding := -array.nbytes % _ALIGNED:
            found.append(_PADDING[:padding])
    return found


class _Reader:
    """Takes arrays off a body, each from a multiple of 8 bytes on."""

    def __init__(self, body: Bytes) -> None:
        self._body, self._at, self._size = body, 0, len(body)

    def take(self, dtype: Any, count: int) -> Array:
        size, at = _ITEM_BYTES[dtype] * count, self._at
        if count < 0 or size > self._size - at:
            raise DataError("the body of a frame must have the length that its numbers state",
                            value=f"{self._size - at:,} bytes are left", allowed=f"{size:,} bytes")  # fmt: skip
        found: Array = np.frombuffer(self._body, dtype, count, at)
        at += size + -size % _ALIGNED
        self._at = at if at < self._size else self._size
        return found

    def end(self) -> None:
        if self._at != self._size:
            raise DataError("the body of a frame must have the length that its numbers state", value=f"{self._size:,} bytes",
                            allowed=f"{self._at:,} bytes")  # fmt: skip
