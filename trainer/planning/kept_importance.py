"""The importance of the rows that a pruned table keeps, as a share of the importance of all rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transforms.arrays import Array

#: The points of a curve.
_POINTS = 65
_MOST = 0.9


@dataclass(frozen=True, slots=True)
class KeptImportance:
    """The importance of one table's rows.

    Attributes:
        name: of the table, with the part of the model for those of the linear part.
        rows: of the vocabulary.
        seen_rows: that training has looked up.
        kept_rows: that have a place.
        columns: of a row.
        importance_share: the share of the importance of all rows that the kept ones have.
        rows_for_most: the fewest rows that have 90 % of the importance.
        curve: the shares of the importance that the most important rows have, for equal steps of the seen rows from none to all.
    """

    name: str
    rows: int
    seen_rows: int
    kept_rows: int
    columns: int
    importance_share: float
    rows_for_most: int
    curve: tuple[float, ...]


def kept_importance(name: str, rows: int, columns: int, kept: Array, found: Array, importance: Array) -> KeptImportance:
    """The importance of the ``kept`` rows of a table; ``found``: the rows with importance, ascending, of which each has one.

    A kept row without importance was looked up, too: its gradients were zero.
    """
    total = float(importance.sum(dtype=np.float64))
    own = float(importance[np.isin(found, kept)].sum(dtype=np.float64))
    sums = np.concatenate([[0.0], np.cumsum(-np.sort(-importance.astype(np.float64)))])
    shares = sums / total if total else sums
    seen = len(np.union1d(kept, found))
    places = np.linspace(0, seen, _POINTS)
    curve = np.interp(places, np.arange(len(shares)), shares)
    most = int(np.searchsorted(shares, _MOST)) if total else 0
    return KeptImportance(
        name, rows, seen, len(kept), columns, own / total if total else 0.0, most, tuple(curve.tolist())
    )


def total_share(tables: Sequence[KeptImportance]) -> float:
    """The share of the weights of all vocabularies that is kept."""
    whole = sum(one.rows * one.columns for one in tables)
    return sum(one.kept_rows * one.columns for one in tables) / whole if whole else 0.0


def unpruned_share(tables: Sequence[KeptImportance]) -> float | None:
    """The share of the weights of all vocabularies that training has looked up, if all of it is kept: nothing was pruned; else None."""
    if any(one.kept_rows < one.seen_rows for one in tables):
        return None
    whole = sum(one.rows * one.columns for one in tables)
    return sum(one.seen_rows * one.columns for one in tables) / whole if whole else None
