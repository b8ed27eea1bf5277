"""Read npy bytes as arrays of numbers, without pickle and without more memory than the file's bytes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from trainer.errors import TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': (True|False), 'shape': \(([0-9]{1,18}(?:, [0-9]{1,18})*)?,?\), \} *\n"
)


def check_savable(array: Array) -> None:
    """Raises :class:`ValueError` for an array that :func:`array_from_npy` would not read."""
    if not re.fullmatch("[<|][biuf][1248]", array.dtype.str):
        raise ValueError(f"an array of a checkpoint must hold numbers of at most 8 bytes, got {array.dtype}")


def array_from_npy(data: bytes, where: str) -> Array:
    """The array that ``np.save`` wrote as ``data``: a read-only view of these bytes.

    Raises :class:`TornCheckpoint` unless the header describes exactly the bytes after it.
    """
    start = 10 + int.from_bytes(data[8:10], "little")
    header = _HEADER.fullmatch(data[10:start])
    if not data.startswith(_MAGIC) or header is None:
        raise _misfit("an npy header of version 1.0 and numbers", where, repr(data[:80]))
    dtype, shape = np.dtype(header[1].decode()), tuple(map(int, re.findall(rb"[0-9]+", header[3] or b"")))
    count = math.prod(shape)
    if count * dtype.itemsize != len(data) - start:
        raise _misfit(f"an array of {len(data) - start} bytes", where, f"{dtype} {shape}")
    try:
        values: Array = np.frombuffer(data, dtype, count, start) if count else np.zeros(0, dtype)
        return values.reshape(shape, order="F" if header[2] == b"True" else "C")
    except ValueError as error:  # an empty array with a dimension beyond what numpy counts
        raise _misfit("an array of a shape that numpy has", where, str(error)) from error


def _misfit(rule: str, where: str, value: str) -> TornCheckpoint:
    return TornCheckpoint(f"an array file must hold {rule}, got another", where=where, value=value[:200], allowed=rule)
