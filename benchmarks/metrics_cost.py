"""What metrics cost: a training and a worker with metrics that are scraped, against the same without records, in one run.

    python -m benchmarks.metrics_cost [--rounds 3] [--scrape-secs 5] [--rows 30000] [--quick]

Both sides do the same work alternately. "with" records into the histograms of production, serves them, and is scraped every ``--scrape-secs`` (Prometheus
asks every 15 by default) by a process of its own; "without" has histograms that record nothing, and no endpoint. The ratio of processor seconds, the best of the rounds, has the
noise of this machine, which is larger than the target. So the share is also counted: records by what one takes, and scrapes by what one takes (both
measured in the same run, of the same metrics), divided by the processor seconds of the side. Those of the worker are without the processes that compute for it, so its share of all of them is smaller.

Target: at most 1 % of a training step, and 0.5 % of a worker's time, by the counted share.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.support.harness import machine
from headrace.metrics.address import MetricsAddress
from headrace.metrics.endpoint import Endpoint
from pipelines.worker.report import WorkerReport
from pipelines.worker.worker_metrics import worker_families
from trainer.run.host_metrics import HostMetrics
from transforms.metrics.families import Distribution, Family
from transforms.metrics.instruments import Histogram
from transforms.metrics.registry import Registry, Source
from transforms.tracing.spans import span

TRAINING_TARGET, WORKER_TARGET = 0.01, 0.005
_RECORDS = 200_000
_NUMBERS = count()
_SCRAPER = """
import sys, time, urllib.request
while True:
    time.sleep(float(sys.argv[2]))
    urllib.request.urlopen(sys.argv[1], timeout=60).read()
"""


class _Nothing(Histogram):
    """A histogram that records nothing, and takes no time of a clock."""

    __slots__ = ()

    def observe(self, value: float) -> None:
        pass

    def timed(self) -> Any:
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a side.

    Attributes:
        cpu_secs: of this process.
        secs: wall-clock.
        records: observations of histograms.
        units: steps, or committed memos.
    """

    cpu_secs: float
    secs: float
    records: int
    units: int


def records_of(families: tuple[Family, ...]) -> int:
    """The observations of all histograms."""
    values = [sample.value for family in families for sample in family.samples]
    return sum(sum(one.counts) for one in values if isinstance(one, Distribution))


@contextmanager
def scraped(source: Source, every_secs: float) -> Iterator[None]:
    """Serve a source to a process that asks all the time."""
    registry = Registry()
    registry.add("source", source)
    with Endpoint(MetricsAddress("127.0.0.1", 0)) as endpoint:
        endpoint.serve(registry)
        asking = subprocess.Popen(
            [sys.executable, "-c", _SCRAPER, f"http://{endpoint.address}/metrics", str(every_secs)]
        )
        try:
            yield
        finally:
            asking.kill()
            asking.wait()


def timed(work: Callable[[], int], families: Source) -> Side:
    """The times of work that returns its number of units."""
    began, cpu = time.perf_counter(), time.process_time()
    units = work()
    return Side(time.process_time() - cpu, time.perf_counter() - began, records_of(tuple(families())), units)


def train_side(
    train_into: Callable[[Path, HostMetrics], int], folder: Path, *, has_metrics: bool, every_secs: float
) -> Side:
    """A training in one process."""
    metrics = HostMetrics()
    if not has_metrics:
        metrics.steps, metrics.waits, metrics.commits = _Nothing(), _Nothing(), _Nothing()
        return timed(partial(train_into, folder, metrics), metrics.families)
    with scraped(metrics.families, every_secs):
        return timed(partial(train_into, folder, metrics), metrics.families)


def work_side(work_with: Callable[[WorkerReport], int], *, has_metrics: bool, every_secs: float) -> Side:
    """A worker that computes all memos of a model."""
    report = WorkerReport()
    families = partial(worker_families, report)
    if not has_metrics:
        report = WorkerReport(leases=_Nothing(), commits=_Nothing(), job_times=_Nothing())
        return timed(partial(work_with, report), partial(worker_families, report))
    with scraped(families, every_secs):
        return timed(partial(work_with, report), families)


def record_secs() -> float:
    """The processor seconds of one timed record and of a span that is sent to no collector, the best of some rounds."""
    found, best = Histogram(), float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(_RECORDS):
            with found.timed(), span("step"):
                pass
        best = min(best, (time.process_time() - began) / _RECORDS)
    return best


