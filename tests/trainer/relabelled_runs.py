"""Runs over a log whose labels change, without a model, and the reference account of what each of them must train."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.trainer.late_log import Log
from tests.trainer.synthetic import config
from tests.trainer.thread_exchange import on_hosts
from trainer.checkpoints.publish import publish
from trainer.job.control.job_files import JobFiles
from trainer.job.host.attempt import Attempt, AttemptTools, TrainedState
from trainer.job.host.job_data import JobData
from trainer.job.host.snapshots import take_snapshot
from trainer.job.host.unit_gate import UnitGate
from trainer.job.launch.checkpoint_publisher import facts_of
from trainer.job.launch.training_job import PlanOptions, make_job
from trainer.model.optimizers.gradient_norms import NO_NORMS
from trainer.run import loop
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.preparation.preparation import prepare_run
from trainer.run.progress.data_changes import ChangePolicy
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import LOCAL, LocalFetcher
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.weights.dense_step import DenseStep, LookedUp, TableGradients
from trainer.run.weights.run_state import RunProgress
from trainer.run.weights.saved_run import SavedRun, read_newest_run
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.scheduling.job import JobSettings
from trainer.scheduling.orders import BEGINNING, Commit, StartEpoch
from trainer.tables.statistics.batch_sampler import BatchSampler

Event = tuple[str, int]


class Crash(Exception):
    """Stands for a process that ends within an epoch."""


@dataclass
class Account:
    """What is due by the rule: each event ``passes`` times, and once more for each change of its label after that.

    Attributes:
        left: the trainings that an event lacks.
        trained: its trainings.
        label: the label of its last training, or of the next one if it was never trained.
        is_recorded: whether the newest commit has the labels as trained.
    """

    passes: int
    left: dict[Event, int] = field(default_factory=dict)
    trained: dict[Event, int] = field(default_factory=dict)
    label: dict[Event, int | None] = field(default_factory=dict)
    is_recorded: bool = False

    def changed(self, log: Log) -> set[Event]:
        """The trained events whose label is another one now, or gone."""
        return {event for event, label, _ in events_of(log) if self.trained.get(event) and label != self.label[event]}

    def prepare(self, log: Log, policy: ChangePolicy) -> None:
        """A run begins or continues on the log as it is now, and is not refused."""
        for event, label, is_live in events_of(log):
            if not self.trained.get(event):
                self.left.setdefault(event, self.passes)
                self.label[event] = label
            elif not (policy.train_labels and self.is_recorded):
                # Equal labels are the same; others were accepted as those that were trained.
                self.label[event] = label if policy.accept or policy.train_labels else self.label[event]
            elif is_live and label is not None and label != self.label[event]:
                self.left[event] = max(self.left[event], 1)
                self.label[event] = label
        self.is_recorded = policy.train_labels

    def train(self, event: Event, label: int) -> None:
        assert self.left[event] > 0, f"{event} is trained too often"
        assert label == self.label[event], f"{event} is trained with a label that it does not have"
        self.left[event] -= 1
        self.trained[event] = self.trained.get(event, 0) + 1

    def check_finished(self, log: Log) -> None:
        """Nothing is due any more. A run that had nothing to train has recorded no labels either."""
        for event, label, is_live in events_of(log):
            if is_live and label is not None:
                assert self.left[event] == 0, event
                assert self.label[event] == label or not self.is_recorded, event


def events_of(log: Log) -> list[tuple[Event, int | None, bool]]:
    """All stored events with label, and whether they are not deleted."""
    return [
        ((path, row), label, bool(log.live[path][row]))
        for path, table in log.stored.items()
        for row, label in enumerate(table["__label__"].to_pylist())
    ]


_NOTHING = np.zeros(0, np.float32)


class Recording:
    """Weights that learn nothing, and call ``on_event`` with each event that is trained, and its label."""

    idle_units = None
    hashed_counts: ClassVar[dict[str, Any]] = {}
    hot_figures = None
    sum_figures = None
    gradient_norms = NO_NORMS

    def __init__(self, log: Log, head: Any, on_event: Callable[[Event, int], None], crash_after: int = -1) -> None:
        self.head, self._on_event, self._left = head, on_event, crash_after
        self._paths = {
            f"{part.key}#{k}": one.path for part in log.solution.partitions for k, one in enumerate(part.fragments)
        }

    def train(self, batch: Any) -> np.ndarray:
        if self._left == 0:
            raise Crash
        self._left -= 1
        rows = [(span.key, int(row)) for span in batch.spans for row in np.arange(10_000)[span.events]]
        for (key, row), label in zip(rows, batch.labels[: batch.rows], strict=True):
            self._on_event((self._paths[key], row), int(label))
        return np.zeros(batch.rows, np.float32)

    def steps(self, staleness: int, first_step: int) -> StepPipeline:
        return StepPipeline(self, staleness)

    def begin_look_up(self, batch: Any) -> Callable[[], LookedUp]:
        return lambda: LookedUp(_NOTHING, _NOTHING)

    def send(self, batch: Any, looked_up: LookedUp) -> None: ...

    def differentiate(self, batch: Any, looked_up: LookedUp) -> DenseStep:
        return DenseStep(self.train(batch), TableGradients(_NOTHING, _NOTHING))

    def apply_dense(self, batch: Any, step: DenseStep) -> TableGradients:
        return step.gradients

    def update_tables(self, batch: Any, gradients: TableGradients) -> None: ...

    def load(self, arrays: Any) -> None: ...

    def load_saved(self, run_dir: Any, saved: Any, on_refusal: Any) -> None: ...

    def dense_arrays(self) -> dict[str, np.ndarray]:
        return {}

    def server_shards(self, on_refusal: object) -> None:
        """No server has tables."""

    def begin_tables(self, most_bytes: int) -> tuple[()]:
        return ()

    def end_tables(self) -> None: ...


class Run:
    """A run in a folder, and the account of its newest commit."""

    def __init__(self, run_dir: Path, passes: int) -> None:
        self.run_dir, self._passes = run_dir, passes
        self.account = Account(passes)
        # Weights that learn nothing predict nothing, so no events are held out.
        self._options = {
            "passes": passes,
            "batch_rows": 8,
            "partitions_per_epoch": 1,
            "keep_checkpoints": 3,
            "held_out_share": 0.0,
        }

    @property
    def config(self) -> Any:
        return config(self.run_dir, **self._options)

    def saved(self) -> SavedRun | None:
        return read_newest_run(self.run_dir, on_skip=pytest.fail)

    def train(self, log: Log, policy: ChangePolicy, *, stop_after: int = -1, crash_after: int = -1) -> Any:
        """Train in one process, to the end or not; return the report, if it does not crash."""
        now = copy.deepcopy(self.account)
        now.prepare(log, policy)
        at_commit = {0 if (saved := self.saved()) is None else saved.number: self.account}

        def progress(event: loop.TrainEvent) -> None:
            if event.kind == "epoch":
                at_commit[event.epoch] = copy.deepcopy(now)

        report, stops = None, iter([False] * max(stop_after - 1, 0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                loop,
                "weights_on",
                lambda slice_, layout, config, head, plan, settings: Recording(log, head, now.train, crash_after),
            )
            with suppress(Crash):
                report = loop.train(log.solution, log.read, self.config, progress=progress, changes=policy,
                                    stop=lambda: stop_after >= 0 and next(stops, True), read_labels=log.read_labels)  # fmt: skip
        saved = self.saved()
        self.account = at_commit[saved.number if saved else 0]
        return report


class JobRun(Run):
    """A run that a job of hosts in threads trains, attempt by attempt; every attempt ends with a commit, or crashes."""

    def __init__(self, run_dir: Path, passes: int, hosts: int) -> None:
        super().__init__(run_dir, passes)
        self._hosts, self._attempt = hosts, 0
        self._logs: dict[str, Log] = {}

    def train(self, log: Log, policy: ChangePolicy, *, stop_after: int = -1, crash_after: int = -1) -> None:
        """Train attempts until nothing is left, or until ``stop_after`` of them have committed, or one has crashed."""
        commits = 0
        while commits != stop_after:
            prepared = prepare_run(log.solution, self.config, log.read_labels, changes=policy, on_skip=pytest.fail)
            if not prepared.planned_events:
                return
            job = make_job(prepared, JobFiles(self.run_dir), JobSettings(), home="", options=PlanOptions(unit_rows=7))
            name, saved = job.spec.data.name, prepared.saved
            now = copy.deepcopy(self.account)
            if saved is None or saved.job is None or saved.job.plan != name:
                now.prepare(log, policy)
                self._logs[name] = copy.copy(log)
                self._logs[name].stored, self._logs[name].live = dict(log.stored), dict(log.live)
            try:
                self._run_attempt(job.plan, name, saved, job.newest, now, 5 if stop_after > 0 else 1000, crash_after)
            except Crash:
                return
            self.account, commits = now, commits + 1

    def _run_attempt(
        self,
        plan: JobPlan,
        name: str,
        saved: SavedRun | None,
        newest: Commit,
        now: Account,
        units: int,
        crash_after: int,
    ) -> None:
        plan = JobPlan.from_bytes(plan.to_bytes(), "plan")
        data, log = JobData(plan, str(self.run_dir)), self._logs[name]
        self._attempt = max(self._attempt, newest.attempt) + 1
        hosts = tuple(f"h{rank}" for rank in range(self._hosts))
        first = newest.next_unit
        stop = min(first + units, plan.stop_unit)
        order = StartEpoch(self._attempt, newest.epochs, first, stop, hosts, None, BEGINNING, name)
        reader = UnitReader(lambda digest: log.solution, lambda solution, one: log.read(one), kept_bytes=1 << 30)
        weights = [
            Recording(log, plan.head, now.train, crash_after if rank == 0 else -1) for rank in range(self._hosts)
        ]

        def work(exchange: Any) -> str:
            state = self._state(data, name, saved, exchange.rank)
            gate = UnitGate(order.attempt, first, stop)
            attempt: Any = None
            buffer = UnitBuffer((), lambda _: LocalFetcher(reader), lambda *unit: attempt.decode(*unit))
            try:
                buffer.set_readers([LOCAL])
                own: Any = weights[exchange.rank]
                attempt = Attempt(
                    order, state, AttemptTools(data, own, buffer, exchange, gate, BatchSampler((), share=0.0, seed=0))
                )
                buffer.restart(attempt.requests())
                at = attempt.run()
                return take_snapshot(order, exchange.rank, at, state, own, plan.labels).write(str(self.run_dir))
            finally:
                buffer.close()

        parts = dict(zip(hosts, on_hosts(self._hosts, work), strict=True))
        publish(self.run_dir, Commit(newest.epochs + 1, order.attempt, stop), hosts, parts, lambda _: facts_of(plan))

    def _state(self, data: JobData, name: str, saved: SavedRun | None, rank: int) -> TrainedState:
        """The state of a host that restores a commit."""
        plan = data.plan
        begun = saved.progress if saved else RunProgress()
        progress = RunProgress(
            begun.step, begun.epochs_done, plan.segments, list(begun.history), dict(plan.planned_rows)
        )
        state = TrainedState(progress, plan.head.collector(), data.ledger_before(rank))
        if saved is not None and saved.job is not None and saved.job.plan == name:
            if rank == 0:
                assert saved.counts is not None
                state.ledger = data.ledger_of(saved.counts)
                prefix = "predictions/"
                collected = {
                    key.removeprefix(prefix): one for key, one in saved.arrays.items() if key.startswith(prefix)
                }
                if collected:
                    state.collector.load(collected)
            else:
                state.ledger = data.ledger_before(rank)
            state.carried = plan.carried_of(saved.job, rank, self._hosts)
            state.epoch_steps, state.epoch_events = saved.job.epoch_steps, saved.epoch_events
        return state
