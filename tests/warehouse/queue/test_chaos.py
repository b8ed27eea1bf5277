"""Processes killed with SIGKILL at random times: the catalog stays consistent and the work is finished.

The moments are drawn from a fixed seed, so that a failure can be repeated, as far as a scheduler lets it.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import FREE_READS, events, model, start, work, write_log
from warehouse import (
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    explain_model,
    lease_tasks,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.migrate import current_revision
from warehouse.catalog.migrations import HEAD
from warehouse.files.memo_file import read_memo_file
from warehouse.scheduling.task_states import MEMO_OF_TASK, MemoState, TaskState

KILLS = 5


def kill_after(process: subprocess.Popen[str], secs: float) -> bool:
    """Let the process get ready, then kill it ``secs`` later; False if it was done before."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    time.sleep(secs)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def check(warehouse: Warehouse) -> None:
    """What has to hold of a catalog at any moment."""
    with warehouse.catalog.read() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        memos = {row.memo_key: row for row in connection.execute(select(schema.memos))}
        tasks = {row.id: row for row in connection.execute(select(schema.tasks))}
        stored = {row.id: row for row in connection.execute(select(schema.memo_files))}
        manifests = connection.execute(select(schema.manifests)).all()
        members = {row.manifest for row in connection.execute(select(schema.manifest_fragments))}
        tables = connection.execute(select(schema.tables)).all()
        inputs = {row.model for row in connection.execute(select(schema.model_inputs))}
        models = {row.id for row in connection.execute(select(schema.models))}
        files = {row.path for row in connection.execute(select(schema.files))}
    assert {row.id for row in manifests} == members, "a manifest without its fragments"
    assert len(manifests) in (0, 4)
    assert len(files) == len(manifests)
    assert bool(tables) == bool(manifests)
    assert models == inputs, "a model without its inputs"
    assert {memo.task for memo in memos.values()} - {None} == tasks.keys(), "a task without memos"
    for memo in memos.values():
        task = tasks.get(memo.task)
        assert memo.state == MEMO_OF_TASK[TaskState.DONE if task is None else TaskState(task.state)]
        assert task is None or task.fragment == memo.fragment
        if memo.state == MemoState.READY:
            file = stored[memo.file]
            read = read_memo_file(warehouse.storage, file.path, [memo.fingerprint], file.checksum)
            assert len(read[memo.fingerprint]) == memo.rows, "a ready memo whose bytes are not there"


_STEP = """
import sys
from tests.warehouse.scenes import events, model, work
from transforms.execution.plan import compile_plan
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
step, home, log = sys.argv[1:]
with Warehouse.open(WarehouseConfig(home, lease_secs=0.05, max_attempts=1000)) as warehouse:
    if step == "work":  # kernels are loaded before the clock starts, or every kill would hit the loading
        compile_plan({name: item.component for name, item in model(inputs=5).inputs.items()}).run(events(3))
    print("ready", flush=True)
    if step == "register":
        register_table(warehouse, "log", log)
    elif step == "submit":
        submit_model(warehouse, model("one", "ads", inputs=5))
        submit_model(warehouse, model("two", inputs=4, buckets=77))
    else:
        while work(warehouse, most=2):
            pass
    print("done")
"""


@pytest.mark.medium
@pytest.mark.parametrize(("step", "longest_secs"), [
    ("register", 0.06), ("submit", 0.08), pytest.param("work", 0.25, marks=pytest.mark.slow)])  # fmt: skip
def test_killed_anywhere(tmp_path: Path, step: str, longest_secs: float) -> None:
    random_moments = random.Random(f"headrace {step}")
    log = write_log(tmp_path / "log", hours=4, rows=400)
    config = WarehouseConfig(str(tmp_path / "home"), lease_secs=0.05, max_attempts=1000, rates=FREE_READS)
    with Warehouse.open(config) as warehouse:
        if step != "register":
            register_table(warehouse, "log", str(log))
        if step == "work":
            submit_model(warehouse, model("one", "ads", inputs=5))
            submit_model(warehouse, model("two", inputs=4, buckets=77))
        killed = 0
        for _ in range(KILLS):
            process = start(_STEP, step, config.home, log)
            killed += kill_after(process, random_moments.uniform(0, longest_secs))
            check(warehouse)
        assert killed > 0, "nothing was killed in the middle of its work"
        finish(warehouse, log)