def scrape_cpu_secs(source: Source) -> float:
    """The processor seconds of this process for one scrape over HTTP, with the client's part in another process."""
    times = 50
    script = f"import sys, urllib.request\nfor _ in range({times}): urllib.request.urlopen(sys.argv[1]).read()"
    registry = Registry()
    registry.add("source", source)
    with Endpoint(MetricsAddress("127.0.0.1", 0)) as endpoint:
        endpoint.serve(registry)
        began = time.process_time()
        subprocess.run([sys.executable, "-c", script, f"http://{endpoint.address}/metrics"], check=True)
        return (time.process_time() - began) / times


def compare(
    name: str, unit: str, run: Callable[[bool], Side], families: Source, given: argparse.Namespace, target: float
) -> bool:
    """Print both sides and the counted share; whether it is within the target."""
    sides: dict[bool, list[Side]] = {True: [], False: []}
    for number in range(given.rounds + 1):
        for has_metrics in (number % 2 == 0, number % 2 == 1):
            side = run(has_metrics)
            if number:  # the first round imports, and compiles
                sides[has_metrics].append(side)
    best = {key: min(one.cpu_secs for one in found) for key, found in sides.items()}
    record, scrape = record_secs(), scrape_cpu_secs(families)
    shares = [(one.records * record + one.secs / given.scrape_secs * scrape) / one.cpu_secs for one in sides[True]]
    share, first = statistics.median(shares), sides[True][0]
    print(f"{name}: {first.units:,} {unit}, {first.records:,} records, {first.secs / given.scrape_secs:.0f} scrapes")
    print(f"  with metrics     {best[True]:8.3f} s of processor time, the best of {given.rounds} rounds")
    print(f"  without          {best[False]:8.3f} s, {best[True] / best[False]:.3f}x of it with")
    print(
        f"  a record with a span that is not sent {record * 1e9:,.0f} ns, a scrape {scrape * 1e3:.2f} ms: {share:.3%} of the processor time (target {target:.1%})"
    )
    return share <= target


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--quick``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scrape-secs", type=float, default=5.0)
    parser.add_argument("--rows", type=int, default=30_000, help="of each of three partitions")
    parser.add_argument("--quick", action="store_true", help="few rows, to test the script")
    given = parser.parse_args()
    if given.quick:
        given = argparse.Namespace(**{**vars(given), "rounds": 1, "rows": 1000})
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-metrics-") as name:
        is_cheap = [_compare_workers(Path(name), given), _compare_trainings(Path(name), given)]
    return 0 if all(is_cheap) or given.quick else 1


def _compare_workers(folder: Path, given: argparse.Namespace) -> bool:
    """The worker alone, without the processes that compute for it; it goes first, before threads of TensorFlow."""
    from pipelines.isolation.processes import child_processes

    child_processes().prepare_at_start()
    from pipelines.worker.worker import WorkerConfig, run_worker
    from tests.trainer.job.launch.jobs import make_warehouse
    from tests.warehouse.scenes import model
    from warehouse import submit_model

    with make_warehouse(folder, hours=3, rows=given.rows) as warehouse:

        def work_with(report: WorkerReport) -> int:
            number = next(_NUMBERS)
            submit_model(warehouse, model(f"other_{number}", inputs=5, buckets=1000 + number))
            return run_worker(warehouse, WorkerConfig("w", runner_workers=1), until_idle=True, report=report).memos

        run = partial(work_side, work_with, every_secs=given.scrape_secs)
        families = partial(worker_families, WorkerReport())
        return compare("worker", "memos", lambda has: run(has_metrics=has), families, given, WORKER_TARGET)


def _compare_trainings(folder: Path, given: argparse.Namespace) -> bool:
    from headrace.terminal.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    from tests.trainer.synthetic import Synthetic, config
    from trainer.run.loop import train

    data = Synthetic(3, given.rows)

    def train_into(folder: Path, metrics: HostMetrics) -> int:
        options = config(folder / f"run-{next(_NUMBERS)}", batch_rows=256)
        report = train(data.solution, data.read, options, metrics=metrics)
        return report.events // 256

    run = partial(train_side, train_into, folder, every_secs=given.scrape_secs)
    families = HostMetrics().families
    return compare(
        "training in one process", "steps", lambda has: run(has_metrics=has), families, given, TRAINING_TARGET
    )


if __name__ == "__main__":
    sys.exit(main())
