"""Which row of a lake is which row of its table after files were rewritten. Pure.

A lake rewrites whole files to change some of their rows. Rows of removed files (old) are paired with rows of added ones (new):

1. rows whose values are all equal;
2. of the others, in one partition, rows with equal keys, where the keys are known;
3. without keys: all others at once, if the same event times and most other columns, which then did not change, pair them
   one to one, as after an UPDATE without inserts and deletes.

An old row without a partner was deleted, a new one was appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.arrays import Ints
from warehouse.lakes.row_codes import row_codes, value_codes


@dataclass(frozen=True)
class Pairing:
    """Pairs of an old and a new row by index, and the rows without a partner.

    Attributes:
        same: the old and the new rows with equal values, as two aligned arrays.
        updated: the old and the new rows of which some value differs, as two aligned arrays.
        deleted: the old rows without a partner.
        appended: the new rows without a partner.
    """

    same: tuple[Ints, Ints]
    updated: tuple[Ints, Ints]
    deleted: Ints
    appended: Ints


def pair_rows(
    old: pa.Table, new: pa.Table, partitions: tuple[Ints, Ints], *, keys: Sequence[str], time_column: str
) -> Pairing:
    """Pair the rows of two tables of one schema.

    Args:
        old: the rows before, as the table has them.
        new: the rows after.
        partitions: a number for the partition of each old and each new row; updated rows stay in theirs.
        keys: the columns that identify a row; empty if they are not known. A key with a null identifies none.
        time_column: the column of event times.
    """
    rows = old.num_rows
    both = pa.concat_tables([old, new])
    codes = row_codes(both.columns, both.num_rows)
    same = pair_equal(codes[:rows], codes[rows:])
    rest_old, rest_new = _others(rows, same[0]), _others(new.num_rows, same[1])
    found = _pair_rest(both, rest_old, rest_new + rows, partitions, keys, time_column)
    updated = (rest_old[found[0]], rest_new[found[1]])
    return Pairing(same, updated, np.setdiff1d(rest_old, updated[0]), np.setdiff1d(rest_new, updated[1]))


def pair_equal(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Pairs of indices with equal codes, each index once: the first with the first, the second with the second."""
    old_rank, new_rank = _ranks(old), _ranks(new)
    width = int(max(old_rank.max(initial=0), new_rank.max(initial=0))) + 1
    _, first, second = np.intersect1d(
        old * width + old_rank, new * width + new_rank, assume_unique=True, return_indices=True
    )
    return first.astype(np.int64), second.astype(np.int64)


def _pair_rest(
    both: pa.Table, old: Ints, new: Ints, partitions: tuple[Ints, Ints], keys: Sequence[str], time_column: str
) -> tuple[Ints, Ints]:
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if not len(old) or not len(new):
        return none
    rest = both.take(pa.array(np.concatenate([old, new])))
    count = len(old)
    here = np.concatenate([partitions[0][old], partitions[1][new - len(partitions[0])]])
    places = pa.array(here)
    if keys:
        columns = [rest.column(name) for name in keys]
        known = np.ones(rest.num_rows, np.bool_)
        for column in columns:
            known &= np.asarray(column.is_valid())
        codes = row_codes([places, *columns], rest.num_rows)
        old_known, new_known = np.flatnonzero(known[:count]), np.flatnonzero(known[count:])
        first, second = pair_equal(codes[:count][old_known], codes[count:][new_known])
        return old_known[first], new_known[second]
    if len(old) != len(new):
        return none
    kept = [name for name in rest.column_names if _same_values(rest.column(name), count)]
    if time_column not in kept or 2 * len(kept) < rest.num_columns:
        return none
    codes = row_codes([places, *(rest.column(name) for name in kept)], rest.num_rows)
    pairs = pair_equal(codes[:count], codes[count:])
    return pairs if len(pairs[0]) == count else none


def _same_values(column: pa.ChunkedArray, count: int) -> bool:
    """Whether the values before and from ``count`` on are the same, in any order."""
    codes = value_codes(column.combine_chunks()) if column.num_chunks != 1 else value_codes(column.chunk(0))
    return bool(np.array_equal(np.sort(codes[:count]), np.sort(codes[count:])))


def _ranks(codes: Ints) -> Ints:
    """The number of earlier indices with the same code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)) if len(ordered) else np.zeros(0, np.int64)
    lengths = np.diff(np.append(starts, len(ordered)))
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return ranks


def _others(count: int, taken: Ints) -> Ints:
    left = np.ones(count, np.bool_)
    left[taken] = False
    return np.flatnonzero(left)