def finish(warehouse: Warehouse, log: Path) -> None:
    """Whatever was left half done is completed, and the result is what an undisturbed run gives."""
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, model("one", "ads", inputs=5))
    submit_model(warehouse, model("two", inputs=4, buckets=77))
    time.sleep(0.1)  # the leases of the dead run out
    work(warehouse)
    check(warehouse)
    for name in ("one", "two"):
        solution = read_solution(warehouse, name)
        assert (solution.rows, solution.count("compute")) == (1600, 0)
        assert all(one.hit for one in explain_model(warehouse, name))
        for partition in solution.partitions:
            for fragment in partition.fragments:
                assert read_fragment(warehouse.storage, solution, fragment).num_rows == 400
    collect_garbage(warehouse, dry_run=False, leftover_secs=-10)
    with warehouse.catalog.read() as connection:
        used = set(connection.execute(select(schema.memo_files.c.path)).scalars())
    home = Path(warehouse.config.home)
    assert {str(path.relative_to(home)) for path in (home / "memos").rglob("*") if path.is_file()} == used


_CREATE = """
import sys
import alembic.command, sqlalchemy
from warehouse.catalog.catalog import Catalog
print("ready", flush=True)
Catalog.open(sys.argv[1])
print("done")
"""


@pytest.mark.slow
def test_killed_while_the_catalog_is_created(tmp_path: Path) -> None:
    random_moments = random.Random("headrace create")
    killed = 0
    for turn in range(KILLS):
        url = f"sqlite:///{tmp_path}/{turn}/catalog.db"
        killed += kill_after(start(_CREATE, url), random_moments.uniform(0, 0.12))
        catalog = Catalog.open(url)
        with catalog.read() as connection:
            assert current_revision(connection) == HEAD
            assert connection.execute(select(schema.memos)).all() == []
        catalog.close()
    assert killed > 0


def test_a_commit_whose_bytes_were_never_written_cannot_happen(tmp_path: Path) -> None:
    """A worker that dies between leasing and committing leaves nothing that a reader would load."""
    config = WarehouseConfig(str(tmp_path / "home"), lease_secs=0.05, rates=FREE_READS)
    log = write_log(tmp_path / "log", hours=1, rows=20)
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model())
        lease_tasks(warehouse, "dead", limit=10)
        solution = read_solution(warehouse, "ctr")
        assert solution.count("load") == 0
        assert read_fragment(warehouse.storage, solution, solution.partitions[0].fragments[0]).num_rows == 20


_REGISTER_ON_FULL_DISK = """
import resource, sys
from transforms.errors import StorageError
from warehouse import Warehouse, WarehouseConfig, list_tables, register_table
home, log = sys.argv[1:]
with Warehouse.open(WarehouseConfig(home)) as warehouse:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        register_table(warehouse, "log", log)
    except StorageError as error:
        assert error.where.endswith("catalog.db"), error
        print("refused")
    assert list_tables(warehouse) == ()
"""


@pytest.mark.slow
def test_a_full_disk_during_registration_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log/date=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(events(3), folder / "part.parquet")
    for copy in range(600):
        shutil.copy(folder / "part.parquet", folder / f"part_{copy:03d}.parquet")
    process = start(_REGISTER_ON_FULL_DISK, tmp_path / "home", tmp_path / "log")
    out, err = process.communicate(timeout=PATIENCE_SECS)
    assert (out, process.returncode) == ("refused\n", 0), err
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), rates=FREE_READS)) as warehouse:
        assert register_table(warehouse, "log", str(tmp_path / "log")).rows == 601 * 3
