"""A sweep over training options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.sweeps import SweepScreen, TrialRow
    from headrace.sweeps.sweep_files import SweepFolder, SweepPlan
    from trainer.job.launch.fleet_store import FleetStore, StoredJob

#: The score of each trial of a rung whose jobs have ended, by number; None for one that failed.
Scores = Mapping[int, "float | None"]


def rung_scores(folder: SweepFolder, plan: SweepPlan) -> tuple[list[Scores], dict[int, StoredJob]]:
    """The scores of each rung whose jobs have all ended, in order; and the newest job of each trial.

    What the jobs of a fleet have left says all: a process that was killed leaves the sweep as it is.
    """
    from headrace.sweeps.halving import survivors
    from headrace.sweeps.sweep_files import job_name
    from trainer.job.launch.fleet_store import FleetStore
    from trainer.scheduling.fleet import ENDED

    store = FleetStore(folder.fleet)
    jobs = {one.job.name: one for one in store.jobs()}
    found: list[Scores] = []
    newest: dict[int, StoredJob] = {}
    going: tuple[int, ...] = tuple(range(len(plan.trials)))
    for rung in range(len(plan.ends)):
        own = {trial: jobs.get(job_name(rung, trial)) for trial in going}
        newest |= {trial: job for trial, job in own.items() if job is not None}
        ended = {trial: job for trial, job in own.items() if job is not None and job.job.state in ENDED}
        if not going or len(ended) < len(going):
            break
        scores = {trial: _score(store, job) for trial, job in ended.items()}
        found.append(scores)
        if rung + 1 < len(plan.counts):
            going = survivors(scores, plan.counts[rung + 1])
    return found, newest


def sweep(folder: SweepFolder) -> SweepScreen:
    """A sweep: its trials, the best first, with the scores of each rung. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.screens.sweeps import RungRow, SweepScreen
    from headrace.sweeps.halving import best_of, survivors

    plan = folder.plan()
    scores, newest = rung_scores(folder, plan)
    best = best_of(scores)
    last = len(plan.ends) - 1
    going = survivors(scores[-1], plan.counts[len(scores)]) if scores and len(scores) <= last else ()
    finished = len(scores) == len(plan.ends) or bool(scores and not going)
    rows = [
        _row(folder, plan, trial, scores, newest.get(trial), best if finished else None, trial in going)
        for trial in range(len(plan.trials))
    ]
    rungs = tuple(RungRow(end, test_end, count) for (end, test_end), count in zip(plan.ends, plan.counts, strict=True))
    return SweepScreen(folder.path.name, plan.model, finished, rungs, tuple(sorted(rows, key=_order)))


def _row(
    folder: SweepFolder,
    plan: SweepPlan,
    trial: int,
    scores: list[Scores],
    job: StoredJob | None,
    best: int | None,
    goes_on: bool,
) -> TrialRow:
    from headrace.screens.sweeps import TrialRow
    from trainer.scheduling.fleet import ENDED, FleetState

    own = tuple(one[trial] for one in scores if trial in one)
    state = "best" if trial == best else "going on" if goes_on else "dropped"
    if job is None or job.job.state is FleetState.QUEUED:
        state = "waiting"
    elif job.job.state not in ENDED:
        state = "running"
    elif job.job.state is not FleetState.DONE or (own and own[-1] is None):
        state = "failed"
    elif not scores or trial not in scores[min(len(own), len(scores)) - 1]:
        state = "trained"
    reason = "" if job is None or state in ("best", "going on", "dropped") else job.job.reason
    return TrialRow(
        trial, dict(plan.trials[trial]), own, state, reason, str(folder.run_dir(trial)), str(folder.config(trial))
    )


def _order(row: TrialRow) -> tuple[float, float, int]:
    score = row.scores[-1] if row.scores and row.scores[-1] is not None else float("inf")
    return -len(row.scores), score, row.trial


def _score(store: FleetStore, job: StoredJob) -> float | None:
    from headrace.sweeps.sweep_files import score_of
    from trainer.scheduling.fleet import FleetState

    if job.job.state is not FleetState.DONE:
        return None
    try:
        record = json.loads(Path(store.record_path(job.job.number)).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return score_of(record) if isinstance(record, dict) else None
