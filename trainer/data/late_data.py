"""What a resumed run trains besides what was planned: late partitions, late rows, and events whose label has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trainer.data.due_events import DueEvents
from trainer.data.label_scan import FragmentLabels
from trainer.data.ledger import Ledger, label_sum
from trainer.data.readers import FragmentRef
from trainer.runs.data_changes import DataChanges
from trainer.runs.epochs import Epoch, Segments

Visits = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class LateData:
    """Events of partitions that were trained already, counted when a run goes on.

    Attributes:
        rows: events of fragments that came since; they are trained now.
        labels: events that were skipped and have a label now; they are trained now.
        restored: events that were retracted and are there again; they are trained now.
        retracted: events that were trained and are retracted since.
        accepted: what of trained data differs and was accepted, one text each; it is not trained again.
    """

    rows: int = 0
    labels: int = 0
    restored: int = 0
    retracted: int = 0
    accepted: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {**asdict(self), "accepted": list(self.accepted)}


NOTHING_LATE = LateData()


def visits_of(epochs: Iterable[Epoch]) -> dict[str, list[int]]:
    """The passes in which some epochs train each partition, in order."""
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
    """The partitions, in time order, that no segment has, or that the plan leaves events of that are trained too seldom.

    ``due``: None where events are not counted; then only whole partitions are late.
    """
    planned = {key for segment in segments for key in segment}

    def is_late(key: str) -> bool:
        if key not in planned:
            return True
        visits = remaining.get(key, ())
        return due is not None and any(due.short(ref.key, visits, passes).any() for ref in fragments[key])

    return tuple(key for key in fragments if is_late(key))


def count_late(
    changes: DataChanges, refs: Iterable[FragmentRef], due: DueEvents, retracted: int, accepted: Sequence[str]
) -> LateData:
    """What of partitions that were trained is due for the first time; an event counts as late by label before all else."""
    counted = dict.fromkeys(("rows", "labels", "restored"), 0)
    for ref in refs:
        if ref.key in changes.added:
            counted["rows"] += due.untrained(ref.key)
        elif ref.key in changes.relabelled:
            counted["labels"] += due.untrained(ref.key)
        elif ref.key in changes.retracted:
            counted["restored"] += due.untrained(ref.key)
    return LateData(**counted, retracted=retracted, accepted=tuple(accepted))


class TrainedLabels:
    """Watches the scan for labels of trained events that are not what they were, and for trained events retracted since."""

    def __init__(self, changes: DataChanges, ledger: Ledger) -> None:
        self._changes = changes
        self._ledger = ledger
        self._changed: dict[str, int] = {}
        self.retracted = 0

    def look(self, key: str, labels: FragmentLabels) -> None:
        """Look at one fragment."""
        trained = self._ledger.of(key) > 0
        if key in self._changes.retracted:
            self.retracted += int((trained & ~labels.live).sum())
        if key in self._changes.relabelled and trained.any():
            values = np.where(labels.labelled, labels.values, np.float32("nan"))[trained]
            found = label_sum(np.flatnonzero(trained), values)
            if found != self._ledger.labels_of(key):
                self._changed[key] = found

    def differences(self) -> tuple[str, ...]:
        """The fragments of which trained events have other labels, one text each."""
        return tuple(f"fragment {key}: the label of events that were trained is another now" for key in self._changed)

    def accept(self) -> None:
        """Take the labels as they are now for those that were trained."""
        for key, found in self._changed.items():
            self._ledger.accept_labels(key, found)
