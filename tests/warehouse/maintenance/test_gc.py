"""What garbage collection deletes, and what it must not delete."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select

from tests.warehouse.scenes import Clock, compute, evict_component, model, work
from warehouse import (
    MemoWritten,
    Warehouse,
    collect_garbage,
    commit_memos,
    heartbeat,
    lease_tasks,
    memo_path,
    read_solution,
    release_tasks,
    submit_model,
    write_memo_file,
)
from warehouse.catalog import schema
from warehouse.changes.deletion import delete_rows
from warehouse.files.artifacts import artifact_path, write_artifact
from warehouse.files.batch_files.origin import BatchOrigin
from warehouse.files.column_files import NewFile
from warehouse.files.memo_file import lease_of
from warehouse.maintenance.gc import LEFTOVER_SECS
from warehouse.storage.layout import COMPACTION
from warehouse.tables.content import content_digest

pytestmark = pytest.mark.usefixtures("log")

LONG_AGO_SECS = LEFTOVER_SECS + 1
NO_LEASE, JOB, OTHER_JOB = "0123abcd" * 4, "11" * 16, "22" * 16
CONTRIBUTION, OTHER = "aa" * 32, "bb" * 32


def memo_name(lease: str = NO_LEASE) -> str:
    """A memo file's name."""
    return f"{'0' * 16}-{lease}-{'f' * 16}.memo"


def unfinished(path: str) -> str:
    """What a file is called while it is written."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.1-2-0123abcd.tmp"


@pytest.fixture
def home(warehouse: Warehouse) -> Path:
    return Path(warehouse.config.home)


def put(path: Path, clock: Clock, content: bytes = b"x", age_secs: float = LONG_AGO_SECS) -> Path:
    """A file that was last written some time ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (clock.now - age_secs, clock.now - age_secs))
    return path


def files(home: Path, folder: str = "") -> set[str]:
    return {str(path.relative_to(home)) for path in (home / folder).rglob("*") if path.is_file()}


def test_a_dry_run_shows_the_same_and_changes_nothing(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    known = files(home, "memos")
    put(home / "memos/log/part" / memo_name(), clock, b"12345")
    put(home / unfinished(f"memos/log/part/{memo_name()}"), clock, b"123")
    put(home / f"jobs/{JOB}-000001.json", clock, b"{}")
    planned = collect_garbage(warehouse)
    assert planned.by_kind() == {"orphan memos": (1, 5), "unfinished writes": (1, 3), "job results": (1, 2)}
    assert (planned.dry_run, planned.size_bytes, planned.pinned) == (True, 10, 0)
    assert len(files(home, "memos")) == len(known) + 2
    done = collect_garbage(warehouse, dry_run=False)
    assert done.garbage == planned.garbage
    assert (files(home, "memos"), files(home, "jobs")) == (known, set())
    assert collect_garbage(warehouse, dry_run=False).garbage == ()


def test_a_file_stays_while_a_task_carries_its_lease(warehouse: Warehouse, home: Path) -> None:
    submit_model(warehouse, model(inputs=1))
    tasks = lease_tasks(warehouse, "w", limit=3)
    written = [compute(warehouse, task) for task in tasks]
    assert collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9).garbage == ()
    assert commit_memos(warehouse, [(tasks[0], written[0])])[0]
    assert collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9).garbage == ()
    release_tasks(warehouse, tasks[1:])
    gone = collect_garbage(warehouse, dry_run=False).garbage
    assert {(one.kind, one.path) for one in gone} == {("orphan memos", one.file.path) for one in written[1:]}
    assert files(home, "memos") == {written[0].file.path}


