"""Small logs, models and an in-process worker for the tests of ``warehouse``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import func, select

import transforms.expressions.expression as hr
from transforms.execution.plan import compile_plan
from transforms.expressions.model import Model
from transforms.graphs.graph import component_from_document, raw_columns
from warehouse import (
    ComponentQuery,
    EvictionPlan,
    EvictionRequest,
    LeasedTask,
    MemoWritten,
    Warehouse,
    commit_memos,
    lease_tasks,
    memo_path,
    read_raw,
    register_table,
    run_eviction,
    submit_model,
    write_memo_file,
)
from warehouse.catalog import schema
from warehouse.config import WarehouseConfig
from warehouse.files.column_files import NewFile
from warehouse.planning.rates import Rates
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution

REPOSITORY = Path(__file__).resolve().parents[2]


#: Loading a memo costs nothing: whatever is ready is loaded, however little there is to compute.
FREE_READS = Rates(memo_read_secs=0.0, memo_column_secs=0.0)


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: float = 1_760_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, secs: float) -> None:
        self.now += secs


def events(rows: int = 20, seed: int = 0, **replaced: Any) -> pa.Table:
    """A little search log: query and title texts with nulls, a number, a label."""
    words = ("red", "blue", "Shoe", "boot", "hat")
    columns: dict[str, Any] = {
        "query": [
            None if (i + seed) % 7 == 0 else f"{words[(i + seed) % 5]} {words[(i * 3) % 5]} h{seed}"
            for i in range(rows)
        ],
        "title": [f"{words[(i * 2 + seed) % 5]} {words[i % 3]} h{seed}" for i in range(rows)],
        "price": pa.array([None if i % 5 == 0 else float(i + seed) for i in range(rows)], pa.float32()),
        "clicked": pa.array([(i + seed) % 3 == 0 for i in range(rows)]),
    }
    return pa.table({**columns, **replaced})


def write_partition(root: Path, hour: int, table: pa.Table, name: str = "part.parquet", **options: Any) -> Path:
    """One file of one hour of 2026-01-01."""
    folder = root / "date=2026-01-01" / f"hour={hour:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, **options)
    return folder / name


def write_log(root: Path, hours: int = 3, rows: int = 20) -> Path:
    """A log of some hours, one file each."""
    for hour in range(hours):
        write_partition(root, hour, events(rows, seed=hour))
    return root


def model(
    name: str = "ctr", client: str = "search", priority: int = 0, *, buckets: int = 100, inputs: int = 2
) -> Model:
    """A model with ``inputs`` memoizable inputs and the raw input ``price``."""
    query, title = hr.text("query"), hr.text("title")
    made = Model(name, client=client, priority=priority, label="clicked", table="log")
    expressions = [
        query.unigrams().hash_buckets(buckets),
        (query.unigrams() & title.unigrams()).hash_buckets(buckets),
        title.unigrams().hash_buckets(buckets),
        hr.float32("price").fill_null(0.0).log1p(),
        title.length(),
    ]
    for position, expression in enumerate(expressions[:inputs]):
        made.input(f"input_{position}", expression)
    made.input("price", hr.float32("price"))
    return made


def compute(warehouse: Warehouse, task: LeasedTask) -> MemoWritten:
    """Do what a worker does for one task: read, run, write. Does not commit."""
    root = component_from_document(task.component)
    raw = read_raw(warehouse.storage, task.fragment, [column.name for column in raw_columns(root)])
    result = compile_plan({"it": root}).run(raw)
    assert not result.failures, result.failures
    path = memo_path(task.table, task.partition, task.fragment.fragment_id, [task.memo_key], task.lease)
    file = write_memo_file(warehouse.storage, path, {task.fingerprint: result.columns["it"]})
    written = file.columns[task.fingerprint]
    entered = NewFile(file.path, file.checksum, written.rows, file.size_bytes)
    return MemoWritten(entered, written.rows, written.size_bytes, 0.5)


def pretended(path: str = "memos/x", size_bytes: int = 1) -> MemoWritten:
    """A memo that nobody wrote, for tests that only move states."""
    return MemoWritten(NewFile(path, "0" * 64, 3, size_bytes), 3, size_bytes, 0.1)


def pretended_by(task: LeasedTask) -> MemoWritten:
    """A memo that nobody wrote, in a file with the name of the task's lease, by which a repeated commit is recognized."""
    return pretended(f"memos/{task.table}/{task.partition}/fragment-{task.lease}-keys.memo")


