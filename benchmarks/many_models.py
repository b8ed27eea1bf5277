"""Savings by sharing memos: 22 models with 95 % common inputs, shared and each transforming its own inputs.

    python -m benchmarks.many_models [--logs sample globo] [--rows 300000] [--hours 24] [--partition-by hour] [--globo FOLDER]
        [--small]

Figures are CPU seconds, user and system, of whole processes and their children. *For itself* is the trainers' reader over
raw columns: one compiled plan per model, no memos. *Shared* is all submissions, one worker process
(`headrace work --until-idle`: catalog, queue, Beam, kernels, memo files), and then the same reader with memos. Both sides
read the same values, which are compared for one fragment bit for bit. No model is trained.

The second figure is the part of the saving that is reached of computing everything once and loading alone, the third the cost
of sharing beyond computing everything once, relative to the sum of all models by themselves.
Kernels are compiled before the measurement; plans are compiled during it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq

from benchmarks.support.fleets import MODELS, SHARED, Fleet, news_fleet, search_fleet
from benchmarks.support.harness import machine
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from pipelines.formats import FormatOptions, prepare
from pipelines.log_schemas.schema import PartitionBy
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from transforms.expressions.model import Model
from transforms.graphs.graph import Node
from warehouse import (
    ReadSolution,
    Warehouse,
    WarehouseConfig,
    read_fragment,
    read_raw,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.planning.rates import MEASURED_RATES, Rates
from warehouse.tables.manifests import current_fragments

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET_OF_IDEAL = 0.85
GLOBO = REPOSITORY.parent / "shared" / "data" / "globo"
#: Rates with free reads: every input is loaded, even if computing it is cheaper.
LOAD_ALL = Rates(memo_read_secs=0.0, memo_column_secs=0.0)


@dataclass(frozen=True, slots=True)
class Targets:
    """The least ratio, and the most that sharing may cost beyond one computation, of all models' own."""

    ratio: float
    overhead: float


SEARCH_LOG = Targets(7.5, 0.04)
NEWS_LOG = {"hour": Targets(4.0, 0.08), "day": Targets(5.0, 0.04)}


@dataclass(frozen=True)
class Reading:
    """The cost of reading for all models, and the counts of loaded and computed (input, fragment) pairs."""

    secs: float
    loaded: int
    computed: int


@dataclass(frozen=True)
class Figures:
    """CPU seconds over all models and all rows. ``submits`` to ``reading`` are the shared side.

    ``computation``: reading the raw columns and running one plan of all components; ``start``: a worker with an empty
    queue; both are parts of ``worker``.
    """

    models: int
    inputs: int
    components: int
    rows: int
    fragments: int
    memos: int
    own: tuple[float, ...]
    own_reading: float
    submits: float
    worker: float
    start: float
    computation: float
    reading: Reading
    loading: Reading

    @property
    def own_sum(self) -> float:
        return sum(self.own)

    def ratio(self, reading: Reading) -> float:
        """The CPU seconds of models by themselves, divided by those of the shared side."""
        return self.own_sum / (self.submits + self.worker + reading.secs)

    @property
    def of_ideal(self) -> float:
        """The ratio as a part of the one if sharing were one computation and loading alone."""
        return (self.computation + self.reading.secs) / (self.submits + self.worker + self.reading.secs)

    @property
    def overhead(self) -> float:
        """The cost of sharing beyond one computation, as a share of the cost of models by themselves."""
        return (self.submits + self.worker - self.computation) / self.own_sum


