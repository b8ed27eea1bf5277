"""A batch of bags of ids as distinct ids and positions: lossless, for the path from data loaders to embedding workers.

As in Persia (Lian et al., 2021), an id that occurs often in a batch is sent once, and its occurrences are positions of 16 bits. Each
feature has the form that takes the fewest bytes: its distinct ids ascending, as differences (``ascending.py``), with positions of 1, 2
or 4 bytes among them, or its ids as they are, in 1, 2, 4 or 8 bytes. Of offsets only the lengths of bags are sent, in 1, 2 or 4 bytes
each, or none if all bags are equally long and not empty.

The bytes, little-endian: a header (version, bytes of an id in the batch, whether ids have weights, features, events); for each feature
a record (ids, distinct ids, bytes of their differences, bytes of a length, bytes of an id or a position, whether it is a position);
for each feature its lengths, differences, and ids or positions; the weights as float32. The records give the size of the whole, so
that nothing is allocated for a batch that is not there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.errors import BadBatch
from trainer.tables.batches import IdBatch
from trainer.tables.wire.ascending import MOST_BYTES, put_ascending, take_ascending
from trainer.tables.wire.distinct_ids import Scratch, find_distinct, scratch_for, sort_distinct, write_positions
from transforms.arrays import Array

_VERSION = 1
_HEADER = struct.Struct("<BBBxII")
_RECORD = struct.Struct("<IIIBBBx")
#: The types of plain ids by their bytes; positions and lengths have all but the last.
_WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<i8")}
_ID_TYPES: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_MOST = 2**32 - 1
_MOST_IDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Record:
    """One feature of an encoded batch.

    Attributes:
        ids: their number.
        distinct: the number of distinct ids; 0 if ids are plain.
        difference_bytes: of the distinct ids.
        length_bytes: of a bag's length; 0 if bags are equally long.
        width: bytes of a plain id or a position.
        has_positions: whether ids are positions among distinct ones.
    """

    ids: int
    distinct: int
    difference_bytes: int
    length_bytes: int
    width: int
    has_positions: bool

    def body_bytes(self, events: int) -> int:
        """The bytes of lengths, differences, and ids or positions."""
        return self.length_bytes * events + self.difference_bytes + self.width * self.ids

    def is_possible(self, events: int) -> bool:
        """Whether an encoder may write it; the memory of its ids and offsets is then bounded by its bytes."""
        if self.has_positions:
            ids_fit = self.width in (1, 2, 4) and 1 <= self.distinct <= min(self.ids, self.difference_bytes)
        else:
            ids_fit = self.width in _WIDTHS and self.distinct == self.difference_bytes == 0
        if self.length_bytes:
            return ids_fit and self.length_bytes in (1, 2, 4)
        return ids_fit and events > 0 and self.ids > 0 and self.ids % events == 0


def encode(batch: IdBatch) -> bytes:
    """The bytes of a batch.

    ``bounds`` are left out: a receiver checks the ids. Raises :class:`BadBatch` for arrays of other types, and for offsets that do not
    fit.
    """
    _check(batch)
    records, bodies = [], []
    scratch = scratch_for(int((batch.offsets[:, -1] - batch.offsets[:, 0]).max()))
    for ends in batch.offsets:
        record, body = _encode_feature(batch.ids[ends[0] : ends[-1]], np.diff(ends), scratch)
        records.append(_RECORD.pack(record.ids, record.distinct, record.difference_bytes, record.length_bytes, record.width,
                                    record.has_positions))  # fmt: skip
        bodies += body
    weights = [] if batch.weights is None else [np.ascontiguousarray(batch.weights, "<f4").data]
    header = _HEADER.pack(_VERSION, batch.ids.dtype.itemsize, batch.weights is not None, len(batch.offsets), batch.rows)
    return b"".join([header, *records, *bodies, *weights])


def _check(batch: IdBatch) -> None:
    ids, offsets, weights = batch.ids, batch.offsets, batch.weights
    if (
        ids.dtype not in _ID_TYPES.values()
        or offsets.dtype != np.int64
        or ids.ndim != 1
        or offsets.ndim != 2
        or not offsets.size
    ):
        raise BadBatch("ids must be int32 or int64, offsets int64 [features, events + 1]",
                       value=(str(ids.dtype), str(offsets.dtype), offsets.shape))  # fmt: skip
    if weights is not None and (weights.shape != ids.shape or weights.dtype != np.float32):
        raise BadBatch("a weighted batch must have a float32 weight for every id", value=(str(weights.dtype), weights.shape),
                       allowed=f"float32 {ids.shape}")  # fmt: skip
    ends = np.concatenate([[0], offsets.ravel(), [len(ids)]])
    if (np.diff(ends) < 0).any() or (offsets[1:, 0] != offsets[:-1, -1]).any() or ends[1] or ends[-2] != ends[-1]:
        raise BadBatch("offsets must ascend from the end of the previous feature to the number of ids")
    if max(len(ids), *offsets.shape) > _MOST_IDS:
        raise BadBatch("a batch on the wire must have fewer than 2^31 ids and events", value=(len(ids), offsets.shape))


def _encode_feature(ids: Array, lengths: Array, scratch: Scratch) -> tuple[_Record, list[Any]]:
    """The record of a feature, and the buffers of its body."""
    length_bytes, body = _encode_lengths(lengths)
    width = _width_of(ids)
    if width > 1 and (found := _encode_distinct(ids, width, scratch)) is not None:
        distinct, positions, differences = found
        record = _Record(len(ids), distinct, len(differences), length_bytes, positions.dtype.itemsize, True)
        return record, [*body, differences.data, positions.data]
    return _Record(len(ids), 0, 0, length_bytes, width, False), [*body, ids.astype(_WIDTHS[width]).data]


def _encode_lengths(lengths: Array) -> tuple[int, list[Any]]:
    if len(lengths) and lengths[0] > 0 and (lengths == lengths[0]).all():
        return 0, []
    width = _width_below(int(lengths.max(initial=0)) + 1)
    return width, [lengths.astype(_WIDTHS[width]).data]


def _width_of(ids: Array) -> int:
    """The bytes of plain ids."""
    if not len(ids):
        return 1
    least, most = int(ids.min()), int(ids.max())
    return 8 if least < 0 or most > _MOST else _width_below(most + 1)


def _width_below(stop: int) -> int:
    """The bytes of numbers below ``stop``."""
    return 1 if stop <= 1 << 8 else 2 if stop <= 1 << 16 else 4


def _encode_distinct(ids: Array, width: int, scratch: Scratch) -> tuple[int, Array, Array] | None:
    """Distinct ids: their number, positions, differences; None if plain ids of ``width`` bytes are not longer."""
    distinct = find_distinct(ids, scratch)
    position_bytes = _width_below(distinct)
    if position_bytes * len(ids) + distinct >= width * len(ids):
        return None
    sort_distinct(scratch, distinct)
    differences = np.empty(MOST_BYTES * distinct, np.uint8)
    size = put_ascending(scratch.found[:distinct], differences)
    if position_bytes * len(ids) + size >= width * len(ids):
        return None
    positions = np.empty(len(ids), _WIDTHS[position_bytes])
    write_positions(scratch, positions)
    return distinct, positions, differences[:size]


def decode(buffer: bytes | bytearray | Array) -> IdBatch:
    """The batch of :func:`encode`, without ``bounds``; its arrays are new.

    Memory is at most about 32 times the bytes of ``buffer``, of which 16 are kept. Raises :class:`BadBatch` for bytes that no encoder writes.
    """
    view = np.frombuffer(buffer, np.uint8).data
    id_bytes, has_weights, events, records = _read_records(view)
    total = sum(record.ids for record in records)
    at = _HEADER.size + _RECORD.size * len(records)
    ids = np.empty(total, _ID_TYPES[id_bytes])
    offsets = np.empty((len(records), events + 1), np.int64)
    first = 0
    for f, record in enumerate(records):
        body = view[at : at + record.body_bytes(events)]
        offsets[f, 0] = first
        if not _decode_lengths(body, record, offsets[f]) or not _decode_ids(
            body, record, events, ids[first : first + record.ids]
        ):
            raise _damaged(f"feature {f}")
        first, at = first + record.ids, at + len(body)
    weights = np.frombuffer(view, "<f4", total, at).astype(np.float32) if has_weights else None
    return IdBatch(ids, offsets, weights)


def _read_records(view: memoryview[int]) -> tuple[int, bool, int, list[_Record]]:
    """Bytes of an id, whether there are weights, events, and the records, which fit the size of the buffer."""
    if len(view) < _HEADER.size:
        raise _damaged("header")
    version, id_bytes, has_weights, features, events = _HEADER.unpack_from(view)
    records_end = _HEADER.size + _RECORD.size * features
    if (
        version != _VERSION
        or id_bytes not in _ID_TYPES
        or has_weights > 1
        or not features
        or records_end > len(view)
        or view[3]
    ):
        raise _damaged("header")
    records = []
    for f, fields in enumerate(_RECORD.iter_unpack(view[_HEADER.size : records_end])):
        ids, distinct, difference_bytes, length_bytes, width, has_positions = fields
        record = _Record(ids, distinct, difference_bytes, length_bytes, width, bool(has_positions))
        if has_positions > 1 or view[_HEADER.size + _RECORD.size * (f + 1) - 1] or not record.is_possible(events):
            raise _damaged(f"feature {f}")
        records.append(record)
    size = records_end + sum(one.body_bytes(events) + 4 * has_weights * one.ids for one in records)
    if size != len(view):
        raise BadBatch(
            "a batch on the wire must have the size that its records give", value=len(view), allowed=str(size)
        )
    return id_bytes, bool(has_weights), events, records


def _damaged(where: str) -> BadBatch:
    return BadBatch("a batch on the wire must be bytes that the encoder writes", where=where)


def _decode_lengths(body: memoryview[int], record: _Record, ends: Array) -> bool:
    """Write where bags end after ``ends[0]``; whether the lengths are those of the ids."""
    events = len(ends) - 1
    if not record.length_bytes:
        ends[1:] = ends[0] + np.arange(1, events + 1) * (record.ids // events)
        return True
    lengths = np.frombuffer(body, _WIDTHS[record.length_bytes], events)
    np.cumsum(lengths, out=ends[1:])
    ends[1:] += ends[0]
    return int(ends[-1] - ends[0]) == record.ids


def _decode_ids(body: memoryview[int], record: _Record, events: int, out: Array) -> bool:
    """Write the ids; whether positions are those of distinct ids and ids are of their type."""
    differences_at = record.length_bytes * events
    at = differences_at + record.difference_bytes
    numbers = np.frombuffer(body, _WIDTHS[record.width], record.ids, at)
    limits = np.iinfo(out.dtype)
    if not record.has_positions:
        if record.ids and (int(numbers.max()) > limits.max or int(numbers.min()) < limits.min):
            return False
        out[:] = numbers
        return True
    distinct = np.empty(record.distinct, np.int64)
    if not take_ascending(np.frombuffer(body, np.uint8, record.difference_bytes, differences_at), distinct):
        return False
    if int(numbers.max()) >= record.distinct or distinct[0] < limits.min or distinct[-1] > limits.max:
        return False
    np.take(distinct.astype(out.dtype, copy=False), numbers, out=out, mode="clip")
    return True
