"""What a run has changed in the plan of its tables, and why: a document in its folder, which is replaced as a whole.

It also has what each candidate would have saved so far, so that a killed command goes on deciding where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.errors import TornCheckpoint
from trainer.job.feedback.replanning import Candidate
from trainer.options.document_field import OPEN, DocumentField
from transforms.derived_documents import Omitted, document_of, number, one_of, whole
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

_FORMAT, _NAME = "headrace-plans-1", "plans.json"
_MOST_BYTES = 1 << 24
_COUNT = whole(most=1 << 62)
_SECS = number(0.0)
#: Why a plan came into force: by the statistics before the run; that of the commit with which the run went on, or spread rows, since its hosts
#: cannot hold that one; it pays.
REASONS = ("statistics", "commit", "hosts", "pays")
#: The changes that are kept.
MOST_CHANGES = 1000


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A plan that came into force.

    Attributes:
        plan: the digest of its document.
        reason: one of :data:`REASONS`.
        commit: the commit by whose sample it was decided; the plan is that of the parts of later commits.
        step_secs, new_step_secs: of a step by the plan before and by this one, by the cost model and that sample; 0 where there was none before.
        imbalance, new_imbalance: the load of the busiest host by the mean, by both.
        saved_secs: what it would have saved since it began to save.
        move_secs: what the move was expected to cost.
        moved_bytes: the values and slots that another host has now.
        pause_secs: measured: from the last step by the plan before to the first by this one; None: not measured.
        measured_secs, new_measured_secs: of a step in the epoch of ``commit``, and in the newest one by this plan; None: not measured.
    """

    plan: str
    reason: Annotated[str, one_of(*REASONS)]
    commit: Annotated[int, _COUNT] = 0
    step_secs: Annotated[float, _SECS] = 0.0
    new_step_secs: Annotated[float, _SECS] = 0.0
    imbalance: Annotated[float, _SECS] = 1.0
    new_imbalance: Annotated[float, _SECS] = 1.0
    saved_secs: Annotated[float, _SECS] = 0.0
    move_secs: Annotated[float, _SECS] = 0.0
    moved_bytes: Annotated[int, _COUNT] = 0
    pause_secs: Annotated[float, _SECS] | None = None
    measured_secs: Annotated[float, _SECS] | None = None
    new_measured_secs: Annotated[float, _SECS] | None = None


@dataclass(frozen=True, slots=True)
class PlanLog:
    """The plans of a run.

    Attributes:
        format: of the document.
        looked_at: the newest commit whose sample was looked at.
        looks: the commits with a sample that were looked at.
        counted_step: the optimizer step of the run up to which steps are in what candidates have collected; None in a log of an earlier release.
        changes: the plans that came into force, in order; the last one is in force.
        candidates: other plans that are priced after each epoch.
        imbalance: by the plan in force and the newest sample, the load of the busiest host by the mean; 0 without a sample.
    """

    format: str = _FORMAT
    looked_at: Annotated[int, _COUNT] = 0
    looks: Annotated[int, _COUNT] = 0
    changes: tuple[PlanChange, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    imbalance: Annotated[float, _SECS] = 0.0
    counted_step: Omitted[Annotated[int, _COUNT] | None] = None

    @property
    def plan(self) -> str:
        """The plan in force, by the digest of its document; empty: rows are spread over the hosts."""
        return self.changes[-1].plan if self.changes else ""

    @property
    def measured_secs(self) -> float | None:
        """What a step by the plan in force took when it was measured last; None: not measured."""
        return self.changes[-1].new_measured_secs if self.changes else None

    def with_change(self, change: PlanChange) -> PlanLog:
        """The log after another plan came into force."""
        return replace(self, changes=(*self.changes, change)[-MOST_CHANGES:])

    def with_measured(self, step_secs: float, pause_secs: float | None) -> PlanLog:
        """The log with what was measured of the plan in force: a step by it, and what the move to it took; None: not measured now."""
        *before, newest = self.changes
        pause = newest.pause_secs if pause_secs is None else pause_secs
        return replace(self, changes=(*before, replace(newest, new_measured_secs=step_secs, pause_secs=pause)))

    @classmethod
    def read(cls, run_dir: str | Path) -> PlanLog:
        """The log of a run, a local folder or a bucket; an empty one where none is.

        Raises :class:`TornCheckpoint` for a damaged one, and :class:`~transforms.errors.StorageError`.
        """
        storage = Storage(str(run_dir))
        place = f"{storage.root}/{_NAME}"
        try:
            content = storage.read_bytes(place)
        except MissingFile:
            return cls()
        if len(content) > _MOST_BYTES:
            raise TornCheckpoint(
                "the plans of a run must be a short document", where=place, value=f"over {_MOST_BYTES:,} bytes"
            )
        found = OPEN.read(cls, DocumentField(parse_json(content, place), place))
        if found.format != _FORMAT:
            raise TornCheckpoint("the plans of a run must have a known format", where=place, value=found.format[:80], allowed=_FORMAT)  # fmt: skip
        return found

    def write(self, run_dir: str | Path) -> None:
        """Replace the log of a run. Raises :class:`~transforms.errors.StorageError`."""
        storage = Storage(str(run_dir))
        storage.write_atomic(f"{storage.root}/{_NAME}", canonical_json(document_of(self)))
