"""What garbage collection deletes, and what it must leave."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select

from tests.warehouse.scenes import Clock, compute, evict_component, model, work
from warehouse import (
    MemoWritten,
    Warehouse,
    collect_garbage,
    commit_memo,
    heartbeat,
    lease_tasks,
    memo_path,
    read_solution,
    release_tasks,
    schema,
    submit_model,
    write_memo_file,
)
from warehouse.artifacts import artifact_path, write_artifact
from warehouse.gc import COMPACTION, LEFTOVER_SECS
from warehouse.memo_file import NewFile, lease_of

pytestmark = pytest.mark.usefixtures("log")

LONG_AGO_SECS = LEFTOVER_SECS + 1


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


def test_a_dry_run_says_the_same_and_does_nothing(warehouse: Warehouse, home: Path, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    known = files(home, "memos")
    put(home / "memos/log/part/0-0123abcd-0.memo", clock, b"12345")
    put(home / "memos/log/part/.0-0123abcd-0.memo.1-2-3.tmp", clock, b"123")
    put(home / "jobs/job-000001.json", clock, b"{}")
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
    assert commit_memo(warehouse, tasks[0], written[0])
    assert collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9).garbage == ()
    release_tasks(warehouse, tasks[1:])
    gone = collect_garbage(warehouse, dry_run=False).garbage
    assert {(one.kind, one.path) for one in gone} == {("orphan memos", one.file.path) for one in written[1:]}
    assert files(home, "memos") == {written[0].file.path}


def test_an_expired_lease_can_still_commit_until_somebody_takes_the_task(warehouse: Warehouse, clock: Clock) -> None:
    submit_model(warehouse, model(inputs=1))
    (late,) = lease_tasks(warehouse, "late", limit=1)
    written = compute(warehouse, late)
    clock.advance(warehouse.config.lease_secs + 1)
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    tasks = lease_tasks(warehouse, "other", limit=10)
    assert late.task_id in {task.task_id for task in tasks}
    assert [one.path for one in collect_garbage(warehouse, dry_run=False).garbage] == [written.file.path]
    assert not commit_memo(warehouse, late, written), "it lost its lease, and its file"
    assert heartbeat(warehouse, tasks) == tasks


def test_a_condemned_file_into_which_a_task_may_still_commit_stays(warehouse: Warehouse, home: Path) -> None:
    """Two memos of one file, committed one after the other; the first is evicted in between."""
    submit_model(warehouse, model(inputs=2))
    first, second = lease_tasks(warehouse, "w", limit=2)
    assert first.fragment == second.fragment
    arrays = {one.fingerprint: pa.array(range(first.fragment.rows)) for one in (first, second)}
    path = memo_path("log", "part", first.fragment.fragment_id, [first.memo_key, second.memo_key], first.lease)
    file = write_memo_file(warehouse.storage, path, arrays)
    entered = NewFile(path, file.checksum, first.fragment.rows, file.size_bytes)
    written = {name: MemoWritten(entered, column.rows, column.size_bytes, 0.1) for name, column in file.columns.items()}
    assert commit_memo(warehouse, first, written[first.fingerprint])
    assert evict_component(warehouse, first.fingerprint).files_deleted == 1
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    assert commit_memo(warehouse, second, written[second.fingerprint])
    assert collect_garbage(warehouse, dry_run=False).garbage == ()
    with warehouse.catalog.read() as connection:
        (row,) = connection.execute(select(schema.memo_files)).all()
    assert (row.condemned_at, row.live_bytes) == (None, written[second.fingerprint].size_bytes)
    assert files(home, "memos") == {path}


def test_condemned_files_go_and_their_rows_after_them(warehouse: Warehouse, home: Path) -> None:
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
    put(home / f"memos/log/0-{COMPACTION}11-0.memo", clock, age_secs=young)
    put(home / "memos/log/.0-dead-0.memo.1-2-3.tmp", clock, age_secs=young)
    put(home / f"memos/log/0-{COMPACTION}22-0.memo", clock, age_secs=old)
    put(home / "memos/of another making", clock, age_secs=old)
    put(home / "artifacts/.x.1-2-3.tmp", clock, age_secs=young)
    put(home / "artifacts/.y.1-2-3.tmp", clock, age_secs=old)
    gone = {(one.kind, one.path) for one in collect_garbage(warehouse, dry_run=False).garbage}
    assert gone == {
        ("orphan memos", f"memos/log/0-{COMPACTION}22-0.memo"),
        ("orphan memos", "memos/of another making"),
        ("unfinished writes", "artifacts/.y.1-2-3.tmp"),
    }


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
    running = {"result": {"output": f"memos/log/0-{task.lease}-0.memo"}}
    put(home / "jobs/a-000000.json", clock, json.dumps(running).encode())
    put(home / "jobs/b-000000.json", clock, b'{"result": {"output": "memos/log/0-dead-0.memo"}}')
    put(home / "jobs/c-000000.json", clock, b'{"error": {}}')
    put(home / "jobs/d-000000.json", clock, b"torn")
    put(home / "jobs/e-000000.json", clock, age_secs=1)
    collect_garbage(warehouse, dry_run=False)
    assert files(home, "jobs") == {"jobs/a-000000.json", "jobs/e-000000.json"}


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
    put(home / "analysis/jobs/done/aa/0.gz", clock)
    put(home / "analysis/jobs/done/bb/0.gz", clock)
    put(home / "analysis/jobs/running/cc/0.gz", clock)
    put(home / "analysis/jobs/running/dd/0.gz", clock, age_secs=5)
    put(home / "analysis/tft/aa.json", clock, b'{"files": {"analysis/jobs/done/aa/0.gz": "digest"}}')
    assert [one.path for one in collect_garbage(warehouse, dry_run=False).garbage] == ["analysis/jobs/done/bb/0.gz"]


def test_a_file_that_is_named_before_its_turn_stays(
    warehouse: Warehouse, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes without a lease names his file between the collector's look at the catalog and its deleting."""
    path = f"memos/log/0-{COMPACTION}1-0.memo"
    put(home / path, clock)
    from warehouse import gc

    forget = gc._forget_files

    def name_it_first(*args: object) -> int:
        with warehouse.catalog.write() as connection:
            connection.execute(schema.memo_files.insert().values(
                path=path, checksum="c", rows=1, size_bytes=1, live_bytes=1, written_at=0))  # fmt: skip
        return forget(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(gc, "_forget_files", name_it_first)
    done = collect_garbage(warehouse, dry_run=False)
    assert (done.garbage, done.named_meanwhile, files(home, "memos")) == ((), 1, {path})
