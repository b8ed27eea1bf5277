"""Training jobs of real processes over a small warehouse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from headrace.cli.training_jobs import role_command, server_roles, worker_roles
from tests.conftest import ROOT
from tests.trainer.synthetic import config
from tests.warehouse.scenes import FREE_READS, model, work, write_log
from trainer.checkpoints.checkpoint import read_newest
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.job.launch.training_job import LaunchedJob, PlanOptions, make_job
from trainer.options.towers import HostTowers, Towers
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_bytes, read_plan
from trainer.run.loop import train
from trainer.run.preparation.preparation import PreparedRun, prepare_run
from trainer.run.progress.data_changes import REFUSE_CHANGES
from trainer.scheduling.job import JobSettings, PhaseSettings
from trainer.scheduling.transitions import JobState
from warehouse import Warehouse, read_fragment, read_solution, register_table, submit_model
from warehouse.config import WarehouseConfig
from warehouse.reading.reader import read_labels

RELEASE = "test"


def make_warehouse(folder: Path, *, hours: int = 3, rows: int = 400, memoize: bool = True) -> Warehouse:
    """A warehouse with a log and a submitted model of five inputs."""
    root = write_log(folder / "log", hours=hours, rows=rows)
    opened = Warehouse.open(WarehouseConfig(home=str(folder / "home"), rates=FREE_READS))
    register_table(opened, "log", str(root))
    submit_model(opened, model(inputs=5))
    if memoize:
        work(opened)
    return opened


def settings(hosts: int = 1, **options: Any) -> JobSettings:
    """Settings with short waits."""
    phase = PhaseSettings(epoch_secs=options.pop("epoch_secs", None), most_readers=options.pop("most_readers", 1))
    given = {"overlap": True, **options}
    return JobSettings(release=RELEASE, hosts=hosts, initial=phase, caught_up=phase, **given)


def prepare(warehouse: Warehouse, run_dir: Path | str, **options: Any) -> PreparedRun:
    """The run of the newest solution; ``changes``: what is done about changed data."""
    changes = options.pop("changes", REFUSE_CHANGES)
    solution = read_solution(warehouse, "ctr")
    labels = partial(read_labels, warehouse.storage, solution)
    chosen = config(run_dir, deterministic=True, **options)
    return prepare_run(solution, chosen, labels, changes=changes, on_skip=lambda reason: None)


def launch(
    warehouse: Warehouse,
    run_dir: Path | str,
    of: JobSettings,
    *,
    unit_rows: int = 64,
    folder: Path | None = None,
    plan: PartitionPlan | None = None,
    towers: Towers = (),
    machine_hosts: int = 1,
    sends_sums: bool = False,
    servers: ServersSpec | None = None,
    wire_values: str = "float32",
    dense_values: str = "float32",
    batch_file_bytes: int = 0,
    **options: Any,
) -> LaunchedJob:
    """A job that is ready to run. ``folder``: of its files, for a run in a bucket; ``plan``: by which its hosts hold tables, also those of ``towers``."""
    prepared = prepare(warehouse, run_dir, **options)
    files, cut = JobFiles(folder or Path(run_dir)), PlanOptions(unit_rows)
    return make_job(
        prepared,
        files,
        of,
        home=warehouse.storage.home,
        options=cut,
        partition=plan,
        towers=HostTowers(towers, machine_hosts, sends_sums),
        servers=servers,
        wire_values=wire_values,
        dense_values=dense_values,
        batch_file_bytes=batch_file_bytes,
    )


def supervise(
    folder: Path, job: LaunchedJob, *, say: Callable[[str], None] = lambda sentence: None, **options: Any
) -> Supervisor:
    """A supervisor of the job whose files are in ``folder``; ``say``: is called with what it says of parameter servers."""
    files = JobFiles(folder)
    return Supervisor(
        files,
        job.spec.job,
        partial(role_command, str(folder)),
        settings=SupervisorSettings(look_secs=0.1),
        servers=server_roles(job.spec, files, tell=say),
        embedding_workers=worker_roles(job.spec, files, tell=say),
        **options,
    )


def run_killed(folder: Path, job: LaunchedJob) -> None:
    """Run a job to its end, and kill one of its hosts after the first commit."""
    killed = []

    def kill(status: JobStatus) -> None:
        if status.commit_epochs >= 1 and not killed:
            host = next(one for one in supervisor.running().values() if one.kind == "host")
            host.process.kill()
            killed.append(host)

    supervisor = supervise(folder, job, on_status=kill)
    assert supervisor.run(job.newest).state is JobState.DONE
    assert killed


def copy_begun(run: Path, to: Path, epochs: int = 2) -> None:
    """A copy of a run as it was after so many epochs, of a job whose processes have ended."""
    last = newest(run).epochs_done
    assert last > epochs
    shutil.copytree(run, to)
    for later in range(epochs + 1, last + 1):
        shutil.rmtree(to / "checkpoints" / f"epoch-{later:06d}")
    (to / "job" / "events.log").unlink()


def run_job(
    warehouse: Warehouse,
    run_dir: Path,
    of: JobSettings,
    *,
    on_status: Callable[[JobStatus], None] = lambda status: None,
    unit_rows: int = 64,
    **options: Any,
) -> JobStatus:
    """Run a job to its end."""
    job = launch(warehouse, run_dir, of, unit_rows=unit_rows, **options)
    return supervise(run_dir, job, on_status=on_status).run(job.newest)


def train_alone(warehouse: Warehouse, run_dir: Path, plan: PartitionPlan | None = None, **options: Any) -> None:
    """The same run in one other process, since deterministic training has a process for itself."""
    planned = None if plan is None else plan_bytes(plan).decode()
    given = json.dumps([warehouse.storage.home, str(run_dir), planned, options])
    subprocess.run([sys.executable, "-m", "tests.trainer.job.launch.jobs", given], check=True, cwd=ROOT)


def _train_alone(home: str, run_dir: str, planned: str | None, options: dict[str, Any]) -> None:
    plan = None if planned is None else read_plan(planned.encode(), "plan")
    with Warehouse.open(WarehouseConfig(home=home, rates=FREE_READS)) as warehouse:
        solution = read_solution(warehouse, "ctr")
        read = partial(read_fragment, warehouse.storage, solution, rows=True)
        train(solution, read, config(run_dir, deterministic=True, **options), plan=plan)


def newest(run_dir: Path | str) -> Any:
    """The newest commit, whole."""

    def refuse(reason: str) -> None:
        raise AssertionError(reason)

    return read_newest(run_dir, on_skip=refuse)


if __name__ == "__main__":
    _train_alone(*json.loads(sys.argv[1]))