def test_an_expired_lease_can_commit_until_the_task_is_leased_again(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (late,) = lease_tasks(warehouse, "late", limit=1)
    written = compute(warehouse, late)
    clock.advance(warehouse.config.lease_secs + 1)
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    tasks = lease_tasks(warehouse, "other", limit=10)
    assert late.task_id in {task.task_id for task in tasks}
    assert [one.path for one in collect_garbage(warehouse, dry_run=False).garbage] == [written.file.path]
    assert not commit_memos(warehouse, [(late, written)])[0], "it lost its lease, and its file"
    assert heartbeat(warehouse, tasks) == tasks


def test_an_unreferenced_file_stays_while_a_task_may_commit_into_it(warehouse: Warehouse, home: Path) -> None:
    """Two memos of one file, committed one after the other; the first is evicted in between."""
    submit_model(warehouse, model(inputs=2))
    first, second = lease_tasks(warehouse, "w", limit=2)
    assert first.fragment == second.fragment
    arrays = {one.fingerprint: pa.array(range(first.fragment.rows)) for one in (first, second)}
    path = memo_path("log", "part", first.fragment.fragment_id, [first.memo_key, second.memo_key], first.lease)
    file = write_memo_file(warehouse.storage, path, arrays)
    entered = NewFile(path, file.checksum, first.fragment.rows, file.size_bytes)
    written = {name: MemoWritten(entered, column.rows, column.size_bytes, 0.1) for name, column in file.columns.items()}
    assert commit_memos(warehouse, [(first, written[first.fingerprint])])[0]
    assert evict_component(warehouse, first.fingerprint).files_deleted == 1
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    assert commit_memos(warehouse, [(second, written[second.fingerprint])])[0]
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    with warehouse.catalog.read() as connection:
        (row,) = connection.execute(select(schema.memo_files)).all()
    assert (row.condemned_at, row.live_bytes) == (None, written[second.fingerprint].size_bytes)
    assert files(home, "memos") == {path}


def test_unreferenced_files_are_deleted_before_their_rows(warehouse: Warehouse, home: Path) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    evict_component(warehouse, solution.inputs[0].fingerprint)
    with warehouse.catalog.read() as connection:
        condemned = select(schema.memo_files.c.path).where(schema.memo_files.c.condemned_at.is_not(None))
        (evicted, *_) = connection.execute(condemned).scalars()
    (home / evicted).unlink()  # as if a collection had been killed between the bytes and the row
    assert len(collect_garbage(warehouse).garbage) == 2
    done = collect_garbage(warehouse, dry_run=False)
    assert (len(done.garbage), done.rows) == (2, 3)
    with warehouse.catalog.read() as connection:
        assert set(connection.execute(select(schema.memo_files.c.path)).scalars()) == files(home, "memos")
    assert read_solution(warehouse, "ctr").count("load") == 3


def test_writers_without_a_lease_have_time(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    young, old = LEFTOVER_SECS - 1, LEFTOVER_SECS + 1
    compacted = {age: f"memos/log/{memo_name(f'{COMPACTION}{age * 16}')}" for age in ("11", "22")}
    artifacts = {age: unfinished(artifact_path(age * 32)) for age in ("11", "22")}
    for paths in (compacted, artifacts):
        put(home / paths["11"], clock, age_secs=young)
        put(home / paths["22"], clock, age_secs=old)
    put(home / unfinished(f"memos/log/{memo_name()}"), clock, age_secs=young)
    gone = {(one.kind, one.path) for one in collect_garbage(warehouse, dry_run=False).garbage}
    assert gone == {("orphan memos", compacted["22"]), ("unfinished writes", artifacts["22"])}


def test_an_unfinished_write_has_the_lease_of_its_file(warehouse: Warehouse, home: Path) -> None:
    """As the storage really names it, when it is killed before the rename."""
    seen: list[str] = []

    def write(_: object) -> None:
        seen.extend(os.listdir(home / "memos/log"))

    warehouse.storage.write_atomic("memos/log/0123-cafe-4567.memo", write)
    (name,) = seen
    assert (name.startswith("."), lease_of(f"memos/log/{name}")) == (True, "cafe")


def test_results_of_running_tasks_stay(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (task, *_) = lease_tasks(warehouse, "w", limit=3)
    running = {"result": {"output": f"memos/log/{memo_name(task.lease)}"}}
    done = {"result": {"output": f"memos/log/{memo_name()}"}}
    results = [f"jobs/{JOB}-{number:06d}.json" for number in range(5)]
    put(home / results[0], clock, json.dumps(running).encode())
    put(home / results[1], clock, json.dumps(done).encode())
    put(home / results[2], clock, b'{"error": {}}')
    put(home / results[3], clock, b"torn")
    put(home / results[4], clock, age_secs=1)
    collect_garbage(warehouse, dry_run=False)
    assert files(home, "jobs") == {results[0], results[4]}


def test_artifacts_that_an_analysis_or_a_component_names_stay(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    digests = [write_artifact(warehouse.storage, pa.array([word])) for word in ("found", "read", "nobody's")]
    for digest in digests:
        put(home / artifact_path(digest), clock)
    document = {"nodes": [{"artifact": digests[1], "type": {}}]}
    with warehouse.catalog.write() as connection:
        connection.execute(schema.analyses.insert().values(
            key="k", fingerprint="f", operator="o", expression="e", table_name="log", start_at=0, end_at=1,
            partitions=[], rows=1, artifact=digests[0], secs=0, created_at=0))  # fmt: skip
        connection.execute(schema.components.insert().values(
            fingerprint="f", shape="s", expression="e", document=document, created_at=0))  # fmt: skip
    assert collect_garbage(warehouse, dry_run=False).by_kind() == {"artifacts": (1, 1)}
    assert files(home, "artifacts") == {artifact_path(digest) for digest in digests[:2]}


def test_analysis_files_that_no_contribution_lists_go_once_their_job_is_silent(
    warehouse: Warehouse, home: Path, clock: Clock
) -> None:
    listed, unlisted = (f"analysis/jobs/{JOB}/{one}/0-00000-of-00001.gz" for one in (CONTRIBUTION, OTHER))
    put(home / listed, clock)
    put(home / unlisted, clock)
    put(home / f"analysis/jobs/{OTHER_JOB}/{CONTRIBUTION}/0-00000-of-00001.gz", clock)
    put(home / f"analysis/jobs/{OTHER_JOB}/{OTHER}/0-00000-of-00001.gz", clock, age_secs=5)
    document = json.dumps({"files": {listed: "digest"}}).encode()
    put(home / f"analysis/tft-1-2-py3.11/{CONTRIBUTION}.json", clock, document)
    assert [one.path for one in collect_garbage(warehouse, dry_run=False).garbage] == [unlisted]


def test_a_file_that_is_referenced_before_its_deletion_stays(
    warehouse: Warehouse, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes without a lease names his file between the collector's look at the catalog and its deleting."""
    path = f"memos/log/{memo_name(COMPACTION + NO_LEASE)}"
    put(home / path, clock)
    from warehouse.maintenance import gc

    forget = gc._remove_rows

    def name_it_first(*args: object) -> int:
        with warehouse.catalog.write() as connection:
            connection.execute(schema.memo_files.insert().values(
                path=path, checksum="c", rows=1, size_bytes=1, live_bytes=1, written_at=0))  # fmt: skip
        return forget(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(gc, "_remove_rows", name_it_first)
    done = collect_garbage(warehouse, dry_run=False)
    assert (done.garbage, done.named_meanwhile, files(home, "memos")) == ((), 1, {path})


def batch_file(
    warehouse: Warehouse, clock: Clock, digest: str, age_secs: float = LONG_AGO_SECS, **changes: object
) -> Path:
    """A file of batches of the model, made from the data as it is now, that was used some time ago."""
    solution = read_solution(warehouse, "ctr")
    columns = ("clicked", "query")
    contents = tuple(content_digest(one, columns) for one in solution.fragments)
    origin = replace(BatchOrigin("ctr", solution.model_version, solution.table, columns, contents), **changes)
    path = Path(warehouse.config.home) / f"batches/{solution.table}/{digest}.batches"
    return put(path, clock, origin.to_bytes() + b"batches", age_secs)


def test_batches_of_a_live_model_and_of_the_data_as_it_is_stay(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    submit_model(warehouse, model())
    current = batch_file(warehouse, clock, "aa" * 32)
    stale = batch_file(warehouse, clock, "bb" * 32, contents=("ab" * 32,))
    earlier = batch_file(warehouse, clock, "cc" * 32, model_version=7)
    gone = batch_file(warehouse, clock, "dd" * 32, model="dropped")
    damaged = put(current.with_name(f"{'ee' * 32}.batches"), clock, b"HRBATCH")
    used_lately = batch_file(warehouse, clock, "ff" * 32, age_secs=60, contents=("ab" * 32,))
    written = put(Path(unfinished(str(current))), clock)
    collected = collect_garbage(warehouse, dry_run=False)
    assert {Path(one.path).name for one in collected.garbage} == {
        one.name for one in (stale, earlier, gone, damaged, written)
    }
    assert collected.by_kind()["batch files"][0] == 4
    assert current.exists()
    assert used_lately.exists()
    assert collected.foreign == ()


def test_batches_are_stale_after_a_deletion(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model())
    path = batch_file(warehouse, clock, "aa" * 32)
    assert collect_garbage(warehouse).garbage == ()
    delete_rows(warehouse, "log", where=[("clicked", "true")])
    assert [one.kind for one in collect_garbage(warehouse, dry_run=False).garbage] == ["batch files"]
    assert not path.exists()
