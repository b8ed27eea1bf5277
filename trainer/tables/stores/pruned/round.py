"""A round of pruning of one group: the rows that leave their places, and those that get one. On all threads; equal input gives equal rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned import selection
from transforms.arrays import Array

#: The rows of a piece of work.
_PIECE_ROWS = 1 << 18
#: Of fewer rows the cut-off is found without counting them by their bits, whose counts take longer than the rows.
_FEW_ROWS = 1 << 15
#: The bits of the smallest importance above none.
LEAST_BITS = 1
#: The percentile of a table's importance by which it is divided.
_PERCENTILE = 0.95


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table of a group.

    Attributes:
        table: its position.
        importance: float32, of each.
        address: int32, the place of each, below 0 for none.
        rows: their numbers, int64 and ascending; None: all rows of the table, in views of the engine's arrays.
    """

    table: int
    importance: Array
    address: Array
    rows: Array | None = None

    def numbers(self, at: Array) -> Array:
        """The numbers of the rows at some positions."""
        found: Array = at if self.rows is None else self.rows[at]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TableRound:
    """What a round changes in one table: the rows that leave their places and those that get one, int64 and ascending."""

    leaving: Array
    coming: Array

    @staticmethod
    def joined(parts: Sequence[TableRound]) -> TableRound:
        """The changes of a table from those of its pieces, in their order."""
        none = np.zeros(0, np.int64)
        leaving, coming = [one.leaving for one in parts], [one.coming for one in parts]
        return TableRound(np.concatenate([none, *leaving]), np.concatenate([none, *coming]))


def percentile_of(importance: Array, team: Team) -> float:
    """The 95th percentile of the importance of the rows that have any, within 1 %; 0 for none."""
    bits = importance.view(np.uint32)
    if len(bits) >= _FEW_ROWS:
        return percentile_of_counts(count_bits([bits], team))
    found = bits[bits > 0]
    at = max(math.ceil(_PERCENTILE * len(found)), 1) - 1
    return _middle_of(int(np.partition(found, at)[at]) >> selection.LOWER_BITS) if len(found) else 0.0


def percentile_of_counts(counts: Array) -> float:
    """As :func:`percentile_of`, of the rows by the upper bits of their importance."""
    total = int(counts.sum())
    return _middle_of(int(np.searchsorted(np.cumsum(counts), _PERCENTILE * total))) if total else 0.0


def _middle_of(upper: int) -> float:
    """The importance in the middle of those with these upper bits."""
    middle = np.array([(upper << selection.LOWER_BITS) | (selection.UPPER_BINS >> 1)], np.uint32)
    return float(middle.view(np.float32)[0])


def select_rows(tables: Sequence[TableRows], scales: Sequence[float], places: int, team: Team) -> list[TableRound]:
    """Give the ``places`` of a group to its most important rows; of equal ones the first rows come first. Rows of no importance get none.

    ``tables``: their rows, also in pieces, in their order; ``scales``: what the importance of each is multiplied by. Returns the changes of each.
    """
    bits = [scaled_bits(one.importance, scale, team) for one, scale in zip(tables, scales, strict=True)]
    return list_rounds(bits, tables, *cut_off_bits(bits, places, team), team)


def list_rounds(
    bits: Sequence[Array], tables: Sequence[TableRows], least: int, ties: int, team: Team
) -> list[TableRound]:
    """:func:`list_round` of tables, in their order."""
    found = []
    for own, table in zip(bits, tables, strict=True):
        one, taken = list_round(own, table, least, ties, team)
        ties -= taken
        found.append(one)
    return found


def list_round(bits: Array, table: TableRows, least: int, ties: int, team: Team) -> tuple[TableRound, int]:
    """What a round changes in a table, and how many rows of just the least importance keep or get a place.

    Args:
        bits: of the importance of each row.
        table: the rows.
        least: the bits of the least importance that gets a place.
        ties: the most rows of just this importance that do, the first ones.
        team: the threads.
    """
    pieces = row_pieces(len(bits))
    equal = np.array(team_map(team, [partial(_count_equal, bits[piece], least) for piece in pieces]), np.int64)
    before = np.cumsum(equal) - equal
    quotas = np.clip(ties - before, 0, equal).tolist()
    listed: list[TableRound] = team_map(team, [partial(_list_changes, bits, table, piece, least, quota)
                                               for piece, quota in zip(pieces, quotas, strict=True)])  # fmt: skip
    return TableRound.joined(listed), min(ties, int(equal.sum()))


