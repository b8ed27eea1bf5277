"""What a run trains, decided before its first step: the run is compared with its data, labels are read, epochs are planned.

Light: TensorFlow is not loaded. The training loop and the training job begin with the same preparation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer.errors import BadLabel, ConfigError, RunMismatch, TornCheckpoint
from trainer.model.inputs import InputLayout, lay_out
from trainer.model.task_heads import AnyHead, check_task_options, heads_of
from trainer.model.user_functions import with_code_digests
from trainer.options.combinations import Setup, check_setup
from trainer.options.config import TrainConfig
from trainer.options.slice_tables import check_slice_rates, check_slice_tables
from trainer.planning.plan import PartitionPlan
from trainer.run.labels.due_events import DueEvents, counts_after
from trainer.run.labels.label_record import LabelRecord
from trainer.run.labels.label_scan import FragmentLabels, TrainableEvents, scan_labels
from trainer.run.labels.late_data import (
    NOTHING_LATE,
    LateData,
    RetractedEvents,
    TrainedLabels,
    count_late,
    late_segment,
    visits_of,
)
from trainer.run.labels.recorded_labels import RecordedLabels, Reopened, reopen_untrained
from trainer.run.progress.data_changes import REFUSE_CHANGES, ChangePolicy, DataChanges, compare_data
from trainer.run.progress.epochs import Epoch, Segments, plan_epochs
from trainer.run.progress.held_out import HeldOut, ScoredPass, split_held_out
from trainer.run.progress.identity import RunIdentity, check_options, identity_of, in_time_order
from trainer.run.progress.ledger import Ledger, LedgerSummary
from trainer.run.reading.stream import FragmentRef, ReadFragment
from trainer.run.weights.run_state import RunProgress, trained_partitions
from trainer.run.weights.saved_run import NOTHING_TORN, SavedRun, read_newest_run
from transforms.errors import listed
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True)
class PreparedRun:
    """A run and what is left of it to train.

    Attributes:
        fragments: the fragments of each partition, in time order.
        progress: of the checkpoint, with the segments that are planned now. It may be changed.
        ledger: the counts of the checkpoint, lowered where events are trained again; None if events are not counted.
        due: None if events are not counted.
        epochs: all epochs of the run.
        pass_epochs: the epochs of one pass over the first segment, after each of which the held-out events are scored; 0 if none are held out.
        remaining: those that are left.
        refs_of: by number of a remaining epoch, its fragments that have due events.
        planned_events: the events of the remaining epochs.
        labels: the present labels, as the commits of this preparation record them; None if they do not.
        reopened: see :class:`~trainer.run.labels.recorded_labels.RecordedLabels`.
        saved: the checkpoint that the run continues from.
        skipped: the reason for each torn checkpoint.
    """

    solution: ReadSolution
    config: TrainConfig
    identity: RunIdentity
    layout: InputLayout
    head: AnyHead
    fragments: dict[str, tuple[FragmentRef, ...]]
    progress: RunProgress
    ledger: Ledger | None
    due: DueEvents | None
    trainable: TrainableEvents
    late: LateData
    epochs: tuple[Epoch, ...]
    pass_epochs: int
    remaining: tuple[Epoch, ...]
    refs_of: dict[int, tuple[FragmentRef, ...]]
    planned_events: int
    labels: LabelRecord | None
    reopened: Reopened
    saved: SavedRun | None
    skipped: tuple[str, ...]

    def refs(self, epochs: Sequence[Epoch]) -> list[FragmentRef]:
        """The fragments of the epochs that have due events."""
        return [ref for epoch in epochs for ref in self.refs_of[epoch.number]]

    def summary(self) -> LedgerSummary | None:
        """The ledger's summary over all trainable events: early in a run, the least count is 0."""
        if self.ledger is None:
            return None
        keys = [ref.key for refs in self.fragments.values() for ref in refs]
        return self.ledger.summary(keys, expected=self.progress.passes(self.config), of=self.trainable.of)

    @property
    def stage(self) -> tuple[Epoch, ...]:
        """The epochs that are not trained yet, up to the next scoring of held-out events; all of them if there is none."""
        done, size = self.progress.epochs_done, self.pass_epochs
        left = tuple(epoch for epoch in self.remaining if epoch.number >= done)
        is_over = not size or done >= size * self.progress.passes(self.config)
        return left if is_over else left[: size - done % size]

    @property
    def due_pass(self) -> int:
        """The pass over the older events that has just ended and after which the held-out ones were not scored; 0 without one."""
        progress, size = self.progress, self.pass_epochs
        if progress.held_out is None or not size or progress.epochs_done % size:
            return 0
        passes = progress.epochs_done // size
        scored = progress.held_out.scored
        is_due = 0 < passes <= progress.passes(self.config) and (not scored or scored[-1].passes < passes)
        return passes if is_due else 0

    @property
    def held_out_refs(self) -> list[FragmentRef]:
        """The fragments of the held-out share; none without one."""
        return [ref for key in self.progress.held_out_partitions for ref in self.fragments.get(key, ())]

    def held_out_after(self, found: ScoredPass) -> HeldOut:
        """The state of the held-out share after a pass was scored."""
        before = self.progress.held_out
        assert before is not None, "only a held-out share is scored"
        return before.after(found, most_passes=self.config.passes, stops_early=self.config.stops_passes_early)

    def with_pass(self, found: ScoredPass) -> PreparedRun:
        """This run after a pass was scored, with the epochs that are left now."""
        progress = self.progress
        progress.held_out = self.held_out_after(found)
        run = self._with_fewer_passes(progress.held_out.stopped) if progress.held_out.stopped else self
        return replace(run, **epochs_left(progress, self.config, self.fragments, self.due, self.trainable))

    def _with_fewer_passes(self, passes: int) -> PreparedRun:
        """This run, with the events due again whose changed labels a later pass would have trained."""
        if self.ledger is None or self.labels is None:
            return self
        again = self.labels.trained_again + reopen_untrained(self.ledger, self.reopened, passes)
        progress = self.progress
        visits = visits_of(_epochs(progress, self.config)[progress.epochs_done :])
        late = late_segment(self.fragments, progress.segments, visits, self.due, passes)
        progress.segments = (*progress.segments, late) if late else progress.segments
        return replace(self, labels=replace(self.labels, trained_again=again))


