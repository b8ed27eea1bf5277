"""The values of a message in fewer bits: rows that are fetched and gradients, piece by piece.

A piece holds the rows of neighbouring parts with equal columns, which are adjacent in the array of a batch
(:mod:`~trainer.tables.routes.servers.placed_rows`), so that it is encoded from there and decoded into it. Each piece begins at a multiple of 8 bytes of
the buffer, and is as long as its number of values says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.tables.wire import fp14_blocks, fp16_blocks
from transforms.arrays import Array
from transforms.errors import DataError

#: Flags of fetches, updates and answers about rows: how their values are encoded; neither: as float32.
FP16, FP14 = 4, 8
VALUE_FLAGS = FP16 | FP14
#: The flag of each encoding of :class:`~trainer.tables.wire.settings.WireSettings`.
FLAG_OF = {"float32": 0, "fp16": FP16, "fp14": FP14}
_ALIGNED = 8


@dataclass(frozen=True, slots=True)
class _Encoding:
    """The functions of :mod:`trainer.tables.wire.fp16_blocks` or :mod:`~trainer.tables.wire.fp14_blocks`."""

    encoded_bytes: Callable[[int], int]
    encode: Callable[[Array, Array], None]
    decode: Callable[[Array, Array], None]


_ENCODINGS = {
    FP16: _Encoding(fp16_blocks.encoded_bytes, fp16_blocks.encode, fp16_blocks.decode),
    FP14: _Encoding(fp14_blocks.encoded_bytes, fp14_blocks.encode, fp14_blocks.decode),
}


def value_flag(flags: int) -> int:
    """The encoding of values that the flags of a frame name; 0: none. Raises :class:`DataError` if there are two."""
    found = flags & VALUE_FLAGS
    if found and found not in _ENCODINGS:
        raise DataError("values of a frame must have one encoding", value=flags, allowed=", ".join(FLAG_OF))
    return found


def floats_of_pieces(counts: Array, dims: Array) -> list[int]:
    """The values of each piece of a message with ``counts`` rows of parts with so many columns; none is empty."""
    found: list[int] = []
    before = 0
    for count, dim in zip(counts.tolist(), dims.tolist(), strict=True):
        if count and dim == before:
            found[-1] += count * dim
        elif count:
            found.append(count * dim)
            before = dim
    return found


def split_pieces(values: Sequence[Array], floats: Sequence[int]) -> list[Array]:
    """``values`` divided into pieces of so many values, which are views: no piece is in two of the arrays."""
    arrays, at = iter(one for one in values if len(one)), 0
    found, own = [], np.zeros(0, np.float32)
    for count in floats:
        if at == len(own):
            own, at = next(arrays), 0
        found.append(own[at : at + count])
        at += count
    return found


def encoded_bytes(floats: Sequence[int], flag: int) -> int:
    """The bytes of encoded pieces."""
    return sum(_padded(_ENCODINGS[flag].encoded_bytes(count)) for count in floats)


def encode_pieces(pieces: Sequence[Array], buffer: Array, flag: int) -> None:
    """Write the encoded pieces to ``buffer``, uint8 of :func:`encoded_bytes`. Raises :class:`~trainer.errors.BadBatch` for NaN and infinity."""
    encoding = _ENCODINGS[flag]
    for (first, stop), piece in zip(_spans([len(one) for one in pieces], encoding), pieces, strict=True):
        encoding.encode(piece, buffer[first:stop])
        buffer[stop : first + _padded(stop - first)] = 0


def decode_pieces(buffer: Array, pieces: Sequence[Array], flag: int) -> None:
    """Write the values of ``buffer``, uint8 of :func:`encoded_bytes`, into ``pieces``.

    Raises :class:`~trainer.errors.BadBatch` for bytes that no encoder writes.
    """
    encoding = _ENCODINGS[flag]
    for (first, stop), piece in zip(_spans([len(one) for one in pieces], encoding), pieces, strict=True):
        encoding.decode(buffer[first:stop], piece)


def encoded(values: Array, flag: int) -> Array:
    """One piece of ``values``, flat float32, as it is sent: uint8, or ``values`` themselves without an encoding.

    Raises :class:`~trainer.errors.BadBatch` for NaN and infinity.
    """
    if not flag:
        return values
    buffer = np.empty(encoded_bytes([len(values)], flag), np.uint8)
    encode_pieces([values], buffer, flag)
    return buffer


def decoded(message: Array, count: int, flag: int) -> Array:
    """The inverse of :func:`encoded` for a message of ``count`` values; see :func:`check_encoded` for its type and length.

    Raises :class:`~trainer.errors.BadBatch` for bytes that no encoder writes.
    """
    if not flag:
        return message
    found = np.empty(count, np.float32)
    decode_pieces(message, [found], flag)
    return found


def check_encoded(message: Sequence[Array], floats: Sequence[int], flag: int, where: str) -> None:
    """Raise :class:`DataError` unless a message is one array with the type and length of pieces of so many values. ``where``: names the sender."""
    dtype, size = (np.dtype(np.uint8), encoded_bytes(floats, flag)) if flag else (np.dtype(np.float32), sum(floats))
    if len(message) != 1 or message[0].dtype != dtype or message[0].shape != (size,):
        raise DataError("a message must hold the values that were asked for", where=where,
                        value=", ".join(f"{one.dtype} {one.shape}" for one in message) or "no array", allowed=f"{dtype} ({size},)")  # fmt: skip


def _spans(floats: Sequence[int], encoding: _Encoding) -> list[tuple[int, int]]:
    """Where each piece begins and ends, without its padding."""
    found, at = [], 0
    for count in floats:
        size = encoding.encoded_bytes(count)
        found.append((at, at + size))
        at += _padded(size)
    return found


def _padded(size: int) -> int:
    return size + -size % _ALIGNED
