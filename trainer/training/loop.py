"""The training loop: epochs over partitions in time order, each ending in one atomic checkpoint.

After a crash at any instruction the next process continues from the last checkpoint and, in deterministic mode, ends in
bit-identical weights. So SIGTERM needs no handling; ``stop`` ends a run at an epoch's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.background import BackgroundWriter
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.retention import remove_leftovers
from trainer.config import TrainConfig
from trainer.data.due_events import DueEvents
from trainer.data.label_scan import TrainableEvents, scan_labels
from trainer.data.late_data import NOTHING_LATE, LateData, TrainedLabels, count_late, late_segment, visits_of
from trainer.data.ledger import Ledger, LedgerSummary
from trainer.errors import BadLabel, ConfigError, NonFiniteLoss, RunMismatch
from trainer.model.heads import Head, head_of
from trainer.model.inputs import InputLayout, lay_out
from trainer.model.metrics import AnyScores
from trainer.reading.batches import make_batches
from trainer.reading.columns import DecodedFragment
from trainer.reading.stream import FragmentRef, ReadFragment, fragment_stream
from trainer.runs.data_changes import DataChanges, compare_data
from trainer.runs.epochs import Epoch, Segments, plan_epochs
from trainer.runs.identity import RunIdentity, check_options, identity_of, in_time_order
from trainer.runs.lock import run_lock
from trainer.training.run_state import EpochScores, RunProgress, build_weights, snapshot, trained_partitions
from trainer.training.saved_run import SavedRun, read_newest_run
from transforms.errors import listed
from warehouse.solution.solution import ReadSolution

#: Memory for rows that training changes while a checkpoint is written.
_MOST_ASIDE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TrainEvent:
    """A progress event of a run.

    Attributes:
        kind: "skipped" (a torn checkpoint, see ``message``), "started" (``message`` names the checkpoint), "batch",
            "epoch" (with ``scores``) or "checkpoint" (``message`` is its directory).
        events: the events that this process has trained, of ``total_events``.
        epoch: the current or just finished epoch of ``epochs``, from 0 over the run.
    """

    kind: str
    epoch: int
    epochs: int
    events: int
    total_events: int
    message: str = ""
    scores: AnyScores | None = None


@dataclass(frozen=True)
class TrainReport:
    """The outcome of one call of :func:`train`.

    Attributes:
        epochs, events: those of this process.
        seconds: wall-clock time of training in this process, without set-up.
        history: the epochs of the whole run.
        resumed_from: the checkpoint that it began from, or "".
        finished: False if ``stop`` ended it early.
        ledger: None if events are not counted.
        checkpoint: the last checkpoint, or "".
        unlabelled: skipped events of the range without a label.
        late: data that came after the checkpoint.
    """

    epochs: int
    events: int
    seconds: float
    history: tuple[EpochScores, ...]
    ledger: LedgerSummary | None
    resumed_from: str
    finished: bool
    checkpoint: str
    skipped_checkpoints: tuple[str, ...]
    unlabelled: int = 0
    late: LateData = NOTHING_LATE

    @property
    def final(self) -> AnyScores | None:
        """Progressive validation of the run's last epoch."""
        return self.history[-1].scores if self.history else None

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "epochs": self.epochs,
            "events": self.events,
            "seconds": self.seconds,
            "history": [item.to_document() for item in self.history],
            "ledger": self.ledger.to_document() if self.ledger else None,
            "resumed_from": self.resumed_from,
            "finished": self.finished,
            "checkpoint": self.checkpoint,
            "skipped_checkpoints": list(self.skipped_checkpoints),
            "unlabelled": self.unlabelled,
            "late": self.late.to_document(),
        }