def described(solution: ReadSolution, config: TrainConfig) -> tuple[RunIdentity, InputLayout]:
    """The identity and the inputs of a run. Raises :class:`ConfigError` or :class:`UntrainableInput`."""
    identity = identity_of(solution, config)
    layout = lay_out(identity.typed_inputs, config)
    check_task_options(config, heads_of(solution.target))
    if not solution.partitions:
        raise ConfigError("the read solution must have a partition to train on", where=solution.table,
                          next_step="choose a time range that holds data")  # fmt: skip
    return identity, layout


def prepare_run(
    solution: ReadSolution,
    config: TrainConfig,
    read_labels: ReadFragment,
    *,
    changes: ChangePolicy = REFUSE_CHANGES,
    weights: bool = True,
    verifies_all: bool = True,
    held_out: HeldOut | None = None,
    with_shards: bool = True,
    torn: Mapping[str, TornCheckpoint] = NOTHING_TORN,
    on_skip: Callable[[str], None],
) -> PreparedRun:
    """Continue from the newest checkpoint, or begin a run.

    Without ``weights`` those of the checkpoint are verified and not kept: hosts of a job read them. Without ``verifies_all`` they are
    not even read: the job that wrote the checkpoint goes on with what its hosts have in memory. ``held_out``: the figures of the held-out share, where they are newer than
    those of the checkpoint. Without ``with_shards`` servers read their shards, and ``torn`` are those checkpoints of which they found one torn. Raises the errors of :func:`trainer.run.loop.train` that do not depend on the features.
    """
    check_policy(config, changes)
    config = with_code_digests(config)
    identity, layout = described(solution, config)
    skipped: list[str] = []

    def skip(reason: str) -> None:
        skipped.append(reason)
        on_skip(reason)

    saved = read_newest_run(
        config.run_dir, on_skip=skip, weights=weights, verifies_all=verifies_all, with_shards=with_shards, torn=torn
    )
    if saved is not None and held_out is not None:
        saved.progress.held_out = held_out
    preparation = _Preparation(solution, config, identity, saved, changes)
    head = preparation.scan(read_labels)
    preparation.plan()
    return PreparedRun(
        solution=solution,
        config=config,
        identity=identity,
        layout=layout,
        head=head,
        fragments=preparation.fragments,
        progress=preparation.progress,
        ledger=preparation.ledger,
        due=preparation.due,
        trainable=preparation.trainable,
        late=preparation.late,
        labels=preparation.labels,
        reopened=preparation.reopened,
        saved=saved,
        skipped=tuple(skipped),
        **epochs_left(preparation.progress, config, preparation.fragments, preparation.due, preparation.trainable),
    )