def cpu_secs(work: Callable[[], object]) -> float:
    """CPU seconds of this process while ``work`` runs, all threads, user and system."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def worker_secs(home: Path) -> float:
    """CPU seconds of a worker process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "headrace", "work", "--until-idle", "--home", str(home)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(fleet: Fleet, log: Path, folder: Path, count: int = MODELS, share: float = SHARED) -> Figures:
    """Measure both sides over a log of Parquet files."""
    models = fleet.models(count, share)
    keep_freed_memory()
    with Warehouse.open(WarehouseConfig(str(folder / "alone"))) as alone:
        register_table(alone, fleet.table, str(log))
        for model in models:
            submit_model(alone, model, policy="none")
        solutions = [read_solution(alone, model.name) for model in models]
        _warm_up(fleet.table, log, folder, models)
        own = tuple(cpu_secs(partial(_read, alone, solution)) for solution in solutions)
        raw = [cpu_secs(partial(_read_raw, alone, fleet.table, [model])) for model in models]
        computation = cpu_secs(lambda: _compute_once(alone, fleet.table, models))
    home = folder / "shared"
    with Warehouse.open(WarehouseConfig(str(home))) as shared:
        register_table(shared, fleet.table, str(log))
    start = worker_secs(home)
    with Warehouse.open(WarehouseConfig(str(home))) as shared:
        submits = cpu_secs(lambda: [submit_model(shared, model) for model in models])
    worker = worker_secs(home)
    reading, shared_solutions = _reading(home, models, MEASURED_RATES)
    loading, _ = _reading(home, models, LOAD_ALL)
    _check_equal(folder, solutions[-1], shared_solutions[-1])
    components = {item.fingerprint for model in models for item in model.inputs.values()}
    rows, fragments = solutions[0].rows, len(list(solutions[0].fragments))
    return Figures(
        models=len(models), inputs=len(models[0].inputs), components=len(components), rows=rows, fragments=fragments,
        memos=_memos(home), own=own, own_reading=sum(raw), submits=submits, worker=worker, start=start,
        computation=computation, reading=reading, loading=loading)  # fmt: skip


def _warm_up(table: str, log: Path, folder: Path, models: Sequence[Model]) -> None:
    """Compile missing kernels of components, memo files and text columns, for this process and the worker: both sides on a few rows."""
    first = min(log.rglob("*.parquet"))
    few = folder / "few" / first.relative_to(log)
    few.parent.mkdir(parents=True)
    pq.write_table(pq.ParquetFile(first).read().slice(0, 256), few)
    home = folder / "warm-up"
    for policy in ("none", "all"):
        with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
            register_table(warehouse, table, str(folder / "few"))
            for model in models:
                submit_model(warehouse, model, policy=policy)
        worker_secs(home)
        _reading(home, models, LOAD_ALL)


def _roots(models: Sequence[Model]) -> dict[str, Node]:
    return {item.fingerprint: item.component for model in models for item in model.inputs.values()}


def _read(warehouse: Warehouse, solution: ReadSolution) -> None:
    for fragment in solution.fragments:
        read_fragment(warehouse.storage, solution, fragment)


def _read_raw(warehouse: Warehouse, table: str, models: Sequence[Model]) -> None:
    """Read the raw columns of all models with digests, a part of the cost of models by themselves."""
    names = [column.name for column in compile_plan(_roots(models)).columns]
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, table)
    for one in placed:
        read_raw(warehouse.storage, one.fragment, names, coded=names)


def _compute_once(warehouse: Warehouse, table: str, models: Sequence[Model]) -> None:
    plan = compile_plan(_roots(models))
    names = [column.name for column in plan.columns]
    with warehouse.catalog.read() as connection:
        placed = current_fragments(connection, table)
    for one in placed:
        result = plan.run(read_raw(warehouse.storage, one.fragment, names, coded=names))
        assert not result.failures, result.failures


def _reading(home: Path, models: Sequence[Model], rates: Rates) -> tuple[Reading, list[ReadSolution]]:
    """The cost of solving and reading for every model, and the read solutions."""
    solutions: list[ReadSolution] = []
    with Warehouse.open(WarehouseConfig(str(home), rates=rates)) as warehouse:
        secs = cpu_secs(lambda: solutions.extend(read_solution(warehouse, model.name) for model in models))
        secs += sum(cpu_secs(partial(_read, warehouse, solution)) for solution in solutions)
    loaded, computed = (sum(one.count(action) for one in solutions) for action in ("load", "compute"))
    return Reading(secs, loaded, computed), solutions


def _check_equal(folder: Path, alone: ReadSolution, shared: ReadSolution) -> None:
    """Exit unless both sides read the same values."""
    from warehouse.storage.storage import Storage

    tables = [read_fragment(Storage(str(folder / home)), solution, next(iter(solution.fragments)))
              for home, solution in (("alone", alone), ("shared", shared))]  # fmt: skip
    if not tables[0].equals(tables[1]):
        raise SystemExit("the two sides read different values")


