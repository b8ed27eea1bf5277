"""Late data of a resumed run: late partitions, late rows, and events with late labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.run.labels.due_events import DueEvents
from trainer.run.labels.label_scan import FragmentLabels
from trainer.run.progress.data_changes import DataChanges
from trainer.run.progress.epochs import Epoch, Segments
from trainer.run.progress.ledger import Ledger, label_sum
from trainer.run.reading.stream import FragmentRef

Visits = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class LateData:
    """Late events of trained partitions, counted when a run resumes.

    Attributes:
        rows: events of new fragments; they are trained now.
        labels: events that were skipped and have a label now; they are trained now.
        restored: events that were deleted and are restored; they are trained now.
        relabelled: trained events whose label has changed; they are trained again with it.
        retracted: trained events that are deleted now.
        accepted: texts about changed trained data that was accepted; it is not trained again.
    """

    rows: int = 0
    labels: int = 0
    restored: int = 0
    relabelled: int = 0
    retracted: int = 0
    accepted: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {**asdict(self), "accepted": list(self.accepted)}


NOTHING_LATE = LateData()


def visits_of(epochs: Iterable[Epoch]) -> dict[str, list[int]]:
    """The passes in which the epochs train each partition, in order."""
    visits: dict[str, list[int]] = {}
    for epoch in epochs:
        for key in epoch.partitions:
            visits.setdefault(key, []).append(epoch.pass_number)
    return visits


def late_segment(
    fragments: Mapping[str, Sequence[FragmentRef]],
    segments: Segments,
    remaining: Visits,
    due: DueEvents | None,
    passes: int,
) -> tuple[str, ...]:
    """The partitions, in time order, that are in no segment or have events that the plan trains too rarely.

    ``due``: None if events are not counted; then only whole partitions are late.
    """
    planned = {key for segment in segments for key in segment}

    def is_late(key: str) -> bool:
        if key not in planned:
            return True
        visits = remaining.get(key, ())
        return due is not None and any(due.short(ref.key, visits, passes).any() for ref in fragments[key])

    return tuple(key for key in fragments if is_late(key))


def count_late(
    changes: DataChanges, refs: Iterable[FragmentRef], due: DueEvents, reopened: Mapping[str, int]
) -> LateData:
    """Count the events of trained partitions that are due for the first time; a late label has precedence.

    ``reopened``: of each fragment, the events that were trained and count as untrained again.
    """
    rows = labels = restored = 0
    for ref in refs:
        untrained = due.untrained(ref.key) - reopened.get(ref.key, 0)
        if ref.key in changes.added:
            rows += untrained
        elif ref.key in changes.relabelled:
            labels += untrained
        elif ref.key in changes.retracted:
            restored += untrained
    return LateData(rows, labels, restored)


class RetractedEvents:
    """Counts trained events that are deleted now, during the scan of labels."""

    def __init__(self, changes: DataChanges, ledger: Ledger) -> None:
        self._changes, self._ledger = changes, ledger
        self.events = 0

    def look(self, key: str, labels: FragmentLabels) -> None:
        """Count the late labels of one fragment."""
        if key in self._changes.retracted:
            self.events += int(((self._ledger.of(key) > 0) & ~labels.live).sum())


class TrainedLabels:
    """Finds changed labels of trained events, by their sums, during the scan of labels."""

    def __init__(self, changes: DataChanges, ledger: Ledger) -> None:
        self._changes = changes
        self._ledger = ledger
        self._changed: dict[str, int] = {}

    def look(self, key: str, labels: FragmentLabels) -> None:
        """Check one fragment."""
        trained = self._ledger.of(key) > 0
        if key in self._changes.relabelled and trained.any():
            values = np.where(labels.labelled, labels.values, np.float32("nan"))[trained]
            found = label_sum(np.flatnonzero(trained), values)
            if found != self._ledger.labels_of(key):
                self._changed[key] = found

    def differences(self) -> tuple[str, ...]:
        """A text for each fragment whose trained events have other labels."""
        return tuple(f"fragment {key}: the label of trained events has changed" for key in self._changed)

    def accept(self) -> None:
        """Record the current labels as those that were trained."""
        for key, found in self._changed.items():
            self._ledger.accept_labels(key, found)