def check_policy(config: TrainConfig, changes: ChangePolicy) -> None:
    """Raises :class:`ConfigError` for changed labels that are trained without counters of events."""
    if changes.train_labels and not config.count_events:
        raise ConfigError("a run that trains changed labels must count events", where="count_events", value=False,
                          allowed="true with --train-changed-labels",
                          next_step="leave --train-changed-labels out, or begin a run with count_events")  # fmt: skip


def check_placement(
    config: TrainConfig, *, is_served: bool, hosts: int = 1, plan: PartitionPlan | None = None, has_towers: bool = False
) -> None:
    """Raises :class:`ConfigError` for tables in an unsupported placement; ``has_towers``: the ``plan`` places towers."""
    check_setup(
        Setup(
            hashed=bool(config.hashed),
            pruned=config.pruning is not None,
            hosts=hosts,
            servers=is_served,
            plan=plan is not None and not has_towers,
            slices=plan is not None and not plan.has_whole_rows,
            towers=has_towers,
            tpu=config.engine == "tpu",
            hot=config.hot_rows is not None,
            sequences=bool(config.sequences),
            tower_modules=config.tower_modules is not None,
        )
    )
    if config.engine == "tpu":
        check_slice_rates(config)
        if not is_served:
            check_slice_tables(config)


