"""Makes the run that tests keep, as a job of an earlier release has left it: ``python -m tests.headrace.kept_run``.

Two hosts have trained three hours by ``--plan auto``, then a host and a parameter server one hour more, as phases of one run: so it has commits of hosts
and of servers, ``plans.json`` and ``phases.json``. The job is held by the log of release :data:`EARLIER`. Make it again only when a release no longer
reads what it has, and say so in ``docs/training-job-inside.md``.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.trainer.job.launch.jobs import make_warehouse
from tests.warehouse.scenes import FREE_READS, events, model, work, write_partition
from trainer.job.control.event_log import EventLog, LogOwner
from trainer.job.control.job_files import JobFiles
from trainer.job.control.offline_job import logged_job
from trainer.job.launch.job_spec import JobSpec
from trainer.scheduling.holds import ErrorClass
from trainer.scheduling.orders import Hold
from trainer.scheduling.transitions import JobState
from transforms.child_process import child_environment, module_command
from warehouse import Warehouse, register_table, submit_model
from warehouse.config import WarehouseConfig

KEPT = ROOT / "tests" / "headrace" / "goldens" / "kept_run.zip"
EARLIER = "0.0.9"
HOLD = Hold(ErrorClass.PERMANENT, "InputError: a rate must be above 0", "host:h0")
#: The hours that the run has trained, and the events of each.
HOURS, ROWS = 4, 300
_RUN_FILE = """\
model = "ctr"
home = "home"
run-dir = "run"
[options]
batch_rows = 32
dim = 2
bottom_mlp = [2]
top_mlp = [2]
deep = true
linear = true
network = "dlrm"
embedding_learning_rate = 0.05
dense_learning_rate = 0.003
linear_learning_rate = 0.1
initial_bias = 0.0
dense_scaling = {}
passes = 1
partitions_per_epoch = 1
statistics_share = 1.0
[initial]
hosts = 2
readers = 1
plan = "auto"
[caught_up]
hosts = 1
readers = 1
servers = 1
[caught_up.options]
batch_rows = 16
"""
_MOMENT = (2026, 1, 1, 0, 0, 0)
#: What another machine does not have, or must not know.
_LEFT_OUT = ("lock", "token", "logs", "documents", "servers", "outcome.json", ".held-commits")


def train(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """``headrace train`` in a folder; by the run file there without other arguments."""
    command = module_command("headrace", "train", *map(str, arguments or ("--from", "train.toml")), "--json")
    return subprocess.run(command, cwd=folder, env=child_environment(), capture_output=True, text=True, timeout=1200)


def trained(folder: Path, *arguments: object) -> Any:
    """The report of :func:`train`, which ends well."""
    done = train(folder, *arguments)
    if done.returncode:
        raise AssertionError(done.stderr[-4000:])
    return json.loads(done.stdout[done.stdout.index("\n{") + 1 if "\n{" in done.stdout else 0 :])


def land(folder: Path, hour: int) -> None:
    """One more hour of the log."""
    write_partition(folder / "log", hour, events(ROWS, seed=hour))
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        work(warehouse)


def unpack(folder: Path) -> None:
    """The kept run, with its log and its run file, and a warehouse for it."""
    with zipfile.ZipFile(KEPT) as archive:
        archive.extractall(folder)
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        submit_model(warehouse, model(inputs=5))
        work(warehouse)


def _make(folder: Path) -> None:
    (folder / "train.toml").write_text(_RUN_FILE, encoding="utf-8")
    make_warehouse(folder, hours=HOURS - 1, rows=ROWS).close()
    trained(folder)
    land(folder, HOURS - 1)
    trained(folder)
    files = JobFiles(folder / "run")
    spec = JobSpec.read(files)
    job = logged_job(files, job=spec.job, release=spec.settings.release)
    assert job is not None
    settings = replace(spec.settings, release=EARLIER)
    held = replace(job, settings=settings, state=JobState.HELD, hold=HOLD, members={}, away=frozenset())
    EventLog(files.log, LogOwner(spec.job, EARLIER, 7), held).close()
    replace(spec, home="home", servers=None, settings=settings).write(files)


def main() -> None:
    """Replace the kept run by one of this release."""
    with tempfile.TemporaryDirectory(prefix="headrace-kept-") as name:
        folder = Path(name)
        _make(folder)
        paths = [folder / "train.toml", *(folder / "log").rglob("*"), *(folder / "run").rglob("*")]
        kept = {path.relative_to(folder): path for path in paths if path.is_file()}
        with zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(kept):
                if not set(path.parts) & set(_LEFT_OUT):
                    archive.writestr(zipfile.ZipInfo(str(path), _MOMENT), kept[path].read_bytes(), zipfile.ZIP_DEFLATED)
    print(f"{KEPT}: {KEPT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
