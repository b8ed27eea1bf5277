"""Make a job of a prepared run: its plan, its documents, and the commit that it begins with."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from trainer.control.job_files import JobFiles
from trainer.launch.job_spec import FORMAT, JobSpec, job_identity
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import JobSettings
from trainer.scheduling.orders import Commit
from trainer.training.job_plan import JobPlan, plan_job
from trainer.training.preparation import PreparedRun
from trainer.training.saved_run import SavedRun
from transforms.errors import NotFound
from warehouse.solution.solution import ReadSolution

#: The largest number of events of a unit.
UNIT_ROWS = 1 << 16


@dataclass(frozen=True)
class LaunchedJob:
    """A job that is ready to run.

    Attributes:
        spec: its document, which is written.
        plan: what it trains.
        newest: the commit that it begins with.
    """

    spec: JobSpec
    plan: JobPlan
    newest: Commit


def make_job(
    prepared: PreparedRun,
    files: JobFiles,
    settings: JobSettings,
    *,
    home: str,
    unit_rows: int = UNIT_ROWS,
    shuffle_events: int = 0,
) -> LaunchedJob:
    """Write the documents of a job. A job that was not finished goes on with the plan that it has.

    ``home``: the warehouse's home, from which readers read. Raises :class:`~transforms.errors.StorageError`.
    """
    files.make()
    files.make_token()
    saved = prepared.saved
    plan = _unfinished_plan(files, saved) or plan_job(
        prepared, unit_rows=unit_rows, first_unit=_next_unit(saved), shuffle_events=shuffle_events
    )
    put_solution(files, prepared.solution)
    name = files.put_document(plan.to_bytes())
    attempt = saved.job.attempt if saved is not None and saved.job is not None else 0
    newest = Commit(saved.number if saved else 0, attempt, max(_next_unit(saved), plan.units.first_unit))
    spec = JobSpec(
        FORMAT,
        job_identity(files),
        settings,
        plan.data_range(name),
        home,
        keep_commits=prepared.config.keep_checkpoints,
    )
    spec.write(files)
    return LaunchedJob(spec, plan, newest)


def extend_job(
    prepared: PreparedRun, files: JobFiles, spec: JobSpec, *, unit_rows: int = UNIT_ROWS, shuffle_events: int = 0
) -> DataRange | None:
    """Plan what is left of a run whose job has trained its whole plan; None if nothing is left."""
    if not prepared.planned_events:
        return None
    first_unit = _next_unit(prepared.saved)
    plan = plan_job(prepared, unit_rows=unit_rows, first_unit=first_unit, shuffle_events=shuffle_events)
    put_solution(files, prepared.solution)
    data = plan.data_range(files.put_document(plan.to_bytes()))
    replace(spec, data=data).write(files)
    return data


def put_solution(files: JobFiles, solution: ReadSolution) -> str:
    """Store a read solution under its digest."""
    text = json.dumps(solution.to_document(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return files.put_document(text.encode("ascii"))


def _next_unit(saved: SavedRun | None) -> int:
    return saved.job.next_unit if saved is not None and saved.job is not None else 0


def _unfinished_plan(files: JobFiles, saved: SavedRun | None) -> JobPlan | None:
    """The plan of a commit that has not trained all of it; None if there is none."""
    if saved is None or saved.job is None:
        return None
    try:
        plan = JobPlan.from_bytes(files.read_document(saved.job.plan), f"plan {saved.job.plan[:12]}")
        files.read_document(plan.solution)
    except NotFound:
        return None  # what is left is planned again, from the counts of the commit
    is_left = saved.job.next_unit < plan.stop_unit or bool(saved.job.carried)
    return plan if is_left else None
