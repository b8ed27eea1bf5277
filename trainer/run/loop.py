"""The training loop: epochs over partitions in time order, each ending in one atomic checkpoint.

After a crash at any instruction the next process continues from the last checkpoint and, in deterministic mode, ends in
bit-identical weights. So SIGTERM needs no handling; ``stop`` ends a run at an epoch's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoints.background import BackgroundWriter
from trainer.checkpoints.checkpoint import write_checkpoint
from trainer.checkpoints.host_part import PREDICTIONS
from trainer.checkpoints.host_steps import StepsByHost, idle_share
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.retention import newest_part_attempt, remove_leftovers
from trainer.checkpoints.shard_name import NO_SHARDS
from trainer.errors import NEXT_AFTER_DIVERGENCE, ConfigError, NonFiniteLoss, ServerLost, TornCheckpoint
from trainer.model.idle_units import IdleUnits
from trainer.model.scores import AnyScores
from trainer.model.task_heads import heads_of
from trainer.model.user_functions import with_code_digests
from trainer.options.config import TrainConfig
from trainer.planning.host_grid import SumFigures
from trainer.planning.plan import PartitionPlan
from trainer.run.batch_files.epoch_batches import EpochBatches, RunFiles
from trainer.run.batch_files.stretch import Stretches
from trainer.run.batch_files.stretch_files import BatchFileCounts, StretchFiles
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.history_file import HISTORY, history_bytes, resumed_history
from trainer.run.history.recorder import HistoryRecorder
from trainer.run.history.run_history import RunHistory
from trainer.run.host_metrics import HostFigures, HostMetrics
from trainer.run.labels.late_data import NOTHING_LATE, LateData
from trainer.run.preparation.preparation import PreparedRun, check_placement, check_policy, described, prepare_run
from trainer.run.progress.data_changes import REFUSE_CHANGES, ChangePolicy
from trainer.run.progress.epochs import Epoch
from trainer.run.progress.held_out import HeldOut
from trainer.run.progress.ledger import LedgerSummary
from trainer.run.progress.lock import run_lock
from trainer.run.progress.run_statistics import Record, StatisticsFile
from trainer.run.reading.batches import Batch
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.stream import ReadFragment, fragment_stream
from trainer.run.scoring import score_held_out
from trainer.run.weights.changed_optimizers import read_with_tables, with_slots_of
from trainer.run.weights.frozen_weights import predictor
from trainer.run.weights.gauges import gauges_of
from trainer.run.weights.run_partition import check_tables
from trainer.run.weights.run_state import EpochScores, Weights, newest_unseen, snapshot
from trainer.run.weights.saved_tables import under
from trainer.run.weights.served_weights import FollowMoves, MakeEngine, ServedWeights, stay
from trainer.run.weights.slice_checks import check_slice
from trainer.run.weights.staleness import NOT_MEASURED, StalenessCounts
from trainer.run.weights.step_pipeline import TrainedBatch
from trainer.run.weights.tpu_weights import TpuWeights, weights_on
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.hot_figures import HotFigures
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.statistics.batch_sampler import BatchSampler
from trainer.tables.tower_figures import TowerFigures
from trainer.tables.tpu.slice_servers import noticing_lost_machines
from trainer.tables.tpu.slices import TpuSlice
from transforms.derived_documents import document_of
from transforms.errors import HeadraceError
from transforms.log_fields import log_fields
from transforms.tracing.spans import span
from warehouse.files.batch_files.folder import BatchFolder
from warehouse.solution.solution import ReadSolution
from warehouse.storage.locations import is_gcs

#: Memory for rows that training changes while a checkpoint is written.
_MOST_ASIDE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TrainEvent:
    """A progress event of a run.

    Attributes:
        kind: "skipped" (a torn checkpoint, see ``message``), "started" (``message`` names the checkpoint), "batch",
            "epoch" (with ``scores``), "batch file" (one that was not read or written; ``message`` says why), "history" (the metric history begins again; ``message`` says why), "rows pass" (the rows of servers pass through this process; ``message`` says why), "held out" (with the ``scores`` of the held-out events) or "checkpoint" (``message`` is its directory).
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
        finished: False if ``stop`` or ``ends_early`` ended it.
        ledger: None if events are not counted.
        checkpoint: the last checkpoint, or "".
        unlabelled: skipped events of the range without a label.
        late: data that came after the checkpoint.
        staleness: the updates that lookups of this process missed; of a job, those of the host of rank 0, as last reported.
        host_steps: the steps of each host of a job in what was committed, by name; none for training in one process.
        held_out: the figures of the held-out events after each pass; None if none are held out.
        held_out_partitions: the partitions of those events.
        idle_units: the hidden units that are off at the end, counted since the process began; of a job, as its hosts reported last. None
            where they are not counted.
        hashed_counts: what the hashed tables of this process have done, by name; of a job, those of all hosts, as they reported last.
        hot: what the hot rows of tables on servers have done in this process; None without any.
        sum_figures: how the hosts of a job add dense gradients, as reported last; None for one host.
        batch_files: what this process has done with files of batches; None without any.
        running_servers: the names of the parameter servers that ran at the end, of a job that scales them; none for others.
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
    staleness: StalenessCounts = NOT_MEASURED
    host_steps: StepsByHost = field(default_factory=dict)
    held_out: HeldOut | None = None
    held_out_partitions: tuple[str, ...] = ()
    idle_units: IdleUnits | None = None
    hashed_counts: Mapping[str, HashedCounts] = field(default_factory=dict)
    hot: HotFigures | None = None
    tower_figures: TowerFigures | None = None
    sum_figures: SumFigures | None = None
    batch_files: BatchFileCounts | None = None
    running_servers: tuple[str, ...] = ()

    @property
    def final(self) -> AnyScores | None:
        """The run's newest figures on events that the model had not seen."""
        return newest_unseen(self.history, self.held_out)

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "epochs": self.epochs,
            "events": self.events,
            "seconds": self.seconds,
            "history": [document_of(item) for item in self.history],
            "ledger": self.ledger.to_document() if self.ledger else None,
            "resumed_from": self.resumed_from,
            "finished": self.finished,
            "checkpoint": self.checkpoint,
            "skipped_checkpoints": list(self.skipped_checkpoints),
            "unlabelled": self.unlabelled,
            "late": self.late.to_document(),
            "staleness": self.staleness.to_document(),
            "steps_by_host": {name: one.steps for name, one in self.host_steps.items()},
            "idle_host_steps_share": idle_share(self.host_steps),
            "held_out": None if self.held_out is None else self.held_out.to_document(),
            "held_out_partitions": list(self.held_out_partitions),
            "idle_units": None if self.idle_units is None else asdict(self.idle_units),
            "hot": None if self.hot is None else self.hot.to_document(),
            "tower_figures": None if self.tower_figures is None else asdict(self.tower_figures),
            "sum_figures": None if self.sum_figures is None else asdict(self.sum_figures),
            "batch_files": None if self.batch_files is None else asdict(self.batch_files),
        }


