"""A digest of 128 bits for each row of weights, by which a delta finds the rows that changed.

Two lanes of 64 bits take the words of a row one after another; each step is a bijection of the lane, so rows that differ in one word
always have different digests. Other rows have equal ones with a chance of about 2^-128. The digests guard against no attacker.
"""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_SEED_A, _SEED_B = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
_MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_S29, _S32 = np.uint64(29), np.uint64(32)


@compiled
def _digest_words(words: Array, out: Array) -> None:
    for r in range(words.shape[0]):
        a, b = _SEED_A, _SEED_B
        for c in range(words.shape[1]):
            word = np.uint64(words[r, c])
            a = (a ^ word) * _MIX_A
            a ^= a >> _S32
            b = (b + word) * _MIX_B
            b ^= b >> _S29
        out[r, 0] = (a ^ (a >> _S29)) * _MIX_B
        out[r, 1] = (b ^ (b >> _S32)) * _MIX_A


def digest_rows(weights: Array) -> Array:
    """uint64 [rows, 2] of float32 [rows, columns], by their bits."""
    out = np.empty((len(weights), 2), np.uint64)
    _digest_words(np.ascontiguousarray(weights, np.float32).view(np.uint32), out)
    return out
