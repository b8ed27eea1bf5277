"""Peak memory of a process that reads, computes and writes one fragment, relative to its Arrow bytes.

    python -m benchmarks.peak_memory [--rows N]

The fragment is a file of the search log, the components those of transform_throughput.py. The process handles the fragment
as a worker does, all row groups at once: it reads and verifies it, computes, writes the memo file, and reports its peak. The
memory before (interpreter, libraries, kernels, a first fragment of 1,000 rows) is subtracted. Arrow bytes are those of the
raw columns as plain, uncompressed Arrow arrays.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.support.harness import machine, peak_bytes
from benchmarks.support.search_log import generate
from warehouse.config import WarehouseConfig
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse


def main() -> int:
    """Generate the log, measure in a separate process, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--in-folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_folder:
        print(json.dumps(_peak(options.in_folder)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        for day, rows in (("01", 1_000), ("02", options.rows)):
            partition = Path(name) / "log" / f"date=2026-01-{day}"
            partition.mkdir(parents=True)
            generate(partition / "part.parquet", rows)
        arrow_bytes = pq.read_table(partition / "part.parquet", partitioning=None).nbytes
        with Warehouse.open(WarehouseConfig(home=str(Path(name) / "home"))) as warehouse:
            register_table(warehouse, "log", str(Path(name) / "log"))
        command = [sys.executable, "-m", "benchmarks.peak_memory", "--in-folder", name]
        peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    taken = peak["after_bytes"] - peak["before_bytes"]
    print(machine())
    print(f"{options.rows:,} rows, {arrow_bytes / 1e6:.0f} MB as Arrow: peak {peak['after_bytes'] / 1e6:.0f} MB, "
          f"{peak['before_bytes'] / 1e6:.0f} MB of it before the fragment; for the fragment {taken / 1e6:.0f} MB, "
          f"{taken / arrow_bytes:.1f}x its Arrow bytes")  # fmt: skip
    return 0


def _peak(folder: Path) -> dict[str, int]:
    from benchmarks.transform_throughput import components
    from pipelines.fragments.run import PlanCache, memoize_fragment
    from pipelines.fragments.work import FragmentWork, WantedComponent
    from transforms.execution.memory import keep_freed_memory
    from transforms.graphs.canonical import canonicalize
    from transforms.graphs.graph import component_document
    from warehouse.tables.manifests import table_manifests

    keep_freed_memory()
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"))) as warehouse:
        with warehouse.catalog.read() as connection:
            first, second = table_manifests(connection, "log")
        roots = [canonicalize(root) for root in components().values()]
        wanted = tuple(WantedComponent(root.identity, root.identity, component_document(root)) for root in roots)
        plans = PlanCache()
        (small,), (large,) = first.fragments, second.fragments
        memoize_fragment(warehouse.storage, FragmentWork(small, wanted, "memos/small.arrow"), plans)
        before = peak_bytes()
        memoize_fragment(warehouse.storage, FragmentWork(large, wanted, "memos/large.arrow"), plans)
        after = peak_bytes()
    return {"before_bytes": before, "after_bytes": after}


if __name__ == "__main__":
    sys.exit(main())
