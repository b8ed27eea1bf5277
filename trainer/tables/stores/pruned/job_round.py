"""A round of pruning over the hosts of a job: one cut-off for the rows of all of them, those that one process would find.

Hosts exchange how many of their rows have which importance, by the upper bits and then by the lower ones, so all know the cut-off to the bit. Rows of
just this importance get the places that are left in the order of their tables and rows, wherever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned import selection
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.round import (
    LEAST_BITS,
    TableRound,
    TableRows,
    count_bits,
    highest_bin,
    list_round,
    percentile_of_counts,
    scaled_bits,
)
from transforms.arrays import Array

#: The number of a row of a job is its table's position, then its own number in so many bits.
_ROW_BITS = 40
#: It is found by so many bits at a time, from the highest ones on.
_DIGIT_BITS, _DIGITS = 16, 4


@dataclass(frozen=True, slots=True, eq=False)
class GroupRound:
    """What a round changes in a group of a job.

    Attributes:
        group: its position.
        changes: of each of the rows that were given of it.
        kept: the rows of all hosts that have places afterwards.
    """

    group: int
    changes: tuple[TableRound, ...]
    kept: int


def select_rows_of_job(
    job: JobPlaces, groups: Sequence[int], rows: Sequence[Sequence[TableRows]], places: Sequence[int], team: Team, *, normalised: bool,
    is_load: bool = False,
) -> list[GroupRound]:  # fmt: skip
    """Give the places of groups to the most important rows of all hosts, which call this at once. Rows of no importance get none.

    Args:
        job: the hosts, and their tables.
        groups: positions of groups of the job.
        rows: of each group those of this host, table by table.
        places: of each group, how many rows have one afterwards.
        team: the threads.
        normalised: whether importance is divided by the percentile of its table over all hosts first.
        is_load: whether rows that were loaded are chosen among: those with places, also rows of no importance.
    """
    scales = _scales(job, groups, rows, team) if normalised else [[1.0] * len(own) for own in rows]
    bits = [[scaled_bits(one.importance, scale, team) for one, scale in zip(own, by, strict=True)]
            for own, by in zip(rows, scales, strict=True)]  # fmt: skip
    if is_load:
        bits = [[np.where(one.address >= 0, by + np.uint32(1), np.uint32(0)).astype(np.uint32) for one, by in zip(own, of_group, strict=True)]
                for own, of_group in zip(rows, bits, strict=True)]  # fmt: skip
    cuts = _cut_offs(job, bits, places, team)
    bounds = _bounds(job, rows, bits, cuts)
    found = []
    for k, g in enumerate(groups):
        changes = []
        for own, one in zip(bits[k], rows[k], strict=True):
            ties = _rows_below(job, own, one, cuts[k].least, bounds[k])
            changes.append(list_round(own, one, cuts[k].least, ties, team)[0])
        found.append(GroupRound(g, tuple(changes), cuts[k].kept))
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a group is cut.

    Attributes:
        least: the bits of the least importance that gets a place.
        ties: the places of rows of just this importance.
        kept: the rows that have places.
        is_below_all: whether all rows of any importance do.
    """

    least: int
    ties: int
    kept: int
    is_below_all: bool = False


def _scales(
    job: JobPlaces, groups: Sequence[int], rows: Sequence[Sequence[TableRows]], team: Team
) -> list[list[float]]:
    """What the importance of each table of each group is multiplied by."""
    tables = [t for g in groups for t in job.tables.groups[g].tables]
    counts = np.zeros((len(tables), selection.UPPER_BINS), np.int64)
    for own in rows:
        for one in own:
            counts[tables.index(job.tables.own[one.table])] = count_bits([one.importance.view(np.uint32)], team)
    highs = [percentile_of_counts(one) for one in job.add_counts(counts)]
    scale_of = {t: 1.0 / high if high else 0.0 for t, high in zip(tables, highs, strict=True)}
    return [[scale_of[job.tables.own[one.table]] for one in own] for own in rows]


def _cut_offs(job: JobPlaces, bits: Sequence[Sequence[Array]], places: Sequence[int], team: Team) -> list[_Cut]:
    """The cut-off of each group by the rows of all hosts."""
    counts = job.add_counts(np.array([count_bits(own, team) for own in bits]))
    totals = counts.sum(axis=1).tolist()
    over = [k for k, total in enumerate(totals) if total > places[k]]
    uppers = {k: highest_bin(counts[k], places[k]) for k in over}
    found = [_Cut(LEAST_BITS, total, total, is_below_all=True) for total in totals]
    if not over:
        return found
    lower = job.add_counts(np.array([count_bits(bits[k], team, uppers[k][0]) for k in over]))
    for k, of_group in zip(over, lower, strict=True):
        upper, left = uppers[k]
        low, ties = highest_bin(of_group, left)
        found[k] = _Cut((upper << selection.LOWER_BITS) | low, ties, places[k])
    return found


def _bounds(
    job: JobPlaces, rows: Sequence[Sequence[TableRows]], bits: Sequence[Sequence[Array]], cuts: Sequence[_Cut]
) -> list[int | None]:  # fmt: skip
    """Of each group the number, among all rows of the job, of the first row of the least importance that gets no place; None: all get one."""
    found: list[int | None] = [None if cut.is_below_all else 0 for cut in cuts]
    tied = [k for k, cut in enumerate(cuts) if cut.ties and not cut.is_below_all]
    if not tied:
        return found
    numbers = []
    for k in tied:
        own = [_numbers(job, table.table, table.numbers(np.flatnonzero(one == np.uint32(cuts[k].least))))
               for table, one in zip(rows[k], bits[k], strict=True)]  # fmt: skip
        numbers.append(np.concatenate([np.zeros(0, np.int64), *own]))
    left, known = [cuts[k].ties for k in tied], [0] * len(tied)
    for digit in range(_DIGITS - 1, -1, -1):
        shift = digit * _DIGIT_BITS
        digits = [one[(one >> (shift + _DIGIT_BITS)) == above] >> shift & ((1 << _DIGIT_BITS) - 1)
                  for one, above in zip(numbers, known, strict=True)]  # fmt: skip
        counts = job.add_counts(np.array([np.bincount(one, minlength=1 << _DIGIT_BITS) for one in digits], np.int64))
        for n, of_group in enumerate(counts):
            ends = np.cumsum(of_group)
            at = int(np.searchsorted(ends, left[n], side="right"))
            left[n] -= int(ends[at - 1]) if at else 0
            known[n] = (known[n] << _DIGIT_BITS) | at
    for k, bound in zip(tied, known, strict=True):
        found[k] = bound
    return found


def _numbers(job: JobPlaces, t: int, rows: Array) -> Array:
    """The numbers of rows of a table here among all rows of the job."""
    return (job.tables.own[t] << _ROW_BITS) + job.tables.whole_rows(t, rows)


def _rows_below(job: JobPlaces, bits: Array, table: TableRows, least: int, bound: int | None) -> int:
    """How many of these rows have just the least importance and get a place."""
    equal = np.flatnonzero(bits == np.uint32(least))
    return (
        len(equal) if bound is None else int(np.count_nonzero(_numbers(job, table.table, table.numbers(equal)) < bound))
    )
