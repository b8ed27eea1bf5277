"""The proof by the event ledger: how often each trainable event was trained, by the newest commit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.run.preparation.preparation import PreparedRun
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class TrainedEvents:
    """The events of a run.

    Attributes:
        events: that can be trained.
        expected: how often each should have been.
        lost: missing trainings, added over all events.
        repeated: surplus trainings, added over all events.
    """

    events: int
    expected: int
    lost: int
    repeated: int

    @property
    def is_exact(self) -> bool:
        """Whether each event was trained as often as it should be."""
        return not self.lost and not self.repeated


def count_trained(prepared: PreparedRun) -> TrainedEvents:
    """Count the events of a run's newest commit. Raises :class:`InputError` for a run that does not count its events."""
    ledger, passes = prepared.ledger, prepared.progress.passes(prepared.config)
    if ledger is None:
        raise InputError("a proof needs a run with count_events", where="count_events", value=False, allowed="true")
    events = lost = repeated = 0
    for ref in (ref for refs in prepared.fragments.values() for ref in refs):
        counts = ledger.of(ref.key)[prepared.trainable.of(ref.key)].astype(np.int64)
        events += len(counts)
        lost += int(np.maximum(passes - counts, 0).sum())
        repeated += int(np.maximum(counts - passes, 0).sum())
    return TrainedEvents(events, passes, lost, repeated)
