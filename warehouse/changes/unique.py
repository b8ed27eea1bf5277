"""Removal of new rows whose key is known or repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Bools, Ints


def unseen_rows(new: Mapping[str, pa.Array], known: Sequence[Mapping[str, pa.Array]]) -> Bools:
    """True for every new row whose key no known row and no earlier new row has.

    ``new`` and each part of ``known`` have the same key columns and types. A key with a null equals no other, so its row is
    kept.
    """
    rows = len(next(iter(new.values())))
    parts = [*known, new]
    total = sum(len(next(iter(part.values()))) for part in parts)
    folded, missing = np.zeros(total, np.int64), np.zeros(total, np.bool_)
    for name in new:
        column = pa.chunked_array([part[name] for part in parts], new[name].type)
        missing |= np.asarray(column.is_null())
        folded = _fold(folded, _codes(column))
    _, firsts = np.unique(folded, return_index=True)
    first = np.zeros(total, np.bool_)
    first[firsts] = True
    kept: Bools = (first | missing)[total - rows :]
    return kept


def _codes(column: pa.ChunkedArray) -> Ints:
    """A small integer for each distinct value, with one for all nulls."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    values = pc.unique(column.drop_null())
    codes: Ints = np.asarray(pc.fill_null(pc.index_in(column, value_set=values), len(values))).astype(np.int64)
    return codes


def _fold(folded: Ints, codes: Ints) -> Ints:
    """A small integer for each distinct pair."""
    pairs = folded * (int(codes.max(initial=0)) + 1) + codes
    small: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return small
