"""Overhead of computing fragments in child processes, compared with computing them in this process.

    python -m benchmarks.isolation [--small] [--rounds R]

Both sides do the same work with one thread per core: many small fragments, then a few large ones, four components each.
Memo files are written and compared byte for byte. Then the time from starting Python to the first memo is measured,
including the import of Beam.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import THREADS, Measured, Side, machine, measure
from benchmarks.support.search_log import generate
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import FragmentWork
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import KnownCulprits, memoize_isolated
from pipelines.isolation.processes import child_processes
from pipelines.worker.job_committer import group_by_fragment
from transforms.expressions.expression import text
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, lease_tasks, register_table, submit_model
from warehouse.planning.rates import Rates
from warehouse.storage.storage import Storage

ROOT = Path(__file__).resolve().parent.parent

FIRST_MEMO = """
import sys
sys.path.insert(0, sys.argv[1])
home, work = sys.argv[2], open(sys.argv[3]).read()
if sys.argv[4] == "isolated":
    from pipelines.isolation.processes import child_processes
    child_processes().expect_work()
    import pipelines.memoize.pipeline
    from pipelines.isolation.limits import IsolationLimits
    from pipelines.isolation.memoizing import KnownCulprits, memoize_isolated
    memoize_isolated(work, home, child_processes(), IsolationLimits().on_this_machine(1), KnownCulprits())
else:
    import pipelines.memoize.pipeline
    from pipelines.fragments.run import PlanCache, memoize_fragment
    from pipelines.fragments.work import FragmentWork
    from warehouse.storage.storage import Storage
    memoize_fragment(Storage(home), FragmentWork.from_json(work), PlanCache())
"""


def model() -> Model:
    """Four components that read three columns."""
    made = Model("bench", client="ads", label="clicked", table="log")
    made.input("common", (text("query").unigrams() & text("title").unigrams()).hash_buckets(1_000_000))
    made.input("query", text("query").unigrams().hash_buckets(1_000_000))
    made.input("pairs", text("title").unigrams().ngrams(2).hash_buckets(1_000_000))
    made.input("category", text("category").fill_null("").hash_buckets(100_000))
    return made


def prepared(folder: Path, fragments: int, rows: int, made: Model) -> tuple[str, list[FragmentWork]]:
    """A home with a log of ``fragments`` fragments of ``rows`` rows, and the model's work on it."""
    for number in range(fragments):
        part = (
            folder
            / "log"
            / f"date=2026-{1 + number // 672:02d}-{1 + number // 24 % 28:02d}"
            / f"hour={number % 24:02d}"
        )
        part.mkdir(parents=True)
        generate(folder / "events.parquet", rows, seed=number)
        events = pq.read_table(folder / "events.parquet")
        events = events.append_column("clicked", pa.array([0] * rows, pa.int64()))
        pq.write_table(events, part / "part.parquet", row_group_size=rows)
    free = Rates(memo_read_secs=0.0, memo_column_secs=0.0)
    with Warehouse.open(WarehouseConfig(str(folder / "home"), rates=free)) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        submit_model(warehouse, made)
        works: list[FragmentWork] = []
        while tasks := lease_tasks(warehouse, "bench", limit=10**6):
            works += [work for work, _ in group_by_fragment(tasks).values()]
        return warehouse.storage.home, works


def in_process(home: str, works: Sequence[FragmentWork]) -> Callable[[], object]:
    """A function that does all work in threads of this process."""
    plans, storage = PlanCache(), Storage(home)

    def run() -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda work: memoize_fragment(storage, work, plans), works))

    return run


def isolated(home: str, works: Sequence[FragmentWork]) -> Callable[[], object]:
    """A function that does all work in child processes."""
    limits, texts = IsolationLimits().on_this_machine(THREADS), [work.to_json() for work in works]

    def run() -> None:
        known_culprits = KnownCulprits()
        with ThreadPoolExecutor(THREADS) as threads:
            list(
                threads.map(lambda text: memoize_isolated(text, home, child_processes(), limits, known_culprits), texts)
            )

    return run


def memos(home: str) -> dict[str, bytes]:
    """Every memo file."""
    return {str(path): path.read_bytes() for path in Path(home, "memos").rglob("*.memo")}


def compare(fragments: int, rows: int, rounds: int) -> None:
    """Measure both sides over the same fragments, and print the difference per fragment."""
    with tempfile.TemporaryDirectory() as name:
        home, works = prepared(Path(name), fragments, rows, model())
        alone, beside = in_process(home, works), isolated(home, works)
        alone()
        expected = memos(home)
        beside()
        assert memos(home) == expected, "the memos differ"
        sides = [Side("in process", alone, lambda: None), Side("isolated", beside, lambda: None)]
        plain, apart = measure(sides, rounds, report=lambda _: None)
    show(f"{len(works)} fragments of {rows:,} rows", plain, apart, len(works))


def show(what: str, plain: Measured, apart: Measured, fragments: int) -> None:
    """Print the best round of each side, which other load affects least, and the median ratio within rounds."""
    ratio = statistics.median(theirs / ours for theirs, ours in zip(apart.secs, plain.secs, strict=True))
    ours, theirs = min(plain.secs), min(apart.secs)
    print(f"{what}: in process {ours:.2f} s ({fragments / ours:.1f} fragments/s), isolated {theirs:.2f} s "
          f"({fragments / theirs:.1f} fragments/s): {theirs / ours:.2f}x, {(theirs - ours) / fragments * 1000:+.2f} ms per "
          f"fragment; median of the rounds' ratios {ratio:.2f}x")  # fmt: skip


def first_memo(rounds: int) -> None:
    """Print the seconds of a new process that imports Beam and writes one memo file, for both sides."""
    secs: dict[str, list[float]] = {"in process": [], "isolated": []}
    with tempfile.TemporaryDirectory() as name:
        home, (work,) = prepared(Path(name), 1, 2_000, model())
        Path(name, "work.json").write_text(work.to_json())
        for _ in range(rounds + 1):
            for side, taken in secs.items():
                begun = time.perf_counter()
                command = [sys.executable, "-c", FIRST_MEMO, str(ROOT), home, str(Path(name, "work.json")), side]
                subprocess.run(command, check=True)
                taken.append(time.perf_counter() - begun)
    plain, apart = (min(taken[1:]) for taken in secs.values())
    print(
        f"from starting Python to the first memo: in process {plain:.2f} s, isolated {apart:.2f} s ({apart - plain:+.2f} s)"
    )


def main() -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="little data, to test the script")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    compare(60 if options.small else 500, 2_000, options.rounds)
    compare(2 if options.small else 4, 50_000 if options.small else 500_000, options.rounds)
    first_memo(options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