class _Preparation:
    """The steps of :func:`prepare_run`."""

    def __init__(
        self,
        solution: ReadSolution,
        config: TrainConfig,
        identity: RunIdentity,
        saved: SavedRun | None,
        policy: ChangePolicy,
    ) -> None:
        self._solution, self._config, self._identity = solution, config, identity
        self._saved, self._policy = saved, policy
        self.fragments = {part.key: fragment_refs(part.key, part.fragments) for part in in_time_order(solution)}
        self._refs = [ref for refs in self.fragments.values() for ref in refs]
        self.ledger = Ledger({ref.key: ref.fragment.rows for ref in self._refs}) if config.count_events else None
        self.progress = RunProgress(segments=(tuple(self.fragments),))
        self.late = NOTHING_LATE
        self.labels: LabelRecord | None = None
        self.reopened: Reopened = {}
        self._changes = self._take_over(saved) if saved else DataChanges()
        for key, refs in self.fragments.items():
            self.progress.planned_rows.setdefault(key, sum(ref.fragment.rows for ref in refs))

    def _take_over(self, saved: SavedRun) -> DataChanges:
        """Continue from a checkpoint. Raises :class:`RunMismatch` with all differences that are not allowed."""
        counted = None if saved.counts is None else {one.key for one in saved.counts.fragments}
        changes = compare_data(
            saved.identity,
            self._identity,
            trained=trained_partitions(saved.progress.history),
            trained_fragments=counted,
            accept=self._policy.accept,
        )
        options = check_options(saved.identity, self._identity, of_job=saved.job is not None)
        refused = [f"{one.text()}, and must not change: {one.reason}" for one in options if not one.is_allowed]
        if differences := (*refused, *changes.refused):
            raise _mismatch(differences, self._next_steps())
        self.progress = saved.progress
        if self.ledger and saved.counts:
            self.ledger.load(saved.counts, changes.now)
        return changes

    def scan(self, read_labels: ReadFragment) -> AnyHead:
        """Read labels, and count what is due. Returns the model's task, fitted to the labels of a new run."""
        head = self._saved.head if self._saved else heads_of(self._solution.target)
        if self.ledger is None:
            self.due = None
            done = trained_partitions(self.progress.history)
            needed = [ref for ref in self._refs if ref.partition not in done]
            self.trainable = scan_labels(self._refs, needed, read_labels, head)
        else:
            self.due = self._scan_counted(head, read_labels, self.ledger)
        return head if self._saved else head.fitted(self.trainable.figures)

    def _scan_counted(self, head: AnyHead, read_labels: ReadFragment, ledger: Ledger) -> DueEvents:
        """Scan labels of a run that counts events, and compare those of trained events with the present ones."""
        recorded = self._recorded(ledger)
        trained = recorded or TrainedLabels(self._changes, ledger)
        retracted = RetractedEvents(self._changes, ledger)

        def look(key: str, labels: FragmentLabels) -> None:
            retracted.look(key, labels)
            trained.look(key, labels)

        found = scan_labels(self._refs, self._needed(ledger, recorded), read_labels, head, on_labels=look)
        if not found.figures.events and not self.progress.epochs_done:
            raise BadLabel("at least one event of the range must have a label, got none", where=self._solution.table,
                           value=f"{found.figures.unlabelled:,} events without one",
                           next_step="overlay the labels: headrace table overlay, or train on an earlier range")  # fmt: skip
        changed = trained.differences()
        if changed and not self._policy.accept:
            raise _mismatch(changed, self._next_steps())
        trained.accept()
        self.trainable = found
        due = DueEvents(ledger, found)
        self.late = replace(
            count_late(self._changes, self._refs, due, recorded.untrained if recorded else {}),
            relabelled=sum(recorded.relabelled.values()) if recorded else 0,
            retracted=retracted.events,
            accepted=(*self._changes.accepted, *changed),
        )
        self.labels = recorded.record(self._refs) if recorded else None
        self.reopened = recorded.reopened if recorded else {}
        return due

    def _recorded(self, ledger: Ledger) -> RecordedLabels | None:
        """The labels as trained, if changed labels are trained."""
        if not self._policy.train_labels:
            return None
        record = self._saved.labels if self._saved else None
        return RecordedLabels(ledger, self._passes, record or LabelRecord(), self._changes.now)

    def _needed(self, ledger: Ledger, recorded: RecordedLabels | None) -> list[FragmentRef]:
        """The fragments not wholly trained, of changed labels or deleted events, or to be recorded for the first time."""
        differing = self._changes.relabelled | self._changes.retracted
        visits, passes = self._remaining_visits(), self._passes

        def is_needed(ref: FragmentRef) -> bool:
            counts = ledger.of(ref.key)
            # An event that the plan trains too rarely may have lost its label when it was trained in some passes.
            is_short = (counts_after(visits.get(ref.partition, ()))[counts] < passes).any()
            is_known = recorded is None or recorded.has(ref.key)
            return bool(
                ref.key in differing or ref.fragment.deleted_rows or not counts.all() or is_short or not is_known
            )

        return [ref for ref in self._refs if is_needed(ref)]

    def _next_steps(self) -> str:
        """What a run may do whose trained data has changed."""
        steps = ["train in another run directory, give the options of the run"]
        is_recorded = self._saved is not None and self._saved.labels is not None
        if is_recorded and not self._policy.train_labels:
            steps.append("train events again whose labels have changed: --train-changed-labels")
        accept = "or for changed data continue without training it again: --accept-changed"
        if self._policy.train_labels and not is_recorded:
            accept += ", which takes the present labels as those that were trained"
        elif not is_recorded:
            accept += "; a run that begins with --train-changed-labels trains such events again"
        steps.append(accept)
        return ", ".join(steps)

    def plan(self) -> None:
        """Plan the segments: those of a new run, and one more for late data."""
        if self._saved is None:
            self._hold_out()
        segments = self.progress.segments
        late = late_segment(self.fragments, segments, self._remaining_visits(), self.due, self._passes)
        self.progress.segments = (*segments, late) if late else segments

    def _hold_out(self) -> None:
        """Plan the newest share of the events after all passes over the others, so that it can be scored unseen."""
        if self._config.passes == 1 and self._config.calibration == "none":
            return
        events = {
            key: sum(ref.fragment.live_rows - self.trainable.unlabelled.get(ref.key, 0) for ref in refs)
            for key, refs in self.fragments.items()
        }
        self.progress.segments = split_held_out(list(self.fragments), events, self._config.held_out_share)
        self.progress.held_out = HeldOut() if len(self.progress.segments) > 1 else None

    @property
    def _passes(self) -> int:
        return self.progress.passes(self._config)

    def _remaining_visits(self) -> dict[str, list[int]]:
        """The passes of the epochs that were planned before and are left, by partition."""
        return visits_of(_epochs(self.progress, self._config)[self.progress.epochs_done :])