def team_map(team: Team, works: Sequence[Any]) -> list[Any]:
    """The results of works, which the threads of a team share out."""
    results: list[Any] = [None] * len(works)

    def run(first: int) -> None:
        for k in range(first, len(works), team.threads):
            results[k] = works[k]()

    team.run([partial(run, first) for first in range(min(team.threads, len(works)))])
    return results


def row_pieces(rows: int) -> list[slice]:
    """The pieces of so many rows, of which each is work of one thread."""
    return [slice(first, min(first + _PIECE_ROWS, rows)) for first in range(0, rows, _PIECE_ROWS)]


def scaled_bits(importance: Array, scale: float, team: Team) -> Array:
    """The bits of importance times a factor, uint32, which order as the values do."""
    if scale == 1.0:
        return importance.view(np.uint32)
    scaled = np.empty(len(importance), np.float32)
    team_map(team, [partial(selection.scale_importance, piece.start, piece.stop, importance, scale, scaled)
                    for piece in row_pieces(len(importance))])  # fmt: skip
    return scaled.view(np.uint32)


def count_bits(tables: Sequence[Array], team: Team, upper: int | None = None) -> Array:
    """The rows of some tables by the upper bits of their importance; or those with these upper bits by their lower ones."""
    pieces = [bits[piece] for bits in tables for piece in row_pieces(len(bits))]
    counts = np.zeros((team.threads, selection.UPPER_BINS), np.int64)

    def count(k: int) -> None:
        for bits in pieces[k :: team.threads]:
            if upper is None:
                selection.count_upper(0, len(bits), bits, counts[k])
            else:
                selection.count_lower(0, len(bits), bits, upper, counts[k])

    team.run([partial(count, k) for k in range(min(team.threads, len(pieces)))])
    found: Array = counts.sum(axis=0)
    return found


def cut_off_bits(bits: Sequence[Array], places: int, team: Team) -> tuple[int, int]:
    """The bits of the least importance that gets a place, and how many rows of just this importance do."""
    if sum(map(len, bits)) < _FEW_ROWS:
        return _cut_off_of_few(np.concatenate(bits), places)
    counts = count_bits(bits, team)
    if (total := int(counts.sum())) <= places:
        return LEAST_BITS, total
    upper, left = highest_bin(counts, places)
    lower, ties = highest_bin(count_bits(bits, team, upper), left)
    return (upper << selection.LOWER_BITS) | lower, ties


def highest_bin(counts: Array, places: int) -> tuple[int, int]:
    """The bin down to which rows have places, of more rows than these, and the places that are left for its own rows."""
    above = np.cumsum(counts[::-1])[::-1]
    found = int(np.flatnonzero(above > places)[-1])
    return found, places - (int(above[found + 1]) if found + 1 < len(above) else 0)


def _cut_off_of_few(bits: Array, places: int) -> tuple[int, int]:
    """As :func:`cut_off_bits`, of rows that are sorted as far as it needs."""
    found = bits[bits > 0]
    if len(found) <= places:
        return LEAST_BITS, len(found)
    first_without = len(found) - 1 - places
    least = np.partition(found, first_without)[first_without]
    return int(least), places - int(np.count_nonzero(found > least))


def _count_equal(bits: Array, least: int) -> int:
    return int(np.count_nonzero(bits == np.uint32(least)))


def _list_changes(bits: Array, table: TableRows, piece: slice, least: int, ties: int) -> TableRound:
    leaving, coming = np.empty((2, piece.stop - piece.start), np.int64)
    left, came = selection.list_changes(piece.start, piece.stop, bits, least, ties, table.address, leaving, coming)
    return TableRound(table.numbers(leaving[:left].copy()), table.numbers(coming[:came].copy()))