def read_of(solution: ReadSolution, fragment: SolutionFragment, name: str) -> tuple[str, str]:
    """How a solution obtains an input over a fragment, and the file that it loads, empty where it loads none."""
    plan = solution.plans[fragment.plan]
    item, action = next(pair for pair in zip(solution.inputs, plan.actions, strict=True) if pair[0].name == name)
    return action, fragment.files[plan.loads[item.fingerprint]].path if action == "load" else ""


def work(warehouse: Warehouse, worker: str = "worker", most: int = 10**6) -> int:
    """Lease, compute and commit until nothing is left; returns the memos committed."""
    done = 0
    while done < most and (tasks := lease_tasks(warehouse, worker, limit=min(50, most - done))):
        done += sum(commit_memos(warehouse, [(task, compute(warehouse, task))])[0] for task in tasks)
    return done


def evict_component(warehouse: Warehouse, fingerprint: str, why: str = "space") -> EvictionPlan:
    """Evict every memo of one component."""
    return run_eviction(warehouse, EvictionRequest(query=ComponentQuery(fingerprint=fingerprint)), why=why)


@contextmanager
def computed_warehouse(folder: Path, submitted: Model | None = None, **settings: Any) -> Iterator[Warehouse]:
    """A warehouse in ``folder / "home"`` with a log and a model, :func:`model` unless another is given, whose memos are ready."""
    with Warehouse.open(WarehouseConfig(str(folder / "home"), rates=FREE_READS, **settings)) as opened:
        register_table(opened, "log", str(write_log(folder / "log")))
        submit_model(opened, model() if submitted is None else submitted)
        while work_together(opened):
            pass
        yield opened


def work_together(warehouse: Warehouse, worker: str = "worker", most: int = 10**6) -> int:
    """Lease once, and commit as the worker does: one file for all components of a fragment. Returns the memos committed."""
    tasks = lease_tasks(warehouse, worker, limit=most)
    done = 0
    for path in sorted({task.fragment.path for task in tasks}):
        mine = [task for task in tasks if task.fragment.path == path]
        first = mine[0]
        roots = {task.fingerprint: component_from_document(task.component) for task in mine}
        columns = {column.name for root in roots.values() for column in raw_columns(root)}
        found = compile_plan(roots).run(read_raw(warehouse.storage, first.fragment, sorted(columns)))
        keys = [task.memo_key for task in mine]
        place = memo_path(first.table, first.partition, first.fragment.fragment_id, keys, first.lease)
        file = write_memo_file(warehouse.storage, place, found.columns)
        entered = NewFile(file.path, file.checksum, first.fragment.rows, file.size_bytes)
        written = [MemoWritten(entered, entered.rows, file.columns[task.fingerprint].size_bytes, 0.1) for task in mine]
        done += sum(commit_memos(warehouse, zip(mine, written, strict=True)))
    return done


def states(warehouse: Warehouse, keys: Collection[str] | None = None) -> list[tuple[str, str, int, bool]]:
    """For every memo, or those of ``keys``, its task's state (DONE without a task), its own, the losses, and whether it is leased."""
    tasks, memos = schema.tasks.c, schema.memos.c
    query = select(
        memos.memo_key,
        func.coalesce(tasks.state, "DONE"),
        memos.state,
        func.coalesce(tasks.losses, 0),
        tasks.lease_until,
    )
    query = query.outerjoin(schema.tasks, tasks.id == memos.task).order_by(memos.fragment, memos.memo_key)
    with warehouse.catalog.read() as connection:
        rows = connection.execute(query).all()
    return [
        (task, memo, losses, until is not None)
        for key, task, memo, losses, until in rows
        if keys is None or key in keys
    ]


def task_of(warehouse: Warehouse, task: LeasedTask) -> int | None:
    """The number of the task that has the memo now."""
    memos = schema.memos.c
    with warehouse.catalog.read() as connection:
        found = connection.execute(select(memos.task).where(memos.memo_key == task.memo_key)).scalar_one()
    return None if found is None else int(found)


def start(code: str, *args: object) -> subprocess.Popen[str]:
    """Run Python code in a process of its own, with this repository importable."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
