"""What a host knows of the data of its plan: the layout of batches, and which events of a unit are due."""

from __future__ import annotations

import numpy as np

from trainer.checkpoints.saved_counts import SavedCounts
from trainer.model.inputs import InputLayout, lay_out
from trainer.options.config import TrainConfig
from trainer.run.preparation.due_places import DuePlaces
from trainer.run.preparation.job_plan import JobPlan, config_of
from trainer.run.progress.ledger import Ledger
from trainer.run.reading.columns import DecodedFragment, take_events
from trainer.run.reading.packed_units import Delivered, UnitDecoder
from trainer.run.reading.unit_requests import UnitRequest
from transforms.arrays import Array

_ALL = 256


class JobData:
    """The events of a plan.

    Attributes:
        plan: the plan.
        config: the options of its run.
        layout: the inputs of its batches.
        places: of the due events.
    """

    def __init__(self, plan: JobPlan, run_dir: str) -> None:
        self.plan = plan
        self.config: TrainConfig = config_of(plan, run_dir)
        self.layout: InputLayout = lay_out(plan.identity.typed_inputs, self.config)
        self._decode = UnitDecoder(self.layout, plan.head)
        self._rows = dict(zip(plan.units.keys, plan.fragment_rows.tolist(), strict=True))
        self._before: Ledger | None = None
        if plan.counts is not None and plan.counts.fragments:
            self._before = self.ledger_of(plan.counts)
        self._counted = frozenset(() if plan.counts is None else (one.key for one in plan.counts.fragments))
        self.places = DuePlaces(plan, self._counts)

    def ledger_before(self, rank: int) -> Ledger | None:
        """The ledger of a host at the plan's beginning: all earlier counts are those of rank 0. None if events are not counted."""
        if self.plan.counts is None:
            return None
        return self.ledger_of(self.plan.counts) if rank == 0 else Ledger(self._rows)

    def ledger_of(self, counts: SavedCounts) -> Ledger:
        """A ledger with these counts, which may have more fragments than the plan."""
        ledger = Ledger({**{one.key: one.rows for one in counts.fragments}, **self._rows})
        ledger.load(counts)
        return ledger

    def decode(self, request: UnitRequest, delivered: Delivered) -> DecodedFragment:
        """The due events of a request."""
        decoded = self._decode(request, delivered)
        below = int(self.plan.due_below[self.plan.units.stretch_of(request.number)])
        if below and (below == _ALL or request.fragment not in self._counted):
            return decoded
        rows = np.arange(decoded.rows) if decoded.positions is None else decoded.positions
        return take_events(decoded, np.flatnonzero(self._counts(request.fragment)[rows] < below))

    def _counts(self, key: str) -> Array:
        """How often the stored events of a fragment were trained before the plan."""
        if self._before is not None and key in self._counted:
            return self._before.of(key)
        return np.broadcast_to(np.uint8(0), self._rows[key])

    def counts_before(self, key: str, place: int) -> Array:
        """As :meth:`_counts`, or ones if the stream has the events before ``place``, too: only for what is new."""
        if self.plan.is_first[self.plan.units.stretch_of(place)]:
            return self._counts(key)
        return np.broadcast_to(np.uint8(1), self._rows[key])
