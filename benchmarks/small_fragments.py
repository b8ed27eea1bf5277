"""Cost of small fragments: one log by the hour, by the hour with merged fragments, and by the day.

    python -m benchmarks.small_fragments [--hours 72] [--rows-per-hour 4000] [--models 10] [--small]

Figures are CPU seconds, user and system, of whole processes and their children, over all models: submitting, one worker
(`headrace work --until-idle`, without its start), and reading everything with the trainers' reader, as it is cheapest and with
every memo loaded. *Merged first* runs `headrace table compact` before the first submission. *Merged later* runs it on the
computed memos of the log by the hour, and then submits and reads again. All four read the same values, which are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.many_models import LOAD_ALL, cpu_secs, worker_secs
from benchmarks.support.fleets import search_fleet
from benchmarks.support.harness import machine
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from transforms.execution.memory import keep_freed_memory
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution, register_table, submit_model
from warehouse.maintenance.compact_table import CompactedTable, compact_table
from warehouse.planning.rates import MEASURED_RATES, Rates
from warehouse.tables.manifests import current_units


@dataclass(frozen=True)
class Figures:
    """CPU seconds of all models over one layout of the log, and its units of computation."""

    units: int
    merging: float
    submitting: float
    worker: float
    reading: float
    loading: float

    @property
    def total(self) -> float:
        return self.merging + self.submitting + self.worker + self.reading


def by_day(hourly: Path, folder: Path) -> Path:
    """The same log with one file per day, its events in the same order."""
    for day in sorted(hourly.glob("date=*")):
        whole = pa.concat_tables([pq.read_table(file, partitioning=None) for file in sorted(day.rglob("*.parquet"))])
        (folder / day.name).mkdir(parents=True)
        pq.write_table(whole, folder / day.name / "part.parquet", compression="zstd")
    return folder


def submit_all(home: Path, models: Sequence[Model]) -> float:
    """CPU seconds of submitting every model."""
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        return cpu_secs(lambda: [submit_model(warehouse, model) for model in models])


def read_all(home: Path, models: Sequence[Model], rates: Rates) -> float:
    """CPU seconds of solving and reading every model."""

    def read() -> None:
        for model in models:
            solution = read_solution(warehouse, model.name)
            for fragment in solution.fragments:
                read_fragment(warehouse.storage, solution, fragment)

    with Warehouse.open(WarehouseConfig(str(home), rates=rates)) as warehouse:
        return cpu_secs(read)


def values_digest(home: Path, model: Model) -> str:
    """A digest of all values that a model reads."""
    found = hashlib.sha256()
    with Warehouse.open(WarehouseConfig(str(home), rates=LOAD_ALL)) as warehouse:
        solution = read_solution(warehouse, model.name)
        parts = [read_fragment(warehouse.storage, solution, one) for one in solution.fragments]
    whole = pa.concat_tables(parts).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    found.update(sink.getvalue())
    return found.hexdigest()


def measure(home: Path, table: str, log: Path, models: Sequence[Model], *, merged: bool) -> Figures:
    """Submit, compute and read over a new warehouse."""
    merging = 0.0
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, table, str(log))
        if merged:
            merging = cpu_secs(lambda: compact_table(warehouse, table))
        units = _units(warehouse, table)
    start = worker_secs(home)
    submitting = submit_all(home, models)
    worker = worker_secs(home) - start
    return Figures(units, merging, submitting, worker, read_all(home, models, MEASURED_RATES),
                   read_all(home, models, LOAD_ALL))  # fmt: skip


def merge_later(home: Path, table: str, models: Sequence[Model]) -> tuple[Figures, CompactedTable]:
    """Merge the fragments of a warehouse whose memos are computed; submit and read again."""
    done: list[CompactedTable] = []
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        merging = cpu_secs(lambda: done.append(compact_table(warehouse, table)))
        units = _units(warehouse, table)
    return Figures(units, merging, submit_all(home, models), 0.0, read_all(home, models, MEASURED_RATES),
                   read_all(home, models, LOAD_ALL)), done[0]  # fmt: skip


def _units(warehouse: Warehouse, table: str) -> int:
    with warehouse.catalog.read() as connection:
        return len(current_units(connection, table))


def show(layouts: dict[str, Figures]) -> None:
    """Print one column per layout."""
    print(f"  {'CPU seconds':<24}" + "".join(f"{name:>16}" for name in layouts))
    print(f"  {'units of computation':<24}" + "".join(f"{it.units:>16,}" for it in layouts.values()))
    for name, field in (("merging", "merging"), ("submitting", "submitting"), ("the worker, started", "worker"),
                        ("reading, cheapest", "reading"), ("sum", "total"), ("reading, all loaded", "loading")):  # fmt: skip
        print(f"  {name:<24}" + "".join(f"{getattr(it, field):>16.2f}" for it in layouts.values()))


def main() -> int:
    """Measure and print; the exit status is 1 if two layouts read different values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=72)
    parser.add_argument("--rows-per-hour", type=int, default=4_000)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    hours, rows, count = (4, 50, 2) if options.small else (options.hours, options.rows_per_hour, options.models)
    print(machine())
    keep_freed_memory()
    fleet = search_fleet()
    models = fleet.models(count)
    with tempfile.TemporaryDirectory(prefix="headrace-fragments-") as name:
        folder = Path(name)
        write_sample_log(folder / "log", SampleLogConfig(hours=hours, mean_rows_per_hour=rows), late=False)
        by_day(folder / "log", folder / "days")
        measure(folder / "warm", fleet.table, folder / "days", models[:1], merged=False)  # compiles missing kernels
        layouts = {
            "by the hour": measure(folder / "hours", fleet.table, folder / "log", models, merged=False),
            "merged first": measure(folder / "merged", fleet.table, folder / "log", models, merged=True),
            "by the day": measure(folder / "daily", fleet.table, folder / "days", models, merged=False),
        }
        layouts["merged later"], done = merge_later(folder / "hours", fleet.table, models)
        print(f"\nsample log: {count} models of {len(models[0].inputs)} inputs, {hours} hours of about {rows:,} events")
        show(layouts)
        print(f"  merging later joined {done.memos:,} memos into {done.memos_after:,} and queued {done.queued}")
        digests = {values_digest(folder / home, models[-1]) for home in ("hours", "merged", "daily")}
        print(f"  all layouts read the same values: {'ok' if len(digests) == 1 else 'no'}")
    return 0 if len(digests) == 1 and done.queued == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