def train(
    solution: ReadSolution,
    read: ReadFragment,
    config: TrainConfig,
    *,
    progress: Callable[[TrainEvent], None] | None = None,
    stop: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
    read_labels: ReadFragment | None = None,
    accept_changed: bool = False,
) -> TrainReport:
    """Train, or continue training, the model of ``solution`` in ``config.run_dir``. Deterministic: see :class:`TrainConfig`.

    Args:
        read: reads one fragment's columns and label, in a background thread.
        progress: called after every batch.
        stop: called after every checkpoint; true ends the run.
        read_labels: reads the labels of all stored events of a fragment (:func:`warehouse.reading.reader.read_labels`)
            before the first step; by default ``read``.
        accept_changed: continue although values of trained events have changed, without training them again.

    Raises :class:`Busy` if another process trains there, :class:`RunMismatch` if the directory belongs to another run,
    :class:`ConfigError` or :class:`UntrainableInput` for bad options or inputs, :class:`BadLabel` or :class:`BadFeature`
    for bad data, :class:`NonFiniteLoss` on divergence, :class:`CheckpointNotWritten` on a full disk. The last complete
    checkpoint survives all of them.
    """
    identity = identity_of(solution, config)
    layout = lay_out(identity.typed_inputs, config)
    if not solution.partitions:
        raise ConfigError("the read solution must have a partition to train on", where=solution.table,
                          next_step="choose a time range that holds data")  # fmt: skip
    run_dir = Path(config.run_dir)
    with run_lock(run_dir):
        remove_leftovers(run_dir)
        run = _Run(solution, config, identity, layout, progress or _ignore)
        run.begin(read_labels or read, accept_changed)
        return run.finish(clock, read, stop or _never)


def _ignore(event: TrainEvent) -> None:
    """The default ``progress``."""


