"""The held-out share of a run with several passes: its plan, its figures after each pass, and when the passes end. Pure.

The newest whole partitions are a segment of their own, which is trained after all passes over the older ones. So a model that has seen the
older events several times is scored on events that it has never seen, and each event is still trained as often as all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.model.calibration import Calibration, StoredCalibration
from trainer.model.scores import AnyScores, StoredScores
from trainer.options.document_field import OPEN, DocumentField
from trainer.run.progress.epochs import Segments
from transforms.arrays import Array
from transforms.derived_documents import document_of, whole

if TYPE_CHECKING:
    from trainer.tables.routes.exchange import Exchange

NO_CALIBRATIONS: Mapping[str, Calibration] = MappingProxyType({})
#: Consecutive events whose mean loss is kept, to compare two passes event by event: as many blocks, of equal size.
BLOCKS = 64
_Passes = Annotated[int, whole(most=255)]


@dataclass(frozen=True, slots=True)
class ScoredPass:
    """The held-out events, scored by the model after a pass over the older ones.

    Attributes:
        passes: how often the older events were trained.
        epochs_done: epochs of the run at that moment.
        scores: the figures; no event was trained before.
        loss: mean loss of an event.
        block_losses: the mean loss of each of :data:`BLOCKS` runs of consecutive events, or of as many as there are events.
        calibrations: by label, the map of its logits that was fitted to these events; empty if none is asked for.
    """

    passes: _Passes
    epochs_done: int
    scores: StoredScores
    loss: float
    block_losses: tuple[float, ...]
    calibrations: Mapping[str, StoredCalibration] = field(default_factory=lambda: NO_CALIBRATIONS)

    @classmethod
    def of(
        cls,
        passes: int,
        epochs_done: int,
        scores: AnyScores,
        losses: Array,
        calibrations: Mapping[str, Calibration] = NO_CALIBRATIONS,
        exchange: Exchange | None = None,
    ) -> ScoredPass:
        """The figures of at least one event.

        Args:
            passes: see the attributes, likewise ``epochs_done``, ``scores`` and ``calibrations``.
            losses: of this host's events, in time order after those of the hosts before it.
            exchange: of the hosts, all of which call it at once; None: this process alone.
        """
        from trainer.evaluation.host_totals import (
            HostTotals,
        )  # imports numba, which processes that read scores do without

        totals = HostTotals() if exchange is None else HostTotals(exchange)
        first, events = totals.place(len(losses))
        blocks = min(BLOCKS, events)
        ends = [events // blocks * k + min(k, events % blocks) for k in range(blocks + 1)]
        own = [min(max(end - first, 0), len(losses)) for end in ends]
        sums = totals.sums([losses], *([losses[begin:stop]] for begin, stop in pairwise(own)))
        means = tuple(one.over(stop - begin) for one, (begin, stop) in zip(sums[1:], pairwise(ends), strict=True))
        return cls(passes, epochs_done, scores, sums[0].over(events), means, MappingProxyType(dict(calibrations)))

    def gain_over(self, before: ScoredPass) -> tuple[float, float | None]:
        """By how much the loss of an event has fallen since ``before``, and the standard error of that, by pairs of blocks.

        The error is None if the two are not of equally many events, or of one alone.
        """
        gain = before.loss - self.loss
        is_paired = self.scores.events == before.scores.events and len(self.block_losses) == len(before.block_losses)
        if not is_paired or len(self.block_losses) < 2:
            return gain, None
        falls = np.array(before.block_losses) - np.array(self.block_losses)
        return gain, float(falls.std(ddof=1)) / math.sqrt(len(falls))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The state of a run whose second segment is held out.

    Attributes:
        scored: the figures after passes over the first segment, in order.
        stopped: the passes of every segment, if they ended early; 0: as many as the run's options say.
    """

    scored: tuple[ScoredPass, ...] = ()
    stopped: _Passes = 0

    @property
    def calibrations(self) -> Mapping[str, Calibration]:
        """By label, the newest map of its logits; empty before the first."""
        return self.scored[-1].calibrations if self.scored else NO_CALIBRATIONS

    def after(self, found: ScoredPass, *, most_passes: int, stops_early: bool) -> HeldOut:
        """This state with one more pass. The passes end if it has raised the loss by more than the error of that.

        A gain below its error ends nothing: where few held-out events have the rarer label it says little, and the number of
        passes was chosen by more of them.
        """
        before = self.scored[-1] if self.scored else None
        both = replace(self, scored=(*self.scored, found))
        if not stops_early or found.passes >= most_passes or before is None or before.passes != found.passes - 1:
            return both
        gain, error = found.gain_over(before)
        return both if gain > -(error or 0.0) else replace(both, stopped=found.passes)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, field: DocumentField, segments: Segments) -> HeldOut:
        """The state at ``field``, of a run with these segments. Raises :class:`TornCheckpoint`."""
        found = OPEN.read(cls, field)
        stopped, passes = found.stopped, [one.passes for one in found.scored]
        if passes != sorted(set(passes)) or 0 in passes or (stopped and stopped not in passes[-1:]):
            raise TornCheckpoint("held-out events must be scored once after a pass, in order", where=field.place,
                                 value=[*passes[-5:], stopped])  # fmt: skip
        if len(segments) < 2:
            raise TornCheckpoint("a held-out share must be the second segment of a run", where=field.place,
                                 value=f"{len(segments)} segments")  # fmt: skip
        return found


def split_held_out(partitions: Sequence[str], events: Mapping[str, int], share: float) -> Segments:
    """The older partitions, and the fewest newest ones that hold ``share`` of the events; all in one if that leaves none older.

    ``events``: of each partition, in time order, those that can be trained. With a share of 0, or without events, nothing is held out.
    """
    wanted = share * sum(events[key] for key in partitions)
    if wanted <= 0:
        return (tuple(partitions),)
    held, at = 0, len(partitions)
    while at > 1 and held < wanted:
        at -= 1
        held += events[partitions[at]]
    older = sum(events[key] for key in partitions[:at])
    if not held or not older:
        return (tuple(partitions),)
    return tuple(partitions[:at]), tuple(partitions[at:])
