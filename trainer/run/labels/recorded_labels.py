"""Compare the present labels with those as trained: an event whose label has changed is due once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.run.labels.label_record import CompactLabels, LabelRecord, label_bits
from trainer.run.labels.label_scan import FragmentLabels
from trainer.run.progress.ledger import Ledger, label_sum
from trainer.run.reading.stream import FragmentRef
from transforms.arrays import Array

#: By fragment: places of events, int64, and their counts at one moment, uint8.
Reopened: TypeAlias = dict[str, tuple[Array, Array]]

_NONE = np.float32("nan")


class RecordedLabels:
    """The labels as trained, brought up to date while labels are scanned.

    An event that was trained with another label than it has now is *reopened*: its count becomes at most ``passes`` - 1, so it is due
    in the last pass. An event whose label is gone, or which is deleted, keeps its count and its recorded label.

    Attributes:
        relabelled: of each fragment, the trained events whose label has changed.
        untrained: of each fragment, those of them whose count is 0 now.
        reopened: of each fragment, the places of those events, and their counts now, for :func:`reopen_untrained`.
    """

    def __init__(self, ledger: Ledger, passes: int, before: LabelRecord, now: Mapping[str, str]) -> None:
        """``now``: the current key of each recorded fragment that still exists. Raises :class:`TornCheckpoint`."""
        self._ledger, self._passes = ledger, passes
        self._before = {now[key]: labels for key, labels in before.fragments.items() if key in now}
        for key, labels in self._before.items():
            if len(ledger.of(key)) != labels.rows:
                raise TornCheckpoint("a label record must have one label per event of the fragment", value=key)
        self._trained_again = before.trained_again
        self._present: dict[str, CompactLabels] = {}
        self._unknown: dict[str, int] = {}
        self.relabelled: dict[str, int] = {}
        self.untrained: dict[str, int] = {}
        self.reopened: Reopened = {}

    def has(self, key: str) -> bool:
        """Whether the labels of a fragment are recorded."""
        return key in self._before

    def look(self, key: str, labels: FragmentLabels) -> None:
        """Compare one fragment, and reopen its events whose label has changed."""
        before = self._before.get(key)
        if before is None:
            self._adopt(key, labels)
            return
        counts, recorded = self._ledger.of(key), before.decode()
        is_labelled = labels.labelled & labels.live
        others = np.where(counts > 0, recorded, _NONE)
        present = np.where(is_labelled, labels.values, others).astype(np.float32)
        changed = (counts > 0) & is_labelled & (label_bits(present) != label_bits(recorded))
        if changed.any():
            self._reopen(key, changed, present)
        self._present[key] = CompactLabels.of(present)

    def _reopen(self, key: str, events: Array, present: Array) -> None:
        ledger = self._ledger
        self._trained_again += ledger.reopen(key, events, self._passes - 1)
        trained = ledger.of(key) > 0
        ledger.accept_labels(key, label_sum(np.flatnonzero(trained), present[trained]))
        self.relabelled[key] = int(events.sum())
        self.untrained[key] = int((events & ~trained).sum())
        places = np.flatnonzero(events)
        self.reopened[key] = places, ledger.of(key)[places].copy()

    def _adopt(self, key: str, labels: FragmentLabels) -> None:
        """Take the present labels of a fragment without a record; they must be those that were trained."""
        present = np.where(labels.labelled, labels.values, _NONE).astype(np.float32)
        trained = self._ledger.of(key) > 0
        found = label_sum(np.flatnonzero(trained), present[trained])
        if trained.any() and found != self._ledger.labels_of(key):
            self._unknown[key] = found
        self._present[key] = CompactLabels.of(present)

    def differences(self) -> tuple[str, ...]:
        """A text for each fragment with other labels than those that were trained, which are not recorded."""
        return tuple(
            f"fragment {key}: the label of trained events has changed, and the labels as trained were not recorded"
            for key in self._unknown
        )

    def accept(self) -> None:
        """Take the present labels of these fragments as those that were trained."""
        for key, found in self._unknown.items():
            self._ledger.accept_labels(key, found)

    def record(self, refs: Iterable[FragmentRef]) -> LabelRecord:
        """The record of fragments, which are recorded or scanned."""
        known = {**self._before, **self._present}
        return LabelRecord({ref.key: known[ref.key] for ref in refs}, self._trained_again)


def reopen_untrained(ledger: Ledger, reopened: Reopened, passes: int) -> int:
    """Make events due in the last of ``passes`` passes that were reopened for a later one, and not trained since.

    Without it, events whose label changed would keep the old one in a run whose passes end early. Returns by how much counts were lowered.
    """
    lowered = 0
    for key, (places, before) in reopened.items():
        counts = ledger.of(key)
        events = np.zeros(len(counts), bool)
        events[places[counts[places] == before]] = True
        lowered += ledger.reopen(key, events, passes - 1)
    return lowered
