"""Reading fragments for the trainer, and scoring events: those of a command, of a test, and the held-out ones of a job after a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from headrace.cli.options.scoring_hosts import ScoringHosts, scoring_command
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quiet import import_tensorflow_quietly

if TYPE_CHECKING:
    import pyarrow as pa

    from trainer.model.metrics import AnyScores
    from trainer.run.preparation.preparation import PreparedRun
    from trainer.run.progress.held_out import HeldOut
    from trainer.run.weights.run_state import RunProgress
    from trainer.serving.scored_events import ScoredEvents
    from warehouse.solution.parts import SolutionFragment
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


def fragment_reader(warehouse: Warehouse, solution: ReadSolution) -> Callable[[SolutionFragment], pa.Table]:
    """The function that reads a fragment for the trainer. A damaged memo is computed on the fly and queued again."""
    from warehouse.memos.memos import damage_recorder
    from warehouse.reading.reader import read_fragment

    record = damage_recorder(warehouse)
    return lambda fragment: read_fragment(warehouse.storage, solution, fragment, on_damage=record, rows=True)


#: A test of fewer events takes one process less time than others need to begin.
SHARED_TEST_EVENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Scored:
    """What the newest checkpoint of a run predicts.

    Attributes:
        events: None where another host has them.
        own_events: that this process has scored.
        checkpoint: its name.
        progress: of the run.
    """

    events: ScoredEvents | None
    own_events: int
    checkpoint: str
    progress: RunProgress


def score(
    warehouse: Warehouse,
    solution: ReadSolution,
    folder: str,
    what: str,
    together: ScoringHosts | None = None,
    command: Callable[[int, Path], Sequence[str]] = lambda rank, meeting: (),
) -> Scored:
    """Score the labelled events of ``solution`` with the run in ``folder``.

    Args:
        what: the title of the progress bar.
        together: the hosts that do so; None: this process alone.
        command: the command line of another process of this machine, by its rank and where they meet.
    """
    import_tensorflow_quietly()
    read = fragment_reader(warehouse, solution)
    with progress_bar(what, "events") as report:
        if together is None:
            from trainer.serving.scored_events import score_events
            from trainer.serving.trained import load_trained

            trained = load_trained(folder, on_skip=_tell_skipped)
            events = score_events(trained, solution, read, progress=report)
            return Scored(events, len(events.labels), PurePath(trained.checkpoint).name, trained.progress)
        from trainer.job.scoring.shared_scoring import score_together

        with together.channels(command) as channels:
            found = score_together(folder, solution, read, channels, on_skip=_tell_skipped, progress=report)
        return Scored(found.events, found.own_events, found.saved.name, found.saved.progress)


def _tell_skipped(reason: str) -> None:
    say(f"a checkpoint was skipped: {reason}")


def score_test(
    warehouse: Warehouse, held_out: ReadSolution, run_dir: str, hosts: int, *, start: str, end: str, home: str
) -> AnyScores:
    """The figures of the events from ``start`` to ``end`` after a training: with ``hosts`` processes of this machine, if they are many events."""
    together = ScoringHosts(hosts, 0) if hosts > 1 and held_out.rows >= SHARED_TEST_EVENTS else None
    command = partial(scoring_command, held_out.model, held_out.model_version, run_dir, start, end, home, hosts)
    events = score(warehouse, held_out, run_dir, "testing", together, command).events
    assert events is not None, "the first host has all events"
    collector = events.head.collector()
    collector.add(events.labels, events.logits)
    return collector.scores()


def score_due_pass(warehouse: Warehouse, prepared: PreparedRun) -> HeldOut | None:
    """Score the held-out events with the commit that ends a pass of a job; None if no pass is due, or no event has a label.

    The next plan of the job carries the figures into its commits. A job that is killed before scores the same commit again.
    """
    passes = prepared.due_pass
    if not passes or prepared.saved is None or _is_within_epoch(prepared):
        return None
    from trainer.run.scoring import score_held_out
    from trainer.serving.trained import load_trained

    import_tensorflow_quietly()
    say(f"scoring the held-out events after pass {passes}")
    trained = load_trained(prepared.config.run_dir)
    read = fragment_reader(warehouse, prepared.solution)
    found = score_held_out(prepared, passes, prepared.progress.epochs_done, trained.weights.predict, read)
    return None if found is None else prepared.held_out_after(found)


def _is_within_epoch(prepared: PreparedRun) -> bool:
    """Whether the newest commit has trained a part of the next epoch."""
    job = None if prepared.saved is None else prepared.saved.job
    return job is not None and bool(job.epoch_steps or job.carried)
