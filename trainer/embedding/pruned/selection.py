"""The loops of a round of pruning: which rows of a group are the most important ones, and which places change hands."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.kernels.compiled import compiled

Array = np.ndarray[Any, np.dtype[Any]]

#: Importance is counted by the upper bits of its float32, which order as the values do; then by the lower ones.
UPPER_BINS, LOWER_BITS = 1 << 16, 16


@compiled
def gather_importance(first: int, stop: int, address: Array, place_base: int, of_places: Array, of_rows: Array) -> None:
    """Write the importance of placed rows, which is kept by place, beside that of the others."""
    for r in range(first, stop):
        if address[r] >= 0:
            of_rows[r] = of_places[place_base + address[r]]


@compiled
def scale_importance(first: int, stop: int, of_rows: Array, factor: float, scaled: Array) -> None:
    """Write the importance of rows times a factor."""
    for r in range(first, stop):
        scaled[r] = np.float32(of_rows[r] * factor)


@compiled
def count_upper(first: int, stop: int, bits: Array, counts: Array) -> None:
    """Count rows by the upper bits of their importance; those of none are not counted."""
    for r in range(first, stop):
        if bits[r]:
            counts[bits[r] >> LOWER_BITS] += 1


@compiled
def count_lower(first: int, stop: int, bits: Array, upper: int, counts: Array) -> None:
    """Count the rows with these upper bits by their lower ones."""
    for r in range(first, stop):
        if bits[r] >> LOWER_BITS == upper and bits[r]:
            counts[bits[r] & (UPPER_BINS - 1)] += 1


@compiled
def list_leaving(
    first: int, stop: int, bits: Array, least: int, ties: int, address: Array, rows: Array
) -> tuple[int, int]:
    """List the placed rows below the cut-off, and those at it beyond the first ``ties``. Returns their number, and the ties that are left."""
    count = 0
    for r in range(first, stop):
        stays = bits[r] > least
        if bits[r] == least and ties > 0:
            ties -= 1
            stays = True
        if address[r] >= 0 and not stays:
            rows[count] = r
            count += 1
    return count, ties


@compiled
def list_coming(
    first: int, stop: int, bits: Array, least: int, ties: int, address: Array, rows: Array
) -> tuple[int, int]:
    """List the rows without a place above the cut-off, or among the first ``ties`` at it. Returns as :func:`list_leaving`."""
    count = 0
    for r in range(first, stop):
        stays = bits[r] > least
        if bits[r] == least and ties > 0:
            ties -= 1
            stays = True
        if address[r] < 0 and stays:
            rows[count] = r
            count += 1
    return count, ties
