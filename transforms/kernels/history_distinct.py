"""The number of distinct values that events see: exact up to a limit, then estimated by HyperLogLog.

Windows of ascending events of one key only move on, so each row enters and leaves once. Registers keep how many distinct values have each rank, so that values can leave: the
estimate depends on the set of values alone. It is that of Ertl (2017, "New cardinality estimation algorithms for HyperLogLog sketches"), which needs no tables and no logarithm.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, vectorised
from transforms.kernels.farmhash import fingerprint64

#: 1 / (2 ln 2), the limit of HyperLogLog's factor.
_ALPHA = 0.7213475204444817
#: A row that entered the window and left it.
_GONE = 3


def hashes_of(values: pa.Array) -> Array:
    """The hashes of texts or int64 numbers: uint64."""
    if pa.types.is_int64(values.type):
        data = np.ascontiguousarray(np.asarray(values), "<i8").view(np.uint8)
        return _hashed(data, np.arange(0, len(data) + 8, 8))
    whole = values.cast(pa.large_binary())
    offsets = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset : whole.offset + len(whole) + 1]
    data = np.empty(0, np.uint8) if whole.buffers()[2] is None else np.frombuffer(whole.buffers()[2], np.uint8)
    return _hashed(data, offsets)


@compiled
def _hashed(data: Array, offsets: Array) -> Array:
    out = np.empty(len(offsets) - 1, np.uint64)
    for k in range(len(out)):
        out[k] = fingerprint64(data, offsets[k], offsets[k + 1] - offsets[k])
    return out


def distinct_values(
    starts: Array, event_starts: Array, first: Array, end: Array, before: Array, codes: Array, known: Array, hashes: Array, exact_most: int, precision: int,
) -> Array:  # fmt: skip
    """The number of distinct values of each event; more than ``exact_most`` are estimated, as at least one more.

    Args:
        starts: the first row of each key, and the end: int64.
        event_starts: the first event of each key, and the end: int64.
        first: of each event, the first row of its window; ascending within a key: int64.
        end: the row after its last one; ascending within a key: int64.
        before: the time before which rows must be known; ascending within a key: int64.
        codes: of each row, the number of its value, -1 for none: int64.
        known: of each row, from when on it is known: int64; empty if all are known at their time.
        hashes: of each value, :func:`hashes_of`.
        exact_most: up to so many values are counted one by one.
        precision: the binary logarithm of the number of registers.
    """
    values = len(hashes)
    shift = np.uint64(64 - precision)
    registers = (hashes >> shift).astype(np.int64)
    ranks = _ranks(hashes, precision)
    return _counted(starts, event_starts, first, end, before, codes, known, registers, ranks, np.zeros(values, np.int64), exact_most, precision)  # fmt: skip


@compiled
def _ranks(hashes: Array, precision: int) -> Array:
    """By value, the place of the first set bit after the bits of its register, from 1 on."""
    most = 64 - precision
    out = np.empty(len(hashes), np.int64)
    for k in range(len(hashes)):
        rank, bit = 1, np.uint64(1) << np.uint64(most - 1)
        while rank <= most and not hashes[k] & bit:
            rank += 1
            bit >>= np.uint64(1)
        out[k] = rank
    return out


@compiled
def _counted(
    starts: Array, event_starts: Array, first: Array, end: Array, before: Array, codes: Array, known: Array,
    registers: Array, ranks: Array, held: Array, exact_most: int, precision: int,
) -> Array:  # fmt: skip
    out = np.zeros(len(first), np.int64)
    size, levels = 1 << precision, 66 - precision
    held_ranks = np.zeros((size, levels), np.int32)  # by register and rank, the distinct values
    greatest, of_rank = np.zeros(size, np.int64), np.zeros(levels, np.int64)  # by register; the registers by rank
    of_rank[0] = size
    is_late = len(known) > 0
    # Of each row: whether its time is before the end of the window, whether it is known, both, or gone.
    passed = np.zeros(len(codes), np.int8)
    for key in range(len(event_starts) - 1):
        if event_starts[key] == event_starts[key + 1]:
            continue
        row, stop = starts[key], starts[key + 1]
        by_known = starts[key] + np.argsort(known[row:stop]) if is_late else np.empty(0, np.int64)
        entered, left, learned, distinct = row, row, 0, 0
        for event in range(event_starts[key], event_starts[key + 1]):
            while entered < end[event]:
                if not is_late or passed[entered] == 1:
                    distinct += _enter(codes[entered], held, registers, ranks, held_ranks, greatest, of_rank)
                passed[entered] += 1 if is_late else 2
                entered += 1
            while learned < len(by_known) and known[by_known[learned]] < before[event]:
                at = by_known[learned]
                if passed[at] != _GONE:
                    if at < entered:
                        distinct += _enter(codes[at], held, registers, ranks, held_ranks, greatest, of_rank)
                    passed[at] += 1
                learned += 1
            while left < first[event]:
                if left < entered and passed[left] == 2:
                    distinct -= _leave(codes[left], held, registers, ranks, held_ranks, greatest, of_rank)
                passed[left] = _GONE
                left += 1
            entered = max(entered, left)
            out[event] = distinct
            if distinct > exact_most:
                estimate = int(np.rint(_estimate(of_rank, size)))
                out[event] = max(exact_most + 1, estimate)
        for at in range(left, entered):
            if passed[at] == 2:
                _leave(codes[at], held, registers, ranks, held_ranks, greatest, of_rank)
    return out


@compiled
def _enter(
    code: int, held: Array, registers: Array, ranks: Array, held_ranks: Array, greatest: Array, of_rank: Array
) -> int:
    """Add a value; 1 if it is new."""
    if code < 0:
        return 0
    held[code] += 1
    if held[code] > 1:
        return 0
    register, rank = registers[code], ranks[code]
    held_ranks[register, rank] += 1
    if rank > greatest[register]:
        of_rank[greatest[register]] -= 1
        of_rank[rank] += 1
        greatest[register] = rank
    return 1


@compiled
def _leave(
    code: int, held: Array, registers: Array, ranks: Array, held_ranks: Array, greatest: Array, of_rank: Array
) -> int:
    """Take a value away; 1 if it was the last of its kind."""
    if code < 0:
        return 0
    held[code] -= 1
    if held[code]:
        return 0
    register, rank = registers[code], ranks[code]
    held_ranks[register, rank] -= 1
    while greatest[register] and not held_ranks[register, greatest[register]]:
        of_rank[greatest[register]] -= 1
        greatest[register] -= 1
        of_rank[greatest[register]] += 1
    return 1


@vectorised
def _estimate(of_rank: Array, size: int) -> float:
    """Ertl's estimate of the number of values; ``of_rank``: how many of ``size`` registers have each rank as their greatest."""
    most = len(of_rank) - 1
    below = size * _tau(1.0 - of_rank[most] / size)
    for rank in range(most - 1, 0, -1):
        below = (below + of_rank[rank]) * 0.5
    below += size * _sigma(of_rank[0] / size)
    return _ALPHA * size * size / below


@vectorised
def _sigma(x: float) -> float:
    if x == 1.0:
        return np.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        before = z
        x *= x
        z += x * y
        y += y
    return z


@vectorised
def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        before = z
        x = math.sqrt(x)
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0
