"""A numpy array from the bytes of an npy file: never unpickled, never more memory than the file has bytes."""

from __future__ import annotations

import io
import math
import tokenize
from typing import Any

import numpy as np

from trainer.errors import TornCheckpoint

Array = np.ndarray[Any, np.dtype[Any]]

_VERSION = (1, 0)


def array_from_npy(data: bytes, where: str) -> Array:
    """The array that ``np.save`` wrote as ``data``: a read-only view of these bytes.

    Raises :class:`TornCheckpoint` for a header that does not describe exactly the bytes that follow it.
    """
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != _VERSION:
            raise ValueError("the npy version must be 1.0")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError) as error:
        raise _misfit("a readable npy header", where, str(error)) from error
    if dtype.hasobject:
        raise _misfit("an array without Python objects", where, str(dtype))
    start, count = stream.tell(), math.prod(shape)
    if min((*shape, dtype.itemsize - 1)) < 0 or count * dtype.itemsize != len(data) - start:
        raise _misfit(f"an array of {len(data) - start} bytes", where, f"{dtype} {shape}")
    try:
        values: Array = np.frombuffer(data, dtype, count, start) if count else np.zeros(0, dtype)
        return values.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError) as error:  # an empty array with a dimension beyond what numpy counts
        raise _misfit("an array of a shape that numpy has", where, str(error)) from error


def _misfit(rule: str, where: str, value: str) -> TornCheckpoint:
    return TornCheckpoint(f"an array file must hold {rule}, got another", where=where, value=value[:200], allowed=rule)