def train(
    solution: ReadSolution,
    read: ReadFragment,
    config: TrainConfig,
    *,
    progress: Callable[[TrainEvent], None] | None = None,
    stop: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
    read_labels: ReadFragment | None = None,
    changes: ChangePolicy = REFUSE_CHANGES,
    slice_: TpuSlice | None = None,
    record: Record | None = None,
    plan: PartitionPlan | None = None,
    settings: SparseCoreSettings | None = None,
    make_engine: MakeEngine | None = None,
    follow_moves: FollowMoves = stay,
    ends_early: Callable[[], bool] | None = None,
    batch_files: BatchFolder | None = None,
    metrics: HostMetrics | None = None,
) -> TrainReport:
    """Train, or continue training, the model of ``solution`` in ``config.run_dir``. Deterministic: see :class:`TrainConfig`.

    Args:
        read: reads one fragment's columns and label, in a background thread.
        progress: called after every batch.
        stop: called after every checkpoint; true ends the run.
        ends_early: called after every batch; true ends the run after a checkpoint within the epoch. A run that does not count events
            ends at the end of the epoch.
        clock: monotonic seconds.
        now: epoch seconds, for the metric history.
        read_labels: reads the labels of all stored events of a fragment (:func:`warehouse.reading.reader.read_labels`)
            before the first step; by default ``read``.
        changes: what is done about trained data that has changed.
        slice_: the TPUs that train with the ``tpu`` engine; with ``make_engine`` they have the dense part alone.
        record: records the statistics of features that an epoch has sampled, after its checkpoint, in the thread that wrote it.
        plan: by which the tables are partitioned over simulated cores; checkpoints are those of a run without it.
        settings: of SparseCore on ``slice_``, in place of those with which it was connected.
        make_engine: makes the engine of all tables on parameter servers; None: they are in this process.
        follow_moves: replaces that engine when its tables are on other servers.
        batch_files: where batches are kept for later passes and other runs of the model; None: they are not. No bit depends on it.
        metrics: of this process, which the training records into and may be read at any time.

    Raises :class:`Busy` if another process trains there, :class:`RunMismatch` if the directory belongs to another run,
    :class:`ConfigError` or :class:`UntrainableInput` for bad options or inputs, :class:`BadLabel` or :class:`BadFeature`
    for bad data, :class:`NonFiniteLoss` on divergence, :class:`CheckpointNotWritten` on a full disk. The last complete
    checkpoint survives all of them.
    """
    checked = with_code_digests(config)
    _, layout = described(solution, checked)  # raises before a folder is made
    check_placement(checked, is_served=make_engine is not None, plan=plan)
    check_slice(slice_, layout, checked, heads_of(solution.target), is_served=make_engine is not None)
    if plan is not None:
        check_tables(plan, layout, checked)
    if is_gcs(config.run_dir):
        raise ConfigError("the run directory of training in one process must be a local folder", where="run_dir",
                          value=config.run_dir, next_step="train by a job: headrace train --hosts 1")  # fmt: skip
    check_policy(config, changes)
    run_dir = Path(config.run_dir)
    tell = progress or _ignore
    with run_lock(run_dir):
        remove_leftovers(run_dir)
        prepare = partial(
            prepare_run,
            solution,
            config,
            read_labels or read,
            changes=changes,
            on_skip=lambda reason: tell(TrainEvent("skipped", 0, 0, 0, 0, message=reason)),
            with_shards=make_engine is None,
        )
        run = _begin(
            prepare,
            lambda found: _Run(
                found, tell, slice_, record, plan, settings, make_engine, follow_moves, batch_files, metrics
            ),
        )
        return run.finish(clock, now, read, stop or _never, ends_early or _never)