def _epochs(progress: RunProgress, config: TrainConfig, segments: Segments | None = None) -> tuple[Epoch, ...]:
    """The epochs of a run; ``segments``: of these instead of all."""
    return plan_epochs(
        progress.segments if segments is None else segments,
        partitions_per_epoch=config.partitions_per_epoch,
        passes=progress.passes(config),
        events_per_epoch=config.events_per_epoch,
        rows=progress.planned_rows,
    )


def epochs_left(
    progress: RunProgress,
    config: TrainConfig,
    fragments: Mapping[str, tuple[FragmentRef, ...]],
    due: DueEvents | None,
    trainable: TrainableEvents,
) -> dict[str, Any]:
    """What is left of a run: the members of :class:`PreparedRun` that depend on its progress."""
    epochs = _epochs(progress, config)
    remaining = epochs[progress.epochs_done :]
    first = () if progress.held_out is None else _epochs(progress, config, progress.segments[:1])

    def due_refs(epoch: Epoch) -> tuple[FragmentRef, ...]:
        """The fragments of an epoch that have due events; one that is due now is due when it is trained."""
        refs = [ref for key in epoch.partitions for ref in fragments.get(key, ())]  # a partition may be gone
        return tuple(ref for ref in refs if due is None or due.is_due(ref.key, epoch.pass_number))

    def planned(ref: FragmentRef, visits: Sequence[int]) -> int:
        """The trainings of a fragment's events in these passes."""
        if due is None:
            return len(visits) * (ref.fragment.live_rows - trainable.unlabelled.get(ref.key, 0))
        return due.planned(ref.key, visits)

    visits = visits_of(remaining)
    return {
        "epochs": epochs,
        "pass_epochs": len(first) // progress.passes(config),
        "remaining": remaining,
        "refs_of": {epoch.number: due_refs(epoch) for epoch in remaining},
        "planned_events": sum(planned(ref, visits[key]) for key in visits for ref in fragments.get(key, ())),
    }


def _mismatch(differences: Sequence[str], next_step: str) -> RunMismatch:
    return RunMismatch(
        "a run must continue with the options, inputs and data that it was started with",
        value=listed(differences),
        allowed="options that may change (docs/training-inside.md), the same inputs, and unchanged trained data; new data is trained",
        next_step=next_step,
    )


def fragment_refs(partition: str, fragments: Sequence[Any]) -> tuple[FragmentRef, ...]:
    """The fragments of one partition with their places."""
    return tuple(FragmentRef(partition, position, fragment) for position, fragment in enumerate(fragments))
