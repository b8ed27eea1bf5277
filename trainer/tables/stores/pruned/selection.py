"""The loops of a round of pruning: which rows of a group are the most important ones, and which places change hands."""

from __future__ import annotations

import numpy as np

from trainer.tables.kernels.vectors import item, prefetch
from transforms.arrays import Array
from transforms.kernels.compiled import compiled

#: Importance is counted by the upper bits of its float32, which order as the values do; then by the lower ones.
UPPER_BINS, LOWER_BITS = 1 << 16, 16
#: How many rows ahead of their use addresses and importance are asked for.
_AHEAD = 16


@compiled
def gather_importance(first: int, stop: int, address: Array, place_base: int, of_places: Array, of_rows: Array) -> None:
    """Write the importance of placed rows, which is kept by place, beside that of the others."""
    for r in range(first, stop):
        if address[r] >= 0:
            of_rows[r] = of_places[place_base + address[r]]


@compiled
def read_importance(
    rows: Array, address: Array, place_base: int, of_places: Array, of_rows: Array, importance: Array, is_kept: Array
) -> None:  # fmt: skip
    """Write the importance of some rows of a table, and whether they have places."""
    for i in range(len(rows)):
        if i + _AHEAD < len(rows):
            prefetch(address, item(rows, i + _AHEAD))
            prefetch(of_rows, item(rows, i + _AHEAD))
        place = address[rows[i]]
        is_kept[i] = place >= 0
        importance[i] = of_places[place_base + place] if place >= 0 else of_rows[rows[i]]


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
def list_changes(
    first: int, stop: int, bits: Array, least: int, ties: int, address: Array, leaving: Array, coming: Array
) -> tuple[int, int]:
    """List the placed rows that leave, and the rows without a place that get one; returns their numbers.

    Rows above the cut-off have a place afterwards, and the first ``ties`` of those at it.
    """
    left = came = 0
    for r in range(first, stop):
        stays = bits[r] > least
        if bits[r] == least and ties > 0:
            ties -= 1
            stays = True
        if stays and address[r] < 0:
            coming[came] = r
            came += 1
        elif not stays and address[r] >= 0:
            leaving[left] = r
            left += 1
    return left, came
