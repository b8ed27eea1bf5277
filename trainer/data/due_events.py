"""Which events an epoch trains: those that can be trained and were trained too seldom so far.

In pass p an event is due if its count is at most p. Events that had no label, or came late, are so trained as often as all
others, in segments of their own, and an event that was trained is not trained again, wherever a run was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from trainer.data.label_scan import TrainableEvents
from trainer.data.ledger import Ledger
from trainer.data.readers import DecodedFragment, take_events

Array = np.ndarray[Any, np.dtype[Any]]


class DueEvents:
    """What is due of each fragment, by the counts as they are."""

    def __init__(self, ledger: Ledger, trainable: TrainableEvents) -> None:
        self._ledger = ledger
        self._trainable = trainable

    def select(self, decoded: Iterable[DecodedFragment], pass_number: int) -> Iterator[DecodedFragment]:
        """The due events of fragments that are about to be trained; they must be counted before the next pass."""
        for fragment in decoded:
            counts = self._ledger.of(fragment.key)
            own = counts if fragment.positions is None else counts[fragment.positions]
            yield take_events(fragment, np.flatnonzero(own <= pass_number))

    def is_due(self, key: str, pass_number: int) -> bool:
        """Whether a fragment has any event for a pass, given that the passes before it are trained."""
        return bool((self._counts(key) <= pass_number).any())

    def short(self, key: str, visits: Sequence[int], passes: int) -> Array:
        """Which stored events a plan that visits a fragment in these passes would train less than ``passes`` times."""
        mask: Array = self._trainable.of(key) & (counts_after(visits)[self._ledger.of(key)] < passes)
        return mask

    def planned(self, key: str, visits: Sequence[int]) -> int:
        """How often, summed over its events, a plan that visits a fragment in these passes trains one."""
        counts = self._counts(key)
        return int((counts_after(visits)[counts] - counts).sum(dtype=np.int64))

    def untrained(self, key: str) -> int:
        """How many of a fragment's trainable events were never trained."""
        return int((self._counts(key) == 0).sum())

    def _counts(self, key: str) -> Array:
        return self._ledger.of(key)[self._trainable.of(key)]


def counts_after(visits: Sequence[int]) -> Array:
    """The count that an event of each count from 0 to 255 has after visits in these passes, int64 [256]."""
    counts = np.arange(256)
    for pass_number in visits:
        counts[counts <= pass_number] += 1
    return counts