def _never() -> bool:
    return False


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        solution: ReadSolution,
        config: TrainConfig,
        identity: RunIdentity,
        layout: InputLayout,
        tell: Callable[[TrainEvent], None],
    ) -> None:
        self._solution = solution
        self._config = config
        self._identity = identity
        self._layout = layout
        self._tell = tell
        self._run_dir = Path(config.run_dir)
        self._fragments = {part.key: fragment_refs(part.key, part.fragments) for part in in_time_order(solution)}
        self._skipped: list[str] = []
        self._events = 0
        self._total_events = 0
        self._resumed_from = self._checkpoint = ""
        self._late = NOTHING_LATE

    def begin(self, read_labels: ReadFragment, accept: bool) -> None:
        """Resume from the newest checkpoint, or start a run; check that it matches before TensorFlow is loaded."""
        saved = read_newest_run(self._run_dir, on_skip=self._skip)
        refs = [ref for refs in self._fragments.values() for ref in refs]
        self._ledger = Ledger({ref.key: ref.fragment.rows for ref in refs}) if self._config.count_events else None
        changes = DataChanges()
        self._progress = RunProgress(segments=(tuple(self._fragments),))
        if saved:
            changes = self._take_over(saved, accept)
        head = saved.head if saved else head_of(self._solution.target)
        self._trainable, trained = self._scan(refs, changes, head, read_labels)
        changed = trained.differences() if trained else ()
        if changed and not accept:
            raise _mismatch(changed)
        if trained:
            trained.accept()
        if not saved:
            head = head.fitted(self._trainable.figures)
        self._due = DueEvents(self._ledger, self._trainable) if self._ledger else None
        if self._due and trained:
            accepted = (*changes.accepted, *changed)
            self._late = count_late(changes, refs, self._due, trained.retracted, accepted)
        self._plan()
        self._weights = build_weights(self._layout, self._config, head)
        if saved:
            self._weights.load(saved.arrays)
        self._say("started", message=self._resumed_from or "the beginning")

    def _take_over(self, saved: SavedRun, accept: bool) -> DataChanges:
        """Resume from a checkpoint. Raises :class:`RunMismatch` with all differences that are not allowed."""
        counted = None if saved.counts is None else {one.key for one in saved.counts.fragments}
        changes = compare_data(
            saved.identity,
            self._identity,
            trained=trained_partitions(saved.progress.history),
            trained_fragments=counted,
            accept=accept,
        )
        if differences := (*check_options(saved.identity, self._identity), *changes.refused):
            raise _mismatch(differences)
        self._progress = saved.progress
        if self._ledger and saved.counts:
            self._ledger.load(saved.counts, changes.now)
        self._resumed_from = self._checkpoint = saved.path
        return changes

    def _scan(
        self, refs: Sequence[FragmentRef], changes: DataChanges, head: Head, read_labels: ReadFragment
    ) -> tuple[TrainableEvents, TrainedLabels | None]:
        """Scan the labels of fragments that are not wholly trained, or whose labels or deleted events have changed."""
        ledger, done = self._ledger, trained_partitions(self._progress.history)
        if ledger is None:
            needed = [ref for ref in refs if ref.partition not in done]
            return scan_labels(refs, needed, read_labels, head), None
        differing = changes.relabelled | changes.retracted
        needed = [
            ref for ref in refs if ref.key in differing or ref.fragment.deleted_rows or not ledger.of(ref.key).all()
        ]
        trained = TrainedLabels(changes, ledger)
        found = scan_labels(refs, needed, read_labels, head, on_labels=trained.look)
        if not found.figures.events and not self._progress.epochs_done:
            raise BadLabel("at least one event of the range must have a label, got none", where=self._solution.table,
                           value=f"{found.figures.unlabelled:,} events without one",
                           next_step="overlay the labels: headrace table overlay, or train on an earlier range")  # fmt: skip
        return found, trained

    def _plan(self) -> None:
        """The rest of the plan, with one more segment for late data."""
        passes = self._config.passes
        for key, refs in self._fragments.items():
            self._progress.planned_rows.setdefault(key, sum(ref.fragment.rows for ref in refs))
        segments = self._progress.segments
        remaining = visits_of(self._epochs_of(segments)[self._progress.epochs_done :])
        late = late_segment(self._fragments, segments, remaining, self._due, passes)
        self._progress.segments = (*segments, late) if late else segments
        self._epochs = self._epochs_of(self._progress.segments)
        self._remaining = self._epochs[self._progress.epochs_done :]
        visits = visits_of(self._remaining)
        # Decided once: an event that is due now is still due when it is trained.
        self._refs_of = {
            epoch.number: tuple(
                ref
                for key in epoch.partitions
                for ref in self._of(key)
                if self._due is None or self._due.is_due(ref.key, epoch.pass_number)
            )
            for epoch in self._remaining
        }
        self._total_events = sum(self._planned(ref, visits[key]) for key in visits for ref in self._of(key))

    def _epochs_of(self, segments: Segments) -> tuple[Epoch, ...]:
        return plan_epochs(
            segments,
            partitions_per_epoch=self._config.partitions_per_epoch,
            passes=self._config.passes,
            events_per_epoch=self._config.events_per_epoch,
            rows=self._progress.planned_rows,
        )

    def _planned(self, ref: FragmentRef, visits: Sequence[int]) -> int:
        if self._due is None:
            return len(visits) * (ref.fragment.live_rows - self._trainable.unlabelled.get(ref.key, 0))
        return self._due.planned(ref.key, visits)

    def _of(self, key: str) -> tuple[FragmentRef, ...]:
        """The fragments of a partition; none if it is gone."""
        return self._fragments.get(key, ())

    def _skip(self, reason: str) -> None:
        self._skipped.append(reason)
        self._tell(TrainEvent("skipped", 0, 0, 0, 0, message=reason))

    def _refs(self, epochs: Sequence[Epoch]) -> list[FragmentRef]:
        """The fragments of the epochs that have due events."""
        return [ref for epoch in epochs for ref in self._refs_of[epoch.number]]

    def _say(self, kind: str, *, message: str = "", scores: AnyScores | None = None) -> None:
        event = TrainEvent(
            kind, self._progress.epochs_done, len(self._epochs), self._events, self._total_events, message, scores
        )
        self._tell(event)

    def finish(self, clock: Callable[[], float], read: ReadFragment, stop: Callable[[], bool]) -> TrainReport:
        """Train every remaining epoch, or until ``stop``."""
        started = clock()
        first = self._progress.epochs_done
        stream = fragment_stream(
            self._refs(self._remaining),
            read,
            self._layout,
            ahead=self._config.prefetch_fragments,
            head=self._weights.head,
        )
        finished = True
        with closing(stream), BackgroundWriter(self._written) as self._writer:  # type: ignore[type-var]
            for epoch in self._remaining:
                self._epoch(epoch, stream)
                if stop() and epoch is not self._remaining[-1]:
                    finished = False
                    break
        return TrainReport(
            epochs=self._progress.epochs_done - first,
            events=self._events,
            seconds=clock() - started,
            history=tuple(self._progress.history),
            ledger=self._summary() if self._ledger else None,
            resumed_from=self._resumed_from,
            finished=finished,
            checkpoint=self._checkpoint,
            skipped_checkpoints=tuple(self._skipped),
            unlabelled=sum(self._trainable.unlabelled.values()),
            late=self._late,
        )

    def _epoch(self, epoch: Epoch, stream: Iterator[DecodedFragment]) -> None:
        collector = self._weights.head.collector()
        decoded: Iterator[DecodedFragment] = islice(stream, len(self._refs([epoch])))
        due = decoded if self._due is None else self._due.select(decoded, epoch.pass_number)
        for batch in make_batches(due, self._layout, batch_rows=self._config.batch_rows):
            logits = self._weights.train(batch)
            if not np.isfinite(logits).all():
                raise NonFiniteLoss(
                    "training diverged: a prediction is NaN or infinite",
                    where=f"epoch {epoch.number} ({epoch.partitions[0]} …), step {self._progress.step}",
                    next_step="lower the learning rates and train in a fresh run directory; the last checkpoint is intact",
                )
            collector.add(batch.labels[: batch.rows], logits)
            if self._ledger:
                self._ledger.count(batch.spans, batch.labels)
            self._progress.step += 1
            self._events += batch.rows
            self._writer.look()
            self._say("batch")
        self._commit(epoch, collector.scores())

    def _commit(self, epoch: Epoch, scores: AnyScores) -> None:
        self._progress.history.append(EpochScores(epoch.number, epoch.pass_number, epoch.partitions, scores))
        self._progress.epochs_done = epoch.number + 1
        self._say("epoch", scores=scores)
        document, arrays = snapshot(self._identity, self._progress, self._weights, self._ledger)
        if not all(
            np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"
        ):  # tables as they are written
            raise NonFiniteLoss(
                "training diverged: the last step of an epoch left NaN or infinite weights",
                where=f"epoch {epoch.number} ({epoch.partitions[0]} …), step {self._progress.step}",
                next_step="lower the learning rates and train in a fresh run directory; the last checkpoint is intact",
            )
        self._writer.wait()  # the tables have one snapshot at a time
        tables = self._weights.begin_tables(_MOST_ASIDE_BYTES)
        keep, epochs_done = self._config.keep_checkpoints, self._progress.epochs_done

        def write() -> Path:
            try:
                return write_checkpoint(self._run_dir, epochs_done, document, arrays, tables, keep=keep)
            finally:
                self._weights.end_tables()  # training may wait for it

        self._writer.begin(write)

    def _written(self, path: Path) -> None:
        self._checkpoint = str(path)
        self._say("checkpoint", message=self._checkpoint)

    def _summary(self) -> LedgerSummary:
        """The ledger's summary over all trainable events: early in a run, the least count is 0."""
        assert self._ledger is not None
        keys = [ref.key for refs in self._fragments.values() for ref in refs]
        return self._ledger.summary(keys, expected=self._config.passes, of=self._trainable.of)


def _mismatch(differences: Sequence[str]) -> RunMismatch:
    return RunMismatch(
        "a run must continue with the options, inputs and data that it was started with",
        value=listed(differences),
        allowed="the same options and inputs, and unchanged trained data; new data is trained",
        next_step="train in another run directory, give the options of the run, or for changed data "
        "continue without training it again: --accept-changed",
    )


def fragment_refs(partition: str, fragments: Sequence[Any]) -> tuple[FragmentRef, ...]:
    """The fragments of one partition with their places."""
    return tuple(FragmentRef(partition, position, fragment) for position, fragment in enumerate(fragments))
