"""Bags divided among the workers that have their rows, which are spread cyclically: row r is row r // N of worker r modulo N."""

from __future__ import annotations

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled

_NO_SHARES = np.zeros(0, np.float32)


def bags_of_owners(
    ids: Array, offsets: Array, shares: Array | None, owners: int
) -> list[tuple[Array, Array, Array | None]]:
    """Of each owner: its numbers of its rows of each bag, int64, the lengths of the bags, int32, feature after feature, and the shares of the ids.

    ``offsets``: int64 [features, events + 1], of the features that are divided; ``shares``: float32, of each id, or None.
    """
    lengths = np.zeros((owners, offsets.shape[0] * (offsets.shape[1] - 1)), np.int32)
    _count(ids, offsets, lengths)
    sizes = lengths.sum(axis=1, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    rows, own = np.empty(int(sizes.sum()), np.int64), _NO_SHARES
    if shares is not None:
        own = np.empty(len(rows), np.float32)
    _divide(ids, offsets, _NO_SHARES if shares is None else shares, starts.copy(), rows, own)
    spans = [slice(int(first), int(first + size)) for first, size in zip(starts, sizes, strict=True)]
    return [
        (rows[span], of_owner, None if shares is None else own[span])
        for span, of_owner in zip(spans, lengths, strict=True)
    ]


@compiled
def _count(ids: Array, offsets: Array, lengths: Array) -> None:
    """Count the ids of each owner in each bag; ``lengths``: zeros [owners, bags]."""
    owners, bag = lengths.shape[0], 0
    for f in range(offsets.shape[0]):
        for b in range(offsets.shape[1] - 1):
            for i in range(offsets[f, b], offsets[f, b + 1]):
                lengths[ids[i] % owners, bag] += 1
            bag += 1


@compiled
def _divide(ids: Array, offsets: Array, shares: Array, at: Array, rows: Array, own_shares: Array) -> None:
    """Write the rows and shares of each owner from ``at`` on, which moves to their ends."""
    owners, has_shares = len(at), len(own_shares) > 0
    for f in range(offsets.shape[0]):
        for b in range(offsets.shape[1] - 1):
            for i in range(offsets[f, b], offsets[f, b + 1]):
                owner = ids[i] % owners
                rows[at[owner]] = ids[i] // owners
                if has_shares:
                    own_shares[at[owner]] = shares[i]
                at[owner] += 1
