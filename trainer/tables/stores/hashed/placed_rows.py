"""What a step does to the rows of a store, which are places, once the index has given and taken these."""

from __future__ import annotations

import numpy as np

from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed import rows as kernels
from trainer.tables.stores.hashed.decisions import NEW, OF_REMOVED, Decisions
from transforms.arrays import Array


def change_rows(decided: Decisions, store: DenseStore, positions: Array) -> None:
    """Release the rows that no new id takes, and give new ids their initial values; inside a transaction.

    ``positions``: of the hashed tables among those of the store.
    """

    def of_store(counts: Array) -> Array:
        found = np.zeros(len(store.tables), np.int64)
        found[positions] = counts
        return found

    removed, kept = np.diff(decided.removed_starts), decided.counts[:, OF_REMOVED]
    left = removed - kept
    if (left > 0).any():
        first = np.repeat(decided.removed_starts[:-1] + kept, left)
        ranges = np.arange(len(first)) - np.repeat(np.cumsum(left) - left, left)
        store.release_rows(decided.removed[first + ranges], of_store(left))
    if decided.is_new.any():
        store.assign_rows(decided.places[decided.is_new], of_store(decided.counts[:, NEW]), decided.ids[decided.is_new])


def select_placed(starts: Array, places: Array, values: Array, dims: Array) -> tuple[Array, Array, Array]:
    """Places, their numbers by table, and their values, without what has no place."""
    if not (places < 0).any():
        return places, np.diff(starts), values
    own, numbers, out = np.empty_like(places), np.zeros(len(dims), np.int64), np.empty_like(values)
    used = kernels.select_placed(starts, places, dims, values, own, numbers, out)
    return own[: int(numbers.sum())], numbers, out[:used]