class TrainingLost(ServerLost):
    """Training has lost a server after it had begun.

    Attributes:
        report: what it has done; of epochs and events, those that its newest checkpoint has.
    """

    def __init__(self, error: ServerLost, report: TrainReport) -> None:
        super().__init__(
            error.what, where=error.where, value=error.value, allowed=error.allowed, next_step=error.next_step
        )
        self.report = report


def _begin(prepare: Callable[..., PreparedRun], make: Callable[[PreparedRun], _Run]) -> _Run:
    """A run from its newest checkpoint that is whole, also by what servers find when they read their shards."""
    torn: dict[str, TornCheckpoint] = {}
    while True:
        prepared = prepare(torn=torn)
        try:
            return make(prepared)
        except TornCheckpoint as error:
            if prepared.saved is None or not prepared.saved.unread:
                raise
            torn[prepared.saved.name] = error


def _ignore(event: TrainEvent) -> None:
    """The default ``progress``."""


@contextmanager
def _about(epoch: Epoch) -> Iterator[None]:
    """What the lines and spans of an epoch are about."""
    first = epoch.partitions[0]
    with log_fields(epoch=epoch.number, partition=first), span("epoch", number=epoch.number, partition=first):
        yield


def _never() -> bool:
    return False


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        prepared: PreparedRun,
        tell: Callable[[TrainEvent], None],
        slice_: TpuSlice | None = None,
        record: Record | None = None,
        plan: PartitionPlan | None = None,
        settings: SparseCoreSettings | None = None,
        make_engine: MakeEngine | None = None,
        follow_moves: FollowMoves = stay,
        batch_files: BatchFolder | None = None,
        metrics: HostMetrics | None = None,
    ) -> None:
        self._prepared, self._tell, self._batch_folder = prepared, tell, batch_files
        self._metrics = HostMetrics() if metrics is None else metrics
        self._config, self._progress, self._ledger = prepared.config, prepared.progress, prepared.ledger
        self._run_dir = Path(self._config.run_dir)
        self._resumed_from = self._checkpoint = prepared.saved.path if prepared.saved else ""
        self._number = prepared.saved.number if prepared.saved else 0
        self._collector = prepared.head.collector()
        self._events, self._refusals = 0, set[str]()
        self._planned_events = prepared.planned_events
        self._weights: Weights | TpuWeights
        if make_engine is not None:
            self._weights = served = ServedWeights(
                prepared.layout, self._config, prepared.head, make_engine, follow_moves, slice_
            )
            if not prepared.saved:
                served.tables.clear()
        else:
            self._weights = weights_on(slice_, prepared.layout, self._config, prepared.head, plan, settings)
        self._history = self._history_of(prepared)
        if prepared.saved:
            saved = read_with_tables(self._config.run_dir, prepared.saved, self._config, self._tell_refusal)
            saved = with_slots_of(saved, self._config, self._weights.dense_arrays)
            self._weights.load_saved(self._run_dir, saved, self._tell_refusal)
            if collected := under(saved.arrays, f"{PREDICTIONS}/"):
                self._collector.load(collected)
            self._prepared = replace(prepared, saved=None)  # its arrays are as large as the model
        self._sampler = BatchSampler(
            prepared.layout.features, share=self._config.statistics_share, seed=self._config.seed
        )
        self._statistics = StatisticsFile(
            self._run_dir,
            prepared.identity,
            self._number,
            on_skip=lambda reason: self._say("skipped", message=reason),
            record=record,
        )
        self._say("started", message=self._resumed_from or "the beginning")

    def _say(self, kind: str, *, message: str = "", scores: AnyScores | None = None) -> None:
        event = TrainEvent(
            kind,
            self._progress.epochs_done,
            len(self._prepared.epochs),
            self._events,
            self._planned_events,
            message,
            scores,
        )
        self._tell(event)

    def _history_of(self, prepared: PreparedRun) -> RunHistory:
        """The metric history up to the checkpoint."""
        layout = HistoryLayout.of(prepared.head.each)
        if prepared.saved is None:
            return RunHistory.empty(layout)
        files, step = open_run(self._run_dir), prepared.progress.step
        return resumed_history(
            files, prepared.saved.number, layout, step, lambda reason: self._say("history", message=reason)
        )

    def finish(
        self,
        clock: Callable[[], float],
        now: Callable[[], float],
        read: ReadFragment,
        stop: Callable[[], bool],
        ends_early: Callable[[], bool],
    ) -> TrainReport:
        """Train every remaining epoch, or until ``stop`` or ``ends_early``. Raises :class:`TrainingLost`, and :class:`SliceLost`."""
        started = clock()
        first = self._progress.epochs_done
        self._kept = first, 0
        finished = True
        self._steps = self._weights.steps(self._config.staleness, self._progress.step)
        self._metrics.figures = self._figures
        look = partial(gauges_of, self._weights, self._steps)
        self._recorder = HistoryRecorder(self._history, self._weights.head, look, clock=clock, now=now)
        self._files: RunFiles | None = None
        try:
            with ExitStack() as opened:
                if self._batch_folder is not None:
                    files = StretchFiles(self._batch_folder, lambda why: self._say("batch file", message=why))
                    opened.enter_context(files)
                    self._files = RunFiles(files, self._stretches())
                opened.enter_context(noticing_lost_machines())
                opened.enter_context(self._steps)
                self._writer = opened.enter_context(BackgroundWriter(self._written))
                while finished and (stage := self._next_stage(read)):
                    finished = self._train_stage(stage, read, stop, ends_early)
        except ServerLost as error:
            with suppress(HeadraceError):
                self._writer.look()  # a checkpoint that was being written
            epochs, events = self._kept
            raise TrainingLost(
                error, self._report(epochs - first, events, clock() - started, finished=False)
            ) from error
        return self._report(self._progress.epochs_done - first, self._events, clock() - started, finished=finished)

    def _figures(self) -> HostFigures:
        """The state of the training; any thread may ask."""
        progress, history = self._progress, self._progress.history[-1:]
        return HostFigures(
            run_steps=progress.step,
            run_epochs=progress.epochs_done,
            planned_events=self._planned_events,
            row_wait_secs=self._steps.wait_secs,
            staleness=self._steps.staleness,
            scores=history[0].scores if history else None,
            hashed=self._weights.hashed_counts,
        )

    def _report(self, epochs: int, events: int, seconds: float, *, finished: bool) -> TrainReport:
        prepared = self._prepared
        return TrainReport(
            epochs=epochs,
            events=events,
            seconds=seconds,
            history=tuple(self._progress.history),
            ledger=prepared.summary(),
            resumed_from=self._resumed_from,
            finished=finished,
            checkpoint=self._checkpoint,
            skipped_checkpoints=prepared.skipped,
            unlabelled=sum(prepared.trainable.unlabelled.values()),
            late=prepared.late,
            staleness=self._steps.staleness,
            held_out=self._progress.held_out,
            held_out_partitions=self._progress.held_out_partitions,
            idle_units=self._weights.idle_units,
            hashed_counts=self._weights.hashed_counts,
            hot=self._weights.hot_figures,
            batch_files=None if self._files is None else self._files.files.counts,
        )

    def _stretches(self) -> Stretches:
        prepared = self._prepared
        return Stretches(prepared.solution, prepared.layout, prepared.head, self._config.batch_rows)

    def _next_stage(self, read: ReadFragment) -> tuple[Epoch, ...]:
        """The epochs up to the next scoring; a pass that a job has ended without one is scored first."""
        if due := self._prepared.due_pass:
            self._score(due, read)
        return self._prepared.stage

    def _train_stage(
        self, stage: Sequence[Epoch], read: ReadFragment, stop: Callable[[], bool], ends_early: Callable[[], bool]
    ) -> bool:
        """Train these epochs; false if ``stop`` or ``ends_early`` ended the run."""
        prepared, config = self._prepared, self._config
        last, layout, head = prepared.remaining[-1], prepared.layout, prepared.head
        open_stream = partial(fragment_stream, read=read, layout=layout, ahead=config.prefetch_fragments, head=head)
        refs = [prepared.refs([epoch]) for epoch in stage]
        with EpochBatches(refs, open_stream, layout, config.batch_rows, self._files) as batches:
            for number, epoch in enumerate(stage):
                own = batches.of(number, partial(self._due, epoch), is_whole=self._is_whole(epoch))
                with closing(own), _about(epoch):  # type: ignore[type-var]
                    if not self._epoch(epoch, own, read, ends_early):
                        return False
                if (stop() or ends_early()) and epoch is not last:
                    return False
        return True

    def _due(self, epoch: Epoch, decoded: Iterator[DecodedFragment]) -> Iterable[DecodedFragment]:
        """The events that an epoch trains."""
        events = self._prepared.due
        return decoded if events is None else events.select(decoded, epoch.pass_number)

    def _is_whole(self, epoch: Epoch) -> bool:
        """Whether these are all labelled events of its fragments, so that they may have a file."""
        events = self._prepared.due
        if self._files is None:
            return False
        return events is None or all(
            events.is_whole(ref.key, epoch.pass_number) for ref in self._prepared.refs([epoch])
        )

    def _score(self, passes: int, read: ReadFragment) -> None:
        """Score the held-out events with the weights as they are now, and plan the rest by it."""
        self._writer.wait()  # the tables have one snapshot at a time
        predict = predictor(self._weights, self._config)
        found = score_held_out(self._prepared, passes, self._progress.epochs_done, predict, read, self._files)
        if found is not None:
            self._prepared = self._prepared.with_pass(found)
            self._planned_events = self._events + self._prepared.planned_events
            self._say("held out", scores=found.scores)

    def _epoch(
        self, epoch: Epoch, batches: Iterator[Batch], read: ReadFragment, ends_early: Callable[[], bool]
    ) -> bool:
        """Train an epoch, or what is left of it, and commit; whether it was trained to its end."""
        self._recorder.begin(epoch.number, epoch.pass_number)
        for batch in self._recorder.timed(self._metrics.waited_for(batches)):
            with self._metrics.steps.timed(), span("step"):
                self._advance(batch, epoch)
            if self._ledger is not None and ends_early():
                self._advance(None, epoch)
                self._recorder.pause()
                self._commit(epoch, is_within=True)
                return False
        self._advance(None, epoch)
        self._recorder.pause()
        scores, self._collector = self._collector.scores(), self._weights.head.collector()
        file = "" if self._files is None else self._files.name(self._prepared.refs([epoch]))
        self._progress.history.append(EpochScores(epoch.number, epoch.pass_number, epoch.partitions, scores, file))
        self._progress.epochs_done = epoch.number + 1
        self._say("epoch", scores=scores)
        if passes := self._prepared.due_pass:
            self._score(passes, read)
        self._commit(epoch)
        return True

    def _advance(self, batch: Batch | None, epoch: Epoch) -> None:
        """Train a batch, or finish all steps; count the batches whose steps are done."""
        try:
            found = self._steps.drain() if batch is None else self._steps.train(batch)
        except NonFiniteLoss as error:
            raise error.at(self._place(epoch)) from error
        for trained in found:
            self._count(trained)

    def _count(self, trained: TrainedBatch) -> None:
        """Add a trained batch to the scores, the ledger and the progress."""
        batch = trained.batch
        self._collector.add(batch.labels[: batch.rows], trained.logits)
        self._recorder.add(batch.labels[: batch.rows], trained.logits)
        if self._ledger:
            self._ledger.count(batch.spans, self._weights.head.codes(batch.labels[: batch.rows]))
        self._sampler.add(self._progress.step, batch.ids, batch.rows)
        self._progress.step += 1
        self._recorder.count_step()
        self._events += batch.rows
        self._metrics.events += batch.rows
        self._writer.look()
        self._say("batch")

    def _place(self, epoch: Epoch) -> str:
        return f"epoch {epoch.number} ({epoch.partitions[0]} …), step {self._progress.step}"

    def _commit(self, epoch: Epoch, *, is_within: bool = False) -> None:
        """Write a checkpoint after the last step, in another thread; one within an epoch has its predictions so far."""
        prepared = self._prepared
        document, arrays = snapshot(prepared.identity, self._progress, self._weights, self._ledger, prepared.labels)
        if is_within:
            arrays |= {f"{PREDICTIONS}/{name}": array for name, array in self._collector.arrays().items()}
        if not all(
            np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"
        ):  # tables as they are written
            raise NonFiniteLoss(
                "training diverged: the last step of an epoch left NaN or infinite weights",
                where=self._place(epoch),
                next_step=NEXT_AFTER_DIVERGENCE,
            )
        self._writer.wait()  # the tables have one snapshot at a time
        tables = self._weights.begin_tables(_MOST_ASIDE_BYTES)
        self._number += 1
        keep, number, step = self._config.keep_checkpoints, self._number, self._progress.step
        self._committed = self._progress.epochs_done, self._events
        shards = self._weights.server_shards(self._tell_refusal)
        sampled = self._sampler.take()
        history = self._recorder.commit(number)

        def write() -> Path:
            with self._metrics.commits.timed(), span("commit", number=number, step=step):
                return write_all()

        def write_all() -> Path:
            try:
                own = NO_SHARDS
                if shards is not None:
                    own = shards.write(self._run_dir, newest_part_attempt(self._run_dir) + 1, step)
                written = write_checkpoint(
                    self._run_dir,
                    number,
                    document,
                    arrays,
                    () if own else tables,
                    keep=keep,
                    shards=own,
                    others={HISTORY: history_bytes(history)},
                )
            finally:
                self._weights.end_tables()  # training may wait for it
            self._statistics.add(number, sampled)  # of committed epochs alone: none is sampled twice
            return written

        self._writer.begin(write)

    def _tell_refusal(self, reason: str) -> None:
        """Say once why servers do not write their rows themselves."""
        if reason not in self._refusals:
            self._refusals.add(reason)
            self._say("rows pass", message=reason)

    def _written(self, path: Path) -> None:
        self._checkpoint, self._kept = str(path), self._committed
        self._say("checkpoint", message=self._checkpoint)
