"""Under faults of workers, catalog, storage and clock, every memo exists once and correct, and no lease is stuck."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.chaos.havoc import Report, run, small_disk
from tests.chaos.scene import COMPONENTS, HOURS, config_of, expected_digests, models, write_log
from tests.support.postgresql import PostgresServer
from tests.support.postgresql import running as running_postgres
from warehouse import collect_garbage, register_table, submit_model, verify_warehouse
from warehouse.catalog import schema
from warehouse.files.digests import column_digest
from warehouse.files.memo_file import read_memo_file
from warehouse.scheduling.task_states import MemoState
from warehouse.warehouse import Warehouse


def check_outcome(warehouse: Warehouse, expected: dict[tuple[str, str], str]) -> None:
    """What must hold of the warehouse when all is over."""
    tasks, memos, files, coverage = schema.tasks, schema.memos, schema.memo_files, schema.coverage
    query = (
        select(memos.c.state, memos.c.fingerprint, schema.fragments.c.partition, files.c.path, files.c.checksum)
        .join(schema.fragments, schema.fragments.c.id == memos.c.fragment)
        .join(files, files.c.id == memos.c.file, isouter=True)
    )  # fmt: skip
    with warehouse.catalog.read() as connection:
        rows = connection.execute(query).all()
        unfinished = connection.execute(select(tasks)).all()
        failures = connection.execute(select(schema.failures.c.document)).scalars().all()
        held = connection.execute(
            select(coverage.c.content, schema.set_members.c.fingerprint, func.count())
            .join(schema.set_members, schema.set_members.c.column_set == coverage.c.column_set)
            .group_by(coverage.c.content, schema.set_members.c.fingerprint)
        ).all()
        paths = set(connection.execute(select(files.c.path)).scalars())
    assert {row.state for row in rows} == {MemoState.READY}, failures[:3]
    assert unfinished == [], "a task without memos, or a lease that is stuck"
    assert {(row.partition, row.fingerprint) for row in rows} == set(expected)
    assert len(rows) == len(expected) == len(held), "present once"
    assert {count for *_, count in held} == {1}, "a memo is held twice"
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.path not in found:
            columns = [other.fingerprint for other in rows if other.path == row.path]
            read = read_memo_file(warehouse.storage, row.path, columns, row.checksum)
            found[row.path] = {name: column_digest(array) for name, array in read.items()}
        assert found[row.path][row.fingerprint] == expected[row.partition, row.fingerprint], "a memo is wrong"
    assert verify_warehouse(warehouse, recompute=50).findings == ()
    collect_garbage(warehouse, dry_run=False, leftover_secs=-1e6)
    home = Path(warehouse.config.home)
    assert {str(path.relative_to(home)) for path in (home / "memos").rglob("*") if path.is_file()} == paths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hours", "components", "faults"), [(10, 8, 8), (HOURS, COMPONENTS, 50)], ids=["a few", "fifty"]
)
def test_faults(tmp_path: Path, hours: int, components: int, faults: int) -> None:
    log = write_log(tmp_path / "log", hours)
    with running_postgres() as server, small_disk(tmp_path / "home", 64 << 20):
        run_and_check(tmp_path, server, log, hours, components, faults)


def run_and_check(
    root: Path, server: PostgresServer, log: Path, hours: int, components: int, faults: int, seed: int = 11
) -> Report:
    """Work under faults from beginning to end; raises AssertionError when anything is not as it must be."""
    url = server.database()
    with Warehouse.open(config_of(str(root / "home"), url)) as warehouse:
        register_table(warehouse, "log", str(log))
        queued = sum(submit_model(warehouse, one).queued for one in models(components))
        assert queued == hours * components
        report = run(root, server, url, seed, faults, queued)
        assert sum(report.faults.values()) == faults
        assert report.workers_died > 0, "nobody was hurt"
        check_outcome(warehouse, expected_digests(log, components))
        return report
