"""Select the due events of an epoch: trainable events with too low a count.

In pass p an event is due if its count is at most p. So late events and late labels are trained as often as all others,
in segments of their own, and no event is trained twice in a pass after an interruption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from trainer.run.labels.label_scan import TrainableEvents
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.columns import DecodedFragment, take_events
from transforms.arrays import Array


class DueEvents:
    """The due events of fragments, by the current counts."""

    def __init__(self, ledger: Ledger, trainable: TrainableEvents) -> None:
        self._ledger = ledger
        self._trainable = trainable

    def select(self, decoded: Iterable[DecodedFragment], pass_number: int) -> Iterator[DecodedFragment]:
        """Reduce fragments to their due events; the events must be counted before the next pass."""
        for fragment in decoded:
            counts = self._ledger.of(fragment.key)
            own = counts if fragment.positions is None else counts[fragment.positions]
            yield take_events(fragment, np.flatnonzero(own <= pass_number))

    def is_due(self, key: str, pass_number: int) -> bool:
        """Whether a fragment has a due event in a pass, if the earlier passes are trained."""
        return bool((self._counts(key) <= pass_number).any())

    def is_whole(self, key: str, pass_number: int) -> bool:
        """Whether all trainable events of a fragment are due in a pass by the current counts."""
        return bool((self._counts(key) <= pass_number).all())

    def short(self, key: str, visits: Sequence[int], passes: int) -> Array:
        """The stored events that visits in these passes train less than ``passes`` times, as a mask."""
        mask: Array = self._trainable.of(key) & (counts_after(visits)[self._ledger.of(key)] < passes)
        return mask

    def below(self, key: str, count: int) -> Array:
        """The trainable stored events with a count below ``count``, as a mask."""
        mask: Array = self._trainable.of(key) & (self._ledger.of(key) < count)
        return mask

    def planned(self, key: str, visits: Sequence[int]) -> int:
        """The trainings of a fragment's events by visits in these passes, summed over events."""
        counts = self._counts(key)
        return int((counts_after(visits)[counts] - counts).sum(dtype=np.int64))

    def untrained(self, key: str) -> int:
        """The number of trainable events of a fragment that were never trained."""
        return int((self._counts(key) == 0).sum())

    def _counts(self, key: str) -> Array:
        return self._ledger.of(key)[self._trainable.of(key)]


def counts_after(visits: Sequence[int]) -> Array:
    """The count after visits in these passes, for each count from 0 to 255, int64 [256]."""
    counts = np.arange(256)
    for pass_number in visits:
        counts[counts <= pass_number] += 1
    return counts
