"""How the weights of rows are stored in a link, and the weights that a server has of them. Pure and deterministic.

==========  ====================================  =============================================================
encoding    files                                 served weight
==========  ====================================  =============================================================
float32     ``values`` float32 [rows, columns]    the same bits
float16     ``values`` float16 [rows, columns]    as float32; weights beyond 65,504 are stored as 65,504
int8        ``values`` int8 [rows, columns],      the value times the row's scale, in float32; the scale is the
            ``scales`` float32 [rows]             row's largest magnitude divided by 127
==========  ====================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.errors import ConfigError, TornCheckpoint
from transforms.arrays import Array

EXACT, FLOAT16, INT8 = "float32", "float16", "int8"
ENCODINGS = (EXACT, FLOAT16, INT8)
#: The values of the option ``--quantize``.
QUANTIZE = ("none", "fp16", "int8")

_MOST_FLOAT16 = np.float32(65_504.0)
_LEVELS = np.float32(127.0)
#: A rounded-up scale of the largest float32 would make it infinite.
_MOST_SCALE = np.nextafter(np.finfo(np.float32).max / _LEVELS, np.float32(0.0))
#: Below so many columns the scale of a row takes more bytes than int8 saves against float16.
_FEWEST_INT8_COLUMNS = 5


def encoding_of(quantize: str, columns: int) -> str:
    """The encoding of a table; a narrow table has float16 where int8 would take as many bytes."""
    if quantize not in QUANTIZE:
        raise ConfigError(
            "a quantization must be a known one", where="--quantize", value=quantize, allowed=", ".join(QUANTIZE)
        )
    if quantize == "none":
        return EXACT
    return INT8 if quantize == "int8" and columns >= _FEWEST_INT8_COLUMNS else FLOAT16


def arrays_of(encoding: str, columns: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """The stored arrays of an encoding: the type, and the shape of one row."""
    if encoding == INT8:
        return {"values": (np.dtype("|i1"), (columns,)), "scales": (np.dtype("<f4"), ())}
    return {"values": (np.dtype("<f4" if encoding == EXACT else "<f2"), (columns,))}


def encode(weights: Array, encoding: str, where: str) -> tuple[dict[str, Array], float]:
    """The stored arrays of weights, float32 [rows, columns], and the largest error.

    Raises :class:`TornCheckpoint` for weights that are not finite where they are not stored exactly.
    """
    if encoding == EXACT:
        return {"values": weights.astype("<f4", copy=False)}, 0.0
    if not np.isfinite(weights).all():
        raise TornCheckpoint("weights must be finite to be quantized", where=where)
    if encoding == INT8:
        stored = _to_int8(weights)
    else:
        stored = {"values": weights.clip(-_MOST_FLOAT16, _MOST_FLOAT16).astype("<f2")}
    served = decode(stored, encoding).astype(np.float64)
    return stored, float(np.abs(served - weights).max(initial=0.0))


def _to_int8(weights: Array) -> dict[str, Array]:
    scales = np.minimum(np.abs(weights).max(axis=1) / _LEVELS, _MOST_SCALE)
    divisors = np.where(scales > 0, scales, np.float32(1.0))  # a row of zeros, or of subnormal numbers
    levels = np.rint(weights / divisors[:, np.newaxis]).clip(-_LEVELS, _LEVELS)
    return {"values": levels.astype("|i1"), "scales": scales.astype("<f4")}


def decode(stored: Mapping[str, Array], encoding: str) -> Array:
    """The served weights of stored arrays, float32 [rows, columns]."""
    values = stored["values"]
    if encoding == INT8:
        scaled: Array = values.astype(np.float32) * stored["scales"].astype(np.float32)[:, np.newaxis]
        return scaled
    return values.astype(np.float32)
