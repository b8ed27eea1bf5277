"""Reading fragments for the trainer, and scoring events: those of a command, of a test, and the held-out ones of a job after a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

from headrace.cli.options.scoring_hosts import ScoringHosts, scoring_command
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quiet import keep_tensorflow_quiet

if TYPE_CHECKING:
    import pyarrow as pa

    from trainer.job.scoring.shared_scoring import ScoringChannels
    from trainer.model.scores import AnyScores
    from trainer.run.preparation.preparation import PreparedRun
    from trainer.run.progress.held_out import HeldOut, ScoredPass
    from trainer.run.weights.run_state import RunProgress
    from trainer.run.weights.saved_run import SavedRun
    from trainer.serving.scored_events import ScoredEvents
    from trainer.tables.routes.exchange import Exchange
    from warehouse.solution.parts import SolutionFragment
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

_Figures = TypeVar("_Figures")


def fragment_reader(warehouse: Warehouse, solution: ReadSolution) -> Callable[[SolutionFragment], pa.Table]:
    """The function that reads a fragment for the trainer. A damaged memo is computed on the fly and queued again."""
    from warehouse.memos.memos import damage_recorder
    from warehouse.reading.reader import read_fragment

    record = damage_recorder(warehouse)
    return lambda fragment: read_fragment(warehouse.storage, solution, fragment, on_damage=record, rows=True)


#: A test of fewer events takes one process less time than others need to begin.
SHARED_TEST_EVENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class OwnScores:
    """What one process has scored.

    Attributes:
        events: of this process, in time order after those of the hosts before it.
        fragments: of these events.
        exchange: to the other hosts, which compute figures at once.
        checkpoint: its name.
        progress: of the run.
    """

    events: ScoredEvents
    fragments: Sequence[SolutionFragment]
    exchange: Exchange
    checkpoint: str
    progress: RunProgress


def score(
    warehouse: Warehouse,
    solution: ReadSolution,
    folder: str,
    what: str,
    compute: Callable[[OwnScores], _Figures],
    together: ScoringHosts | None = None,
    command: Callable[[int, Path], Sequence[str]] = lambda rank, meeting: (),
) -> _Figures:
    """Score the labelled events of ``solution`` with the newest checkpoint of the run in ``folder``, and compute figures from them.

    Args:
        what: the title of the progress bar.
        compute: the figures, from the events of each of the hosts at once.
        together: the hosts that do so; None: this process alone.
        command: the command line of another process of this machine, by its rank and where they meet.
    """
    keep_tensorflow_quiet()
    read = fragment_reader(warehouse, solution)
    with progress_bar(what, "events") as report:
        if together is None:
            from trainer.run.progress.identity import in_time_order
            from trainer.serving.scored_events import score_events
            from trainer.serving.trained import load_trained
            from trainer.tables.routes.exchange import OneHost

            trained = load_trained(folder, on_skip=_tell_skipped)
            events = score_events(trained, solution, read, progress=report)
            fragments = [one for part in in_time_order(solution) for one in part.fragments]
            name = PurePath(trained.checkpoint).name
            return compute(OwnScores(events, fragments, OneHost(), name, trained.progress))
        from trainer.job.scoring.shared_scoring import score_together

        read_labels = label_reader(warehouse, solution)

        def attempt(channels: ScoringChannels) -> _Figures:
            found = score_together(
                folder, solution, read, read_labels, channels, on_skip=_tell_skipped, progress=report
            )
            saved = found.saved
            return compute(OwnScores(found.events, found.fragments, channels.steps, saved.name, saved.progress))

        return together.run(command, attempt, say)


def label_reader(warehouse: Warehouse, solution: ReadSolution) -> Callable[[SolutionFragment], pa.Table]:
    """The function that reads the labels of all stored events of a fragment."""
    from warehouse.reading.reader import read_labels

    return partial(read_labels, warehouse.storage, solution)


def _tell_skipped(reason: str) -> None:
    say(f"a checkpoint was skipped: {reason}")


def score_test(
    warehouse: Warehouse, held_out: ReadSolution, run_dir: str, hosts: int, *, start: str, end: str, home: str
) -> AnyScores:
    """The figures of the events from ``start`` to ``end`` after a training: with ``hosts`` processes of this machine, if they are many events."""
    together = ScoringHosts(hosts, 0) if hosts > 1 and held_out.rows >= SHARED_TEST_EVENTS else None
    command = partial(
        scoring_command, held_out.model, held_out.model_version, run_dir, start, end, home, hosts, table_version=held_out.table_version
    )  # fmt: skip
    return score(warehouse, held_out, run_dir, "testing", _scores, together, command)


def _scores(own: OwnScores) -> AnyScores:
    """The figures of the events of all hosts."""
    from trainer.serving.segmented import evaluate_by

    return evaluate_by(own.events, own.fragments, (), no_columns, exchange=own.exchange).figures.scores


def no_columns(fragment: SolutionFragment) -> pa.Table:
    """The reader of raw columns where none are asked for."""
    raise AssertionError(f"no column is read, got {fragment.path}")


def score_due_pass(warehouse: Warehouse, prepared: PreparedRun, hosts: int = 1) -> HeldOut | None:
    """Score the held-out events with the commit that ends a pass of a job; None if no pass is due, or no event has a label.

    The next plan of the job carries the figures into its commits. A job that is killed before scores the same commit again.
    ``hosts``: so many processes of this machine score many events, each with its share of the tables.
    """
    passes = prepared.due_pass
    if not passes or prepared.saved is None or _is_within_epoch(prepared):
        return None
    from trainer.run.predictions import each_predicted
    from trainer.run.scoring import score_held_out
    from trainer.serving.trained import load_trained

    keep_tensorflow_quiet()
    say(f"scoring the held-out events after pass {passes}")
    events = sum(ref.fragment.rows for ref in prepared.held_out_refs)
    if hosts > 1 and events >= SHARED_TEST_EVENTS:
        found = _score_pass_together(warehouse, prepared, passes, ScoringHosts(hosts, 0))
    else:
        trained = load_trained(prepared.config.run_dir)
        read = fragment_reader(warehouse, prepared.solution)
        found = score_held_out(
            prepared, passes, prepared.progress.epochs_done, each_predicted(trained.weights.predict), read
        )
    return None if found is None else prepared.held_out_after(found)


def _score_pass_together(
    warehouse: Warehouse, prepared: PreparedRun, passes: int, together: ScoringHosts
) -> ScoredPass | None:
    """The figures after a pass, by processes of this machine."""
    solution, run_dir = prepared.solution, prepared.config.run_dir
    held = [one for one in solution.partitions if one.key in {*prepared.progress.held_out_partitions}]
    start, end = min(one.start for one in held).isoformat(), max(one.end for one in held).isoformat()
    command = partial(
        scoring_command, solution.model, solution.model_version, run_dir, start, end, warehouse.storage.home, together.hosts,
        held_out=passes, table_version=solution.table_version,
    )  # fmt: skip
    return score_pass(warehouse, solution, run_dir, passes, together, command)[0]


def score_pass(
    warehouse: Warehouse,
    solution: ReadSolution,
    run_dir: str,
    passes: int,
    together: ScoringHosts,
    command: Callable[[int, Path], Sequence[str]] = lambda rank, meeting: (),
) -> tuple[ScoredPass | None, int]:
    """The figures of a run's held-out events after a pass, by all hosts at once, and the events that this one has scored.

    Args:
        solution: with the held-out partitions, and perhaps others.
        together: the hosts.
        command: the command line of another process of this machine.
    """
    keep_tensorflow_quiet()
    from trainer.job.scoring.shared_scoring import score_together
    from trainer.options.config import TrainConfig
    from trainer.run.scoring import scored_pass

    read, read_labels = fragment_reader(warehouse, solution), label_reader(warehouse, solution)

    def attempt(channels: ScoringChannels) -> tuple[ScoredPass | None, int]:
        found = score_together(
            run_dir, solution, read, read_labels, channels, choose=_held_out, is_calibrated=False, on_skip=_tell_skipped, progress=report
        )  # fmt: skip
        saved, events = found.saved, found.events
        config = TrainConfig.from_document(saved.identity.config, run_dir=run_dir)
        scored = scored_pass(
            passes, saved.progress.epochs_done, saved.head, config, events.labels, events.logits, channels.steps
        )
        return scored, len(events.labels)

    with progress_bar("held-out events", "events") as report:
        return together.run(command, attempt, say)


def _held_out(saved: SavedRun, solution: ReadSolution) -> ReadSolution:
    """The held-out partitions of a run."""
    keys = {*saved.progress.held_out_partitions}
    return replace(solution, partitions=tuple(one for one in solution.partitions if one.key in keys))


def _is_within_epoch(prepared: PreparedRun) -> bool:
    """Whether the newest commit has trained a part of the next epoch."""
    job = None if prepared.saved is None else prepared.saved.job
    return job is not None and bool(job.epoch_steps or job.carried)
