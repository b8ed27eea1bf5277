"""The ledger: how often every event was trained, saved with the weights.

The counts are part of the checkpoint, so after a crash they match the restored weights: "every event exactly once" is
measured, not inferred.

Every *stored* event has a counter, even without a label or if it is deleted: an event keeps its place when its label
arrives. In pass p an event is trained if its count is at most p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.checkpoints.saved_counts import MOST_COUNT, SavedCounts, SavedFragment
from trainer.errors import TornCheckpoint
from trainer.run.reading.batches import Span
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The number of events, the least and the greatest count, and whether all counts are ``expected``."""

    events: int
    least: int
    most: int
    expected: int

    @property
    def exact(self) -> bool:
        """Whether every event was trained exactly the expected number of times."""
        return self.events == 0 or (self.least == self.most == self.expected)

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {**asdict(self), "exact": self.exact}


class Ledger:
    """One uint8 counter per stored event, by fragment key. ``rows`` maps fragment keys to stored events."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._counts = {key: np.zeros(count, np.uint8) for key, count in rows.items()}
        self._labels: dict[str, int | None] = dict.fromkeys(rows, 0)

    def of(self, key: str) -> Array:
        """The counts of a fragment's stored events, uint8, read-only."""
        return self._counts[key]

    def labels_of(self, key: str) -> int | None:
        """The sum of :func:`label_sum` over the trained events of a fragment; None if it is unknown."""
        return self._labels[key]

    def reopen(self, key: str, events: Array, most: int) -> int:
        """Lower the counts of these events (bool) to at most ``most``. Returns by how much in all; the label sum stays."""
        counts = self._counts[key]
        lowered = np.where(events, np.minimum(counts, most), counts).astype(np.uint8)
        self._counts[key] = lowered
        return int((counts - lowered).sum(dtype=np.int64))

    def accept_labels(self, key: str, labels: int | None) -> None:
        """Set the label sum of a fragment's trained events."""
        self._labels[key] = labels

    def count(
        self, spans: Iterable[Span], labels: Array | None = None, *, before: Callable[[str], Array] | None = None
    ) -> None:
        """Count the training of these events, with ``labels`` in their order. Raises :class:`OverflowError` past 255.

        ``before``: of a fragment, how often its stored events were trained before; by default as often as this ledger counts.
        """
        at = 0
        for span in spans:
            counts, events = self._counts[span.key], span.events
            trained = counts[events].copy()  # of a slice it would be a view, which shows the new counts
            if len(trained) and trained.max() == MOST_COUNT:
                raise OverflowError(f"an event of fragment {span.key} was trained more than {MOST_COUNT} times")
            counts[events] = trained + np.uint8(1)
            known = self._labels[span.key]
            if labels is None:
                self._labels[span.key] = None
            elif known is not None and not (earlier := trained if before is None else before(span.key)[events]).all():
                own, new = labels[at : at + len(trained)], earlier == 0
                places = np.arange(span.start, span.stop) if isinstance(events, slice) else events
                self._labels[span.key] = (known + label_sum(places[new], own[new])) % 2**64
            at += len(trained)

    def summary(self, keys: Iterable[str], *, expected: int, of: Callable[[str], Array] | None = None) -> LedgerSummary:
        """The summary of the fragments ``keys``; ``of`` returns the mask of a fragment's events that count."""
        chosen = (self._counts[key] if of is None else self._counts[key][of(key)] for key in keys)
        counts = [part for part in chosen if len(part)]
        least = min((int(part.min()) for part in counts), default=0)
        most = max((int(part.max()) for part in counts), default=0)
        return LedgerSummary(sum(map(len, counts)), least, most, expected)

    def counts(self) -> SavedCounts:
        """The counts to save, without fragments that were never trained."""
        trained = ((key, counts) for key, counts in self._counts.items() if counts.any())
        return SavedCounts.of((key, counts, self._labels[key]) for key, counts in trained)

    def load(self, saved: SavedCounts, now: Mapping[str, str] | None = None) -> None:
        """Load saved counts; other fragments keep zero.

        ``now`` maps the key of each saved fragment to its current key; other saved fragments are gone. Raises
        :class:`TornCheckpoint` for counts of events that this data does not have.
        """
        for fragment, trained in saved.counts():
            key = fragment.key if now is None else now.get(fragment.key)
            if key is not None:
                self._take(key, fragment, trained)

    def _take(self, key: str, fragment: SavedFragment, trained: Array) -> None:
        counts = self._counts.get(key)
        # Earlier releases counted only events that were not deleted, all events of a fragment equally often.
        shorter = fragment.labels is None and fragment.count is not None
        if counts is None or (len(counts) != fragment.rows and not (shorter and len(counts) > fragment.rows)):
            raise TornCheckpoint("the ledger must count only events of this data", value=fragment.key)
        counts[:] = trained if fragment.count is None else fragment.count
        self._labels[key] = fragment.labels


def label_sum(places: Array, labels: Array) -> int:
    """The sum, modulo 2**64, of a hash of every event's place in its fragment (int64) and its label (float32).

    It does not depend on the order of events. Collisions are possible.
    """
    bits = np.asarray(labels, np.float32).view(np.uint32).astype(np.uint64)
    mixed = np.asarray(places).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + bits
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int(np.sum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64))
