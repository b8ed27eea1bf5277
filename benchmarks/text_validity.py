"""Cost of checking the text, offsets and codes of input columns, relative to all work on a fragment.

    python -m benchmarks.text_validity [--logs sample globo movielens] [--rows 500000] [--hours 24] [--data FOLDER] [--small]

Figures are CPU seconds of one process and one thread: reading a fragment's raw columns, checking their digests, running the
plan of all components of the log's example models, and writing the memo file, as a worker's child does; and within the same
run the seconds of the check (:func:`transforms.kernels.text_validity.check_array`). The check is also measured over the raw
columns as plain text, without dictionaries.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.harness import machine
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from pipelines.formats import FormatOptions, prepare
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import FragmentWork, WantedComponent
from transforms.execution.memory import keep_freed_memory
from transforms.expressions.model import Model
from transforms.graphs.graph import component_document
from transforms.kernels import text_validity
from warehouse import Warehouse, WarehouseConfig, read_raw, register_table
from warehouse.files.memo_file import memo_path
from warehouse.tables.manifests import current_fragments
from warehouse.tables.table import Fragment

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY.parent / "shared" / "data"
EXAMPLES = {"sample": "search_ads", "globo": "globo", "movielens": "movielens"}
SOURCES = {"globo": "globo", "movielens": "ml1m"}
TARGET = 0.03


@dataclass
class TimedCheck:
    """The check, with the CPU seconds spent in it."""

    check: Callable[[Any], None]
    secs: float = 0.0

    def __call__(self, array: Any) -> None:
        begun = time.process_time()
        self.check(array)
        self.secs += time.process_time() - begun


def log_of(name: str, folder: Path, rows: int, hours: int, data: Path) -> Path:
    """The log as Parquet: the sample by the hour, the others by the day."""
    log = folder / "log"
    if name == "sample":
        write_sample_log(log, SampleLogConfig(hours=24, mean_rows_per_hour=rows // 24), late=False)
    else:
        limit = hours if name == "globo" else 100 * hours
        prepare(name, str(data / SOURCES[name]), str(log), FormatOptions(limit=limit, partition_by="day"))
    return log


def components_of(name: str) -> dict[str, Any]:
    """Every component of the log's example models, by fingerprint."""
    found = runpy.run_path(str(REPOSITORY / "examples" / f"{EXAMPLES[name]}.py"))
    models = [value for value in found.values() if isinstance(value, Model)]
    return {item.fingerprint: item.component for model in models for item in model.inputs.values()}


def work_on(fragment: Fragment, components: dict[str, Any]) -> FragmentWork:
    """All components over one fragment."""
    wanted = tuple(WantedComponent(key, key, component_document(root)) for key, root in components.items())
    return FragmentWork(fragment, wanted, memo_path("log", "part", fragment.fragment_id, components, "1x1"))


def measure(name: str, log: Path, folder: Path) -> float:
    """Print the figures of one log; return the check's share of a worker's time."""
    components = components_of(name)
    with Warehouse.open(WarehouseConfig(str(folder / "home"), read_threads=1)) as warehouse:
        register_table(warehouse, "log", str(log))
        with warehouse.catalog.read() as connection:
            works = [work_on(placed.fragment, components) for placed in current_fragments(connection, "log")]
        plans = PlanCache()
        memoize_fragment(warehouse.storage, works[0], plans)
        check = text_validity.check_array = TimedCheck(text_validity.check_array)
        begun = time.process_time()
        for work in works:
            failed = [one.failure for one in memoize_fragment(warehouse.storage, work, plans).outcomes if one.failure]
            assert not failed, failed
        whole_secs, check_secs = time.process_time() - begun, check.secs
        text_validity.check_array = check.check
        names = sorted({column.name for column in plans.plan(works[0].components).columns})
        plain_secs, size_bytes = 0.0, 0
        for work in works:
            raw = read_raw(warehouse.storage, work.fragment, names)
            begun = time.process_time()
            for column in raw.columns:
                text_validity.check_array(column)
            plain_secs += time.process_time() - begun
            size_bytes += raw.nbytes
    rows = sum(work.fragment.rows for work in works)
    share = check_secs / whole_secs
    print(f"{name}: {rows:,} rows in {len(works)} fragments, {len(names)} columns, {len(components)} components: "
          f"{whole_secs / rows * 1e9:.0f} ns per row, of it the check {check_secs / rows * 1e9:.1f} ns, {share:.2%}, "
          f"target at most {TARGET:.0%}: {'ok' if share <= TARGET else 'missed'}; "
          f"over plain text {plain_secs / rows * 1e9:.1f} ns per row, {size_bytes / plain_secs / 1e9:.1f} GB/s")  # fmt: skip
    return share


def main() -> int:
    """Measure; the exit status is 1 if the target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", nargs="+", choices=tuple(EXAMPLES), default=list(EXAMPLES))
    parser.add_argument("--rows", type=int, default=500_000, help="of the sample log, about")
    parser.add_argument(
        "--hours", type=int, default=24, help="of Globo's log; a hundred times as many users of MovieLens"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of globo/ and ml1m/")
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    rows, hours = (2_400, 2) if options.small else (options.rows, options.hours)
    print(machine())
    keep_freed_memory()
    met = True
    for name in options.logs:
        if name in SOURCES and not (options.data / SOURCES[name]).is_dir():
            print(f"{name}: skipped, it is not at {options.data / SOURCES[name]}; give --data FOLDER")
            continue
        with tempfile.TemporaryDirectory(prefix="headrace-check-") as made:
            folder = Path(made)
            met &= measure(name, log_of(name, folder, rows, hours, options.data), folder) <= TARGET
    return 0 if met or options.small else 1


if __name__ == "__main__":
    sys.exit(main())
