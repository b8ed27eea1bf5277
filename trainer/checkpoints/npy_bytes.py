"""Read npy bytes as arrays of numbers, without pickle and without more memory than the file's bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.errors import TornCheckpoint
from transforms.arrays import Array

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': (True|False), 'shape': \(([0-9]{1,18}(?:, [0-9]{1,18})*)?,?\), \} *\n"
)


def check_savable(array: Array) -> None:
    """Raises :class:`ValueError` for an array that :func:`array_from_npy` would not read."""
    if not re.fullmatch("[<|][biuf][1248]", array.dtype.str):
        raise ValueError(f"an array of a checkpoint must hold numbers of at most 8 bytes, got {array.dtype}")


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of an npy file says.

    Attributes:
        dtype, shape: of the array.
        is_fortran: whether columns come one after another.
        start: where the values begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    start: int


def read_header(data: bytes, file_bytes: int, where: str) -> NpyHeader:
    """The header at the beginning of a file. Raises :class:`TornCheckpoint` unless it describes exactly the bytes after it."""
    start = 10 + int.from_bytes(data[8:10], "little")
    header = _HEADER.fullmatch(data[10:start])
    if not data.startswith(_MAGIC) or header is None:
        raise _misfit("an npy header of version 1.0 and numbers", where, repr(data[:80]))
    dtype, shape = np.dtype(header[1].decode()), tuple(map(int, re.findall(rb"[0-9]+", header[3] or b"")))
    if math.prod(shape) * dtype.itemsize != file_bytes - start:
        raise _misfit(f"an array of {file_bytes - start} bytes", where, f"{dtype} {shape}")
    return NpyHeader(dtype, shape, header[2] == b"True", start)


def array_from_npy(data: bytes, where: str) -> Array:
    """The array that ``np.save`` wrote as ``data``: a read-only view of these bytes.

    Raises :class:`TornCheckpoint` unless the header describes exactly the bytes after it.
    """
    found = read_header(data, len(data), where)
    count = math.prod(found.shape)
    try:
        values: Array = np.frombuffer(data, found.dtype, count, found.start) if count else np.zeros(0, found.dtype)
        return values.reshape(found.shape, order="F" if found.is_fortran else "C")
    except ValueError as error:  # an empty array with a dimension beyond what numpy counts
        raise _misfit("an array of a shape that numpy has", where, str(error)) from error


def _misfit(rule: str, where: str, value: str) -> TornCheckpoint:
    return TornCheckpoint(f"an array file must hold {rule}, got another", where=where, value=value[:200], allowed=rule)
