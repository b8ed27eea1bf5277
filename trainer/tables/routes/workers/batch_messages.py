"""The bodies of frames between a client and its embedding worker: ids of a batch, its activations, and the gradients of these.

Ids are plain, or as :mod:`~trainer.tables.wire.id_positions` writes them. Plain ones: a header (bytes of an id, whether ids have weights,
features, events, ids), the ids, the length of each bag, and the weights. Activations are followed by the distinct rows of each table.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.routes.servers.frames import Header, Kind
from trainer.tables.wire import id_positions
from trainer.tables.wire.encoded_values import (
    VALUE_FLAGS,
    decode_pieces,
    encode_pieces,
    encoded_bytes,
    value_flag,
)
from trainer.wire.frames import Bytes
from transforms.arrays import Array
from transforms.errors import DataError

#: The flag of ids that are not plain.
ENCODED_IDS = 2
_FLAGS = {Kind.FETCH: ENCODED_IDS | VALUE_FLAGS, Kind.KEEP: ENCODED_IDS, Kind.UPDATE: VALUE_FLAGS}
#: The memory of a body and what is decoded from it, over its bytes: see :func:`id_positions.decode`; a plain length of 4 bytes becomes an
#: offset of 8; a value of 4 bytes comes in at least 1.75.
_MOST_OF_ENCODED_IDS, _MOST_OF_PLAIN_IDS, _MOST_OF_VALUES = 33, 5, 4
_HEADER = struct.Struct("<BBxxIIIQ")
_ID_TYPES: dict[int, np.dtype[Any]] = {4: np.dtype("<i4"), 8: np.dtype("<i8")}
_FLOAT_BYTES, _LENGTH_BYTES, _NUMBER_BYTES = 4, 4, 8


def check_flags(header: Header) -> None:
    """Raise :class:`DataError` for flags that a request of this kind does not have."""
    known = _FLAGS.get(header.kind, 0)
    if header.flags & ~known or header.flags & VALUE_FLAGS == VALUE_FLAGS:
        raise DataError("the flags of a frame must be known", value=header.flags, allowed=f"of {known}; one encoding of values")  # fmt: skip


def memory_bytes(header: Header) -> int:
    """The most bytes that the body of a request and what is decoded from it take in memory."""
    if header.kind in (Kind.FETCH, Kind.KEEP):
        return header.body_bytes * (_MOST_OF_ENCODED_IDS if header.flags & ENCODED_IDS else _MOST_OF_PLAIN_IDS)
    is_encoded = header.kind == Kind.UPDATE and header.flags & VALUE_FLAGS
    return header.body_bytes * (_MOST_OF_VALUES if is_encoded else 1)


def write_ids(batch: IdBatch, *, encoded: bool) -> bytes:
    """The ids of a batch that was checked."""
    if encoded:
        return id_positions.encode(batch)
    features, ends = batch.offsets.shape
    header = _HEADER.pack(batch.ids.dtype.itemsize, batch.weights is not None, features, ends - 1, 0, len(batch.ids))
    weights = () if batch.weights is None else (np.ascontiguousarray(batch.weights).data,)
    lengths = np.diff(batch.offsets).astype(np.uint32)
    return b"".join([header, np.ascontiguousarray(batch.ids).data, lengths.data, *weights])


def read_ids(body: Bytes, features: int, flags: int) -> IdBatch:
    """The batch of :func:`write_ids` for so many features, whose ids are not checked. Raises :class:`DataError`."""
    if flags & ENCODED_IDS:
        return id_positions.decode(bytes(body) if isinstance(body, memoryview) else body)
    if len(body) < _HEADER.size:
        raise DataError("the ids of a batch must have a header", value=f"{len(body)} bytes")
    id_bytes, has_weights, found, events, zero, ids = _HEADER.unpack_from(body)
    if id_bytes not in _ID_TYPES or has_weights > 1 or zero or found != features:
        raise DataError("the header of a batch must be one that the encoder writes", value=(id_bytes, has_weights, found),
                        allowed=f"{features} features")  # fmt: skip
    lengths_at = _HEADER.size + id_bytes * ids
    weights_at = lengths_at + _LENGTH_BYTES * features * events
    if weights_at + _FLOAT_BYTES * has_weights * ids != len(body):
        raise DataError("the ids of a batch must be as long as their header says", value=f"{len(body):,} bytes")
    lengths = np.frombuffer(body, "<u4", features * events, lengths_at).reshape(features, events)
    ends = np.cumsum(lengths, dtype=np.uint64)
    if (int(ends[-1]) if len(ends) else 0) != ids:
        raise DataError("the lengths of bags must add up to the number of ids", value=ids)
    offsets = np.zeros((features, events + 1), np.int64)
    offsets[:, 1:] = ends.reshape(features, events)
    offsets[1:, 0] = offsets[:-1, -1]
    weights = np.frombuffer(body, "<f4", ids, weights_at) if has_weights else None
    return IdBatch(np.frombuffer(body, _ID_TYPES[id_bytes], ids, _HEADER.size), offsets, weights)


def value_bytes(values: int, flag: int) -> int:
    """The bytes of so many values in an encoding."""
    return encoded_bytes(_pieces_of(values), flag) if flag else _FLOAT_BYTES * values


def encode_values(values: Array, flag: int) -> Array:
    """Flat float32 values, as uint8. Raises :class:`BadBatch` for NaN and infinity in an encoding."""
    if not flag:
        return values.view(np.uint8)
    found = np.empty(value_bytes(len(values), flag), np.uint8)
    encode_pieces([values] if len(values) else [], found, flag)
    return found


def decode_values(content: Array, values: Array, flag: int) -> None:
    """The inverse of :func:`encode_values`, into ``values``. Raises :class:`BadBatch` for bytes that no encoder writes."""
    if flag:
        decode_pieces(content, [values] if len(values) else [], flag)
    else:
        values.view(np.uint8)[:] = content


def write_gradients(batch: int, rates: Array, values: Array) -> list[Bytes]:
    """The body of an update: the number of its batch, the learning rate of each table, and encoded gradients."""
    return [batch.to_bytes(_NUMBER_BYTES, "little"), rates.tobytes(), values.data]


def batch_of(body: Bytes) -> int:
    """The number of the batch of an update. Raises :class:`DataError`."""
    if len(body) < _NUMBER_BYTES:
        raise DataError("an update must name its batch", value=f"{len(body)} bytes")
    return int.from_bytes(body[:_NUMBER_BYTES], "little")


def read_gradients(body: Bytes, tables: int, shape: tuple[int, int], flags: int) -> tuple[Array, Array]:
    """The learning rates of so many tables, and the gradients of activations of this shape. Raises :class:`DataError`."""
    flag, count = value_flag(flags), shape[0] * shape[1]
    values_at = _NUMBER_BYTES + _FLOAT_BYTES * tables
    expected = values_at + value_bytes(count, flag)
    if len(body) != expected:
        raise DataError("the gradients of a batch must be as many as its activations", value=f"{len(body):,} bytes",
                        allowed=f"{expected:,} bytes")  # fmt: skip
    rates = np.frombuffer(body, "<f4", tables, _NUMBER_BYTES)
    if not (np.isfinite(rates).all() and (rates >= 0).all()):
        raise DataError("learning rates must be finite and >= 0", value=rates[:4].tolist())
    values = np.empty(count, np.float32)
    decode_values(np.frombuffer(body, np.uint8, -1, values_at), values, flag)
    return rates, values.reshape(shape)


def _pieces_of(values: int) -> list[int]:
    return [values] if values else []
