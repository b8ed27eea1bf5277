"""Reading fragments for the trainer, and scoring the held-out events of a job after a pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.options.scoring_hosts import ScoringHosts
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quiet import import_tensorflow_quietly

if TYPE_CHECKING:
    import pyarrow as pa

    from trainer.model.metrics import AnyScores
    from trainer.run.preparation.preparation import PreparedRun
    from trainer.run.progress.held_out import HeldOut
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


def score_test(
    warehouse: Warehouse,
    held_out: ReadSolution,
    run_dir: str,
    hosts: int,
    command: Callable[[int, Path], Sequence[str]],
) -> AnyScores:
    """The figures of the events after those of a training: with so many processes of this machine, if they are many events.

    ``command``: the command line of a process by its rank and where they meet, see :func:`~headrace.cli.options.scoring_hosts.scoring_command`.
    """
    from trainer.serving.trained import load_trained

    import_tensorflow_quietly()
    read = fragment_reader(warehouse, held_out)
    with progress_bar("testing", "events") as report:
        if hosts == 1 or held_out.rows < SHARED_TEST_EVENTS:
            return load_trained(run_dir).evaluate(held_out, read, progress=report)
        from trainer.job.scoring.shared_scoring import score_together

        with ScoringHosts(hosts, 0).channels(command) as channels:
            found = score_together(run_dir, held_out, read, channels, progress=report)
    assert found.events is not None, "the first host has all events"
    collector = found.saved.head.collector()
    collector.add(found.events.labels, found.events.logits)
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