def _memos(home: Path) -> int:
    from sqlalchemy import func, select

    from warehouse.catalog import schema

    with Warehouse.open(WarehouseConfig(str(home))) as warehouse, warehouse.catalog.read() as connection:
        ready = select(func.count()).select_from(schema.memos).where(schema.memos.c.state == "READY")
        return int(connection.execute(ready).scalar_one())


def show(name: str, it: Figures, targets: Targets) -> bool:
    """Print all figures of a log; return whether its targets are met."""

    def line(what: str, secs: float, note: str = "") -> None:
        print(
            f"  {what:<52} {secs:9.2f} s {secs / it.models:8.3f} s {secs / it.models / it.rows * 1e9:9.0f} ns  {note}".rstrip()
        )

    print(f"\n{name}: {it.models} models of {it.inputs} inputs, {it.components} components in all; "
          f"{it.rows:,} rows in {it.fragments} fragments; {it.memos:,} memos")  # fmt: skip
    print(f"  {'CPU':<52} {'all models':>11} {'a model':>10} {'a model, row':>12}")
    line("each for itself", it.own_sum)
    line("    of it reading raw columns, digests checked", it.own_reading)
    line("submitting", it.submits)
    line("the worker", it.worker)
    line("    of it computing all components once", it.computation)
    line("    of it starting, until it asks the queue", it.start)
    met = True
    for what, reading in (("as it is cheapest", it.reading), ("everything loaded", it.loading)):
        pairs = f"{reading.loaded:,} loaded, {reading.computed:,} computed"
        line(f"reading, {what}", reading.secs, pairs)
        ratio = it.ratio(reading)
        line(f"shared, {what}", it.submits + it.worker + reading.secs, f"{ratio:.1f}x less than each for itself")
    met = it.ratio(it.reading) >= targets.ratio and it.overhead <= targets.overhead and it.of_ideal >= TARGET_OF_IDEAL
    print(f"  for itself / shared {it.ratio(it.reading):.2f}, target at least {targets.ratio:g}; "
          f"{it.of_ideal:.0%} of what one computation and loading alone would give, target at least {TARGET_OF_IDEAL:.0%};")  # fmt: skip
    print(f"  sharing beyond one computation {it.overhead:.1%} of all models' own, target at most {targets.overhead:.0%}: "
          f"{'ok' if met else 'missed'}")  # fmt: skip
    return met


def sample(folder: Path, rows: int) -> Path:
    """About ``rows`` rows of the sample log in a day of hours."""
    write_sample_log(folder / "log", SampleLogConfig(hours=24, mean_rows_per_hour=rows // 24), late=False)
    return folder / "log"


def globo(folder: Path, source: Path, hours: int, partition_by: PartitionBy = "hour") -> Path:
    """The first hours of Globo's news log."""
    prepare("globo", str(source), str(folder / "log"), FormatOptions(limit=hours, partition_by=partition_by))
    return folder / "log"


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", nargs="+", choices=("sample", "globo"), default=["sample", "globo"])
    parser.add_argument("--rows", type=int, default=300_000, help="of the sample log, about")
    parser.add_argument("--hours", type=int, default=24, help="of Globo's log")
    parser.add_argument("--partition-by", choices=get_args(PartitionBy), default="hour", help="of Globo's log")
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    rows, hours = (2_000, 3) if options.small else (options.rows, options.hours)
    print(machine())
    met = True
    with tempfile.TemporaryDirectory(prefix="headrace-models-") as name:
        for log in options.logs:
            folder = Path(name) / log
            folder.mkdir()
            if log == "sample":
                met &= show("sample log", measure(search_fleet(), sample(folder, rows), folder), SEARCH_LOG)
            elif options.globo.is_dir():
                log_folder = globo(folder, options.globo, hours, options.partition_by)
                found = measure(news_fleet(), log_folder, folder)
                met &= show(f"Globo log by the {options.partition_by}", found, NEWS_LOG[options.partition_by])
            else:
                print(f"\nGlobo log: skipped, it is not at {options.globo}; give --globo FOLDER")
    return 0 if met or options.small else 1


if __name__ == "__main__":
    sys.exit(main())
