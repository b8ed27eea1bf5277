"""A run of everything at once: workers, models, changes of the table, maintenance, and faults.

When it is over the workers finish undisturbed, and then nothing may be wrong: no value, no lease, no file.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from tests.chaos.chores import ROWS, pool
from tests.chaos.havoc import Havoc, Kinds, Report, proxied_postgres, shuffled, sqlite_faults, struck, wait_for_leases
from tests.chaos.nursery import at_its_time
from tests.chaos.scene import LEASE_SECS, config_of, write_log
from tests.support.postgresql import PostgresServer
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import component_from_document, raw_columns
from warehouse import (
    TaskQuery,
    Warehouse,
    collect_garbage,
    read_raw,
    register_table,
    retry_tasks,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, wanted
from warehouse.files.digests import column_digest
from warehouse.files.memo_file import read_memo_file
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.tables.manifests import current_fragments

HOURS = 12
#: A fault strikes when so many tasks were leased since the last one, or after so many seconds.
_PACE_TASKS, _PACE_SECS = 8, 2.5
_ROUNDS = 6


@dataclass
class Outcome:
    """What was wrong when all was over, and what a run was like.

    Attributes:
        report: The faults, and how workers and chores ended.
        memos: Memos that were compared with what an undisturbed computation gives.
        wrong: Those that hold other values.
        unready: Memos that a live model waits for after the workers finished.
        leases: Tasks that are still leased.
        files: Files of Headrace's folders that nothing names after a collection of garbage.
        findings: What verification found.
        quiet_deaths: Workers that died when no fault struck any more.
    """

    report: Report
    memos: int = 0
    wrong: list[str] = field(default_factory=list)
    unready: int = 0
    leases: int = 0
    files: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    quiet_deaths: int = 0

    @property
    def problems(self) -> list[str]:
        """All that is wrong, in words; empty when nothing is."""
        counted = {
            "memos that no worker made ready": self.unready,
            "leaked leases": self.leases,
            "workers that died undisturbed": self.quiet_deaths,
        }
        return [
            *(f"{count} {what}" for what, count in counted.items() if count),
            *(f"wrong value: {one}" for one in self.wrong),
            *(f"leaked file: {one}" for one in self.files),
            *(f"finding: {one}" for one in self.findings),
            *(f"a chore broke: {one}" for one in self.report.broken),
        ]


def run_storm(root: Path, server: PostgresServer | None, seed: int, faults: int, hours: int = HOURS) -> Outcome:
    """Strike ``faults`` times, let the workers finish, and say what is wrong. Without a server the catalog is SQLite's."""
    draw, home = random.Random(seed), root / "home"
    write_log(root / "log", hours, ROWS)
    (root / "clock").write_text("0.0")
    with contextlib.ExitStack() as stack:
        direct, url, kinds = stack.enter_context(_catalog(root, server, draw))
        opened = stack.enter_context(Warehouse.open(config_of(str(home), direct)))
        warehouse = at_its_time(opened, root / "clock")
        register_table(warehouse, "log", str(root / "log"))
        for versions in pool().values():
            submit_model(warehouse, versions[0])
        havoc = Havoc(home, root / "clock", draw, kinds, full_disks=os.path.ismount(home))
        havoc.add_chores()
        with struck(root, url, havoc) as report:
            leased = 0
            for kind in shuffled(havoc.kinds, faults, draw):
                leased = wait_for_leases(opened, leased + _PACE_TASKS, _PACE_SECS)
                havoc.kinds[kind]()
                report.faults[kind] += 1
        outcome = Outcome(report)
        _finish(root, direct, warehouse, outcome)
        _examine(warehouse, outcome)
    return outcome


@contextlib.contextmanager
def _catalog(root: Path, server: PostgresServer | None, draw: random.Random) -> Iterator[tuple[str, str, Kinds]]:
    """The catalog's URL, the URL that workers get, and the faults between the two."""
    if server is None:
        file = root / "home/catalog.db"
        yield f"sqlite:///{file}", f"sqlite:///{file}", sqlite_faults(file, draw)
        return
    url = server.database()
    with proxied_postgres(root, server, url, draw) as (proxied, kinds):
        yield url, proxied, kinds


def _finish(root: Path, url: str, warehouse: Warehouse, outcome: Outcome) -> None:
    """No fault strikes any more: the table is registered, the models are submitted, and workers finish."""
    register_table(warehouse, "log", str(root / "log"))
    for versions in pool().values():
        submit_model(warehouse, versions[-1])
    for _ in range(_ROUNDS):
        retry_tasks(warehouse, TaskQuery())
        with struck(root, url, Havoc(root / "home", root / "clock", random.Random(0), {}, full_disks=False)) as quiet:
            pass
        outcome.quiet_deaths += quiet.workers_died
        with warehouse.catalog.read() as connection:
            outcome.unready = _count_unready(connection)
        if not outcome.unready:
            break
    clock = root / "clock"
    clock.write_text(str(float(clock.read_text()) + 2 * LEASE_SECS))
    collect_garbage(warehouse, dry_run=False, leftover_secs=-1e9)


def _count_unready(connection: Connection) -> int:
    unready = select(func.count()).select_from(schema.tasks).join(schema.memos, computes()).where(wanted())
    return int(connection.execute(unready).scalar_one())


def _examine(warehouse: Warehouse, outcome: Outcome) -> None:
    tasks = schema.tasks.c
    with warehouse.catalog.read() as connection:
        leased = select(func.count()).select_from(schema.tasks)
        outcome.leases = int(connection.execute(leased.where(tasks.state == TaskState.LEASED)).scalar_one())
        named = set(connection.execute(select(schema.memo_files.c.path)).scalars())
        named |= set(connection.execute(select(schema.overlays.c.path)).scalars())
    home = Path(warehouse.config.home)
    folders = (home / name for name in ("memos", "overlays", "jobs", "artifacts", "analysis"))
    files = {str(path.relative_to(home)) for folder in folders for path in folder.rglob("*") if path.is_file()}
    outcome.files = sorted(files - named)
    outcome.findings = [f"{one.kind}: {one.where}: {one.what}" for one in verify_warehouse(warehouse).findings]
    _compare_values(warehouse, outcome)


def _compare_values(warehouse: Warehouse, outcome: Outcome) -> None:
    """Every ready memo over the table's current data, against the same component computed here."""
    memos, files, components = schema.memos.c, schema.memo_files.c, schema.components.c
    query = (
        select(memos.fragment, memos.fingerprint, files.path, files.checksum, components.document)
        .join(schema.memo_files, files.id == memos.file)
        .join(schema.components, components.fingerprint == memos.fingerprint)
        .where(memos.state == MemoState.READY)
    )
    with warehouse.catalog.read() as connection:
        standing = {placed.row: placed.fragment for placed in current_fragments(connection, "log")}
        of_fragment: defaultdict[int, list[Any]] = defaultdict(list)
        for row in connection.execute(query):
            if row.fragment in standing:
                of_fragment[row.fragment].append(row)
    for number, rows in of_fragment.items():
        roots = {row.fingerprint: component_from_document(row.document) for row in rows}
        columns = sorted({column.name for root in roots.values() for column in raw_columns(root)})
        expected = compile_plan(roots).run(read_raw(warehouse.storage, standing[number], columns)).columns
        for row in rows:
            held = read_memo_file(warehouse.storage, row.path, [row.fingerprint], row.checksum)[row.fingerprint]
            outcome.memos += 1
            if column_digest(held) != column_digest(expected[row.fingerprint]):
                outcome.wrong.append(f"{row.path}, component {row.fingerprint[:12]}")
