"""CPU time of the catalog per memo: submitting, leasing, renewing leases, committing and reading.

    python -m benchmarks.catalog_work [--database sqlite|postgresql|both] [--inputs 300] [--hours 48] [--rounds 3]
                                      [--profile STEP]

A model of ``--inputs`` new components is submitted over ``--hours`` partitions, as are a second one with the same inputs and
one with a tenth of new ones. Then one worker leases everything, renews its leases, and commits pretended memos fragment
by fragment, some fragments at a time as in a job; nothing is computed or written to files. At last a read solution is
made. A figure is microseconds of CPU per memo, of this process and of the database server, the least of ``--rounds``
fresh catalogs. ``--profile`` prints where Python spends the time of one step.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from benchmarks.support.postgres_server import serving
from benchmarks.support.scale_models import COLUMNS, LABEL, model
from warehouse import (
    MemoWritten,
    Warehouse,
    WarehouseConfig,
    commit_memos,
    lease_tasks,
    queue_depths,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.files.column_files import NewFile
from warehouse.queue.backlog import read_backlog
from warehouse.queue.lease import heartbeat
from warehouse.queue.tasks import LeasedTask

TARGET_US = 100.0
#: The steps of a memo's life, whose sum has the target.
LIFE = ("submit", "lease", "renew", "commit", "read")
_COMMIT_TASKS = 1_000
_TICK_SECS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Meter:
    """CPU microseconds per memo by step: the least of all rounds, of this process and of a server."""

    profiled: str | None
    server: int | None = None
    own: dict[str, float] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    profile: cProfile.Profile = field(default_factory=cProfile.Profile)

    def measure(self, step: str, memos: int, action: Callable[[], object]) -> None:
        """Run one step over ``memos`` memos."""
        served, own = self._server_secs(), time.process_time()
        if step == self.profiled:
            self.profile.runcall(action)
        else:
            action()
        own, served = time.process_time() - own, self._server_secs() - served
        for least, secs in ((self.own, own), (self.served, served)):
            least[step] = min(secs / memos * 1e6, least.get(step, float("inf")))

    def _server_secs(self) -> float:
        return 0.0 if self.server is None else sum(_process_secs(pid) for pid in _family(self.server))


def _family(parent: int) -> Iterator[int]:
    yield parent
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[1:2] == [str(parent)]:
            yield int(entry.name)


def _process_secs(pid: int) -> float:
    stat = _stat(pid)
    return sum(map(int, stat[11:13])) * _TICK_SECS if stat else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name, from its state on; empty if it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def write_table(root: Path, hours: int) -> Path:
    """A Parquet table of hourly partitions with a few rows each."""
    types = {"string": pa.string(), "float": pa.float32(), "bool": pa.bool_()}
    for hour in range(hours):
        folder = root / f"date=2025-01-{hour // 24 + 1:02d}" / f"hour={hour % 24:02d}"
        folder.mkdir(parents=True)
        columns = {
            name: pa.array([str(hour) if kind == "string" else hour % 2 == 0 if kind == "bool" else float(hour)] * 4,
                           types[kind])
            for name, kind in COLUMNS
        }  # fmt: skip
        assert LABEL in columns
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    return root


def measure(url: str | None, folder: Path, inputs: int, hours: int, meter: Meter) -> None:
    """One round with a fresh catalog."""
    with Warehouse.open(WarehouseConfig(str(folder / "home"), url or "")) as warehouse:
        register_table(warehouse, "log", str(write_table(folder / "log", hours)))
        few = max(inputs // 10, 1)
        submit_model(warehouse, model("warm", range(inputs * 3, inputs * 3 + 2), "log"))
        first, second = model("first", range(inputs), "log"), model("second", range(inputs), "log", "other")
        third = model("third", range(few, inputs + few), "log", "third")
        memos = inputs * hours
        meter.measure("submit", memos, lambda: submit_model(warehouse, first))
        meter.measure("submit the same inputs", memos, lambda: submit_model(warehouse, second))
        meter.measure("submit, a tenth new", memos, lambda: submit_model(warehouse, third))
        meter.measure("backlog", memos, lambda: read_backlog(warehouse))
        meter.measure("depths", memos, lambda: queue_depths(warehouse))
        tasks: list[LeasedTask] = []
        memos = (inputs + few + 2) * hours
        meter.measure("lease", memos, lambda: tasks.extend(lease_tasks(warehouse, "worker", limit=10**6)))
        assert len(tasks) == memos, f"every task must be leased, got {len(tasks)} of {memos}"
        meter.measure("renew", memos, lambda: heartbeat(warehouse, tasks))
        batches = list(_batches(tasks))
        meter.measure("commit", memos, lambda: [commit_memos(warehouse, batch) for batch in batches])
        meter.measure("read", inputs * hours, lambda: read_solution(warehouse, "first"))
        meter.measure("submit again, unchanged", inputs * hours, lambda: submit_model(warehouse, first))


def _batches(tasks: Sequence[LeasedTask]) -> Iterator[list[tuple[LeasedTask, MemoWritten]]]:
    """The memos of each transaction: whole fragments, as the worker commits them."""
    by_place: defaultdict[str, list[tuple[LeasedTask, MemoWritten]]] = defaultdict(list)
    for place, group in groupby(tasks, lambda task: f"{task.table}/{task.partition}/{task.fragment.fragment_id}"):
        file = NewFile(f"memos/{place[:-48]}-{tasks[0].lease}.memo", "0" * 64, 4, 1_000)
        by_place[place] += [(task, MemoWritten(file, 4, 10, 1e-4)) for task in group]
    batch: list[tuple[LeasedTask, MemoWritten]] = []
    for done in by_place.values():
        batch += done
        if len(batch) >= _COMMIT_TASKS:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def _database(name: str, folder: Path) -> Iterator[tuple[str | None, int | None]]:
    """The URL of an empty catalog, None for a file in the home, and the process id of its server."""
    if name == "sqlite":
        yield None, None
        return
    with serving(folder / "postgresql") as url:
        yield url, int((folder / "postgresql/data/postmaster.pid").read_text().split()[0])


def main() -> int:
    """Measure, and print the microseconds by step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="sqlite")
    parser.add_argument("--inputs", type=int, default=300)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", metavar="STEP")
    options = parser.parse_args()
    print(machine())
    for database in ("sqlite", "postgresql") if options.database == "both" else (options.database,):
        meter = Meter(options.profile)
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="headrace-work-") as folder:
                os.chmod(folder, 0o755)  # the server may run as another user
                with _database(database, Path(folder)) as (url, meter.server):
                    measure(url, Path(folder), options.inputs, options.hours, meter)
        print(f"{database}: {options.inputs} inputs x {options.hours} hours; microseconds of CPU per memo")
        print(f"{'step':<28} {'client':>8} {'server':>8} {'both':>8}")
        for step in meter.own:
            _line(step, meter.own[step], meter.served[step])
        total = sum(meter.own[step] for step in LIFE), sum(meter.served[step] for step in LIFE)
        _line("a memo's life", *total)
        verdict = "ok" if sum(total) < TARGET_US else "missed"
        print(f"target: less than {TARGET_US:.0f} us for {', '.join(LIFE)} together: {verdict}")
        if options.profile:
            pstats.Stats(meter.profile).sort_stats("tottime").print_stats(35)
    return 0


def _line(step: str, own: float, served: float) -> None:
    print(f"{step:<28} {own:8.1f} {served:8.1f} {own + served:8.1f}")


if __name__ == "__main__":
    sys.exit(main())
