"""Merge the rows of embedding tables of several hosts, ascending. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.errors import TornCheckpoint
from transforms.arrays import Array


def merge_rows(of_hosts: Sequence[Array], where: str) -> tuple[Array, list[Array]]:
    """All rows of a table ascending, int64, and for each host the places of its rows among them.

    Raises :class:`TornCheckpoint` unless every row is in the part of one host.
    """
    for rows in of_hosts:
        check_rows(rows, where)
    merged = np.concatenate(of_hosts) if len(of_hosts) > 1 else of_hosts[0]
    if len(of_hosts) > 1:
        merged = np.sort(merged, kind="stable")  # radix or merge sort of runs
    if len(merged) and (merged[0] < 0 or (merged[1:] <= merged[:-1]).any()):
        raise TornCheckpoint("every row of a table must be in the part of one host, ascending", where=where)
    if any((rows[1:] <= rows[:-1]).any() for rows in of_hosts):
        raise TornCheckpoint("the rows of a part must ascend", where=where)
    return merged, [np.searchsorted(merged, rows) for rows in of_hosts]


def newest_of_layers(layers: Sequence[Array], bases: int, removed: Array, where: str) -> tuple[Array, Array]:
    """The distinct rows of several layers, ascending, and for each its last place in all of them, one after the other.

    ``bases``: so many of the layers, the first ones, are bases, of which the ``removed`` rows, ascending, are left out. Raises
    :class:`TornCheckpoint` for removed rows that do not ascend, or that a later layer has.
    """
    rows = np.concatenate(layers)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    is_last = np.ones(len(rows), bool)
    is_last[:-1] = ascending[1:] != ascending[:-1]
    ascending, order = ascending[is_last], order[is_last]
    if not len(removed):
        return ascending, order
    if (removed[1:] <= removed[:-1]).any():
        raise TornCheckpoint("the removed rows of a table must ascend", where=where)
    at = np.minimum(np.searchsorted(removed, ascending), len(removed) - 1)
    is_removed = removed[at] == ascending
    if (order[is_removed] >= sum(map(len, layers[:bases]))).any():
        raise TornCheckpoint("a removed row must not be in a later shard", where=where)
    return ascending[~is_removed], order[~is_removed]


def check_rows(rows: Array, where: str) -> None:
    """Raises :class:`TornCheckpoint` unless they are a list of int64 numbers."""
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise TornCheckpoint("the rows of a table must be int64 numbers in a list, got others", where=where,
                             value=f"{rows.dtype} {rows.shape}")  # fmt: skip


def merge_values(places: Sequence[Array], rows: int, read: Callable[[int], Array], where: str) -> Array:
    """The values of all rows of a table: ``read(rank)`` gives those of a host. One host's values are in memory at a time."""
    if len(places) == 1:
        return _checked(read(0), len(places[0]), where)
    merged: Array | None = None
    for rank, at in enumerate(places):
        own = _checked(read(rank), len(at), where)
        if merged is None:
            merged = np.empty((rows, *own.shape[1:]), own.dtype)
        if own.dtype != merged.dtype or own.shape[1:] != merged.shape[1:]:
            raise TornCheckpoint("the values of a table must have one type and width, got several", where=where,
                                 value=f"{own.dtype} {own.shape}", allowed=f"{merged.dtype} {merged.shape}")  # fmt: skip
        merged[at] = own
    assert merged is not None
    merged.flags.writeable = False
    return merged


def _checked(own: Array, rows: int, where: str) -> Array:
    if own.ndim != 2 or len(own) != rows:
        raise TornCheckpoint("a table must have values for each of its rows, got others", where=where,
                             value=str(own.shape), allowed=f"({rows}, dim)")  # fmt: skip
    return own
