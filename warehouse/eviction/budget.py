"""The memos that a budget evicts, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warehouse.eviction.stored_memos import StoredMemos

_DAY_SECS = 86_400

#: Memos among which a choice begins to leave out some.
_FEW = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class EvictionCandidates:
    """Memos that a budget may evict, in the order of component and key.

    ``requested_at``: the last request of each, in epoch seconds; ``readers``: the live models that have its component, as an input or inside
    one.
    """

    memos: StoredMemos
    requested_at: NDArray[np.float64]
    readers: NDArray[np.int64]

    @staticmethod
    def joined(*parts: EvictionCandidates) -> EvictionCandidates:
        """The candidates of all parts, in this order."""
        memos = StoredMemos.joined(part.memos for part in parts)
        requested_at = np.concatenate([part.requested_at for part in parts])
        return EvictionCandidates(memos, requested_at, np.concatenate([part.readers for part in parts]))

    def first(self, excess_bytes: int) -> EvictionCandidates:
        """In the order of evictions, the fewest that together take this; all of them if they take less. Equal ones stay as they are."""
        memos = self.memos
        worth = memos.secs * np.maximum(self.readers, 1) / np.maximum(memos.size_bytes, 1)
        order = np.lexsort((worth, self.requested_at // _DAY_SECS, self.readers > 0))  # stable
        reached = int(np.searchsorted(np.cumsum(memos.size_bytes[order]), excess_bytes))
        order = order[: reached + 1]
        return EvictionCandidates(memos.at(order), self.requested_at[order], self.readers[order])


def choose_for_budget(candidates: Iterable[EvictionCandidates], excess_bytes: int) -> StoredMemos:
    """The fewest memos from the start of the order of evictions that together take ``excess_bytes``, in this order.

    1. Memos that no live model has are before all others.
    2. Then by the day (UTC) of their last request, earliest first.
    3. Then by saved seconds per byte, fewest first: the time to compute them again, for each of their readers.
    4. Then by component and key, the order in which the candidates come.

    All of them if they take less; none without an excess. Memory is that of a few times the result.
    """
    kept = EvictionCandidates(StoredMemos.of(()), np.zeros(0), np.zeros(0, np.int64))
    if excess_bytes <= 0:
        return kept.memos
    waiting: list[EvictionCandidates] = []
    count, most = 0, _FEW
    for some in candidates:
        waiting.append(some)
        count += len(some.memos)
        if count >= most:
            kept = EvictionCandidates.joined(kept, *waiting).first(excess_bytes)
            waiting, count = [], len(kept.memos)
            most = max(2 * count, _FEW)
    return EvictionCandidates.joined(kept, *waiting).first(excess_bytes).memos
