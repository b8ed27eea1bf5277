"""Measure the constants of the cost model: CPU seconds per stored byte for reading and writing, and per column.

    python -m benchmarks.cost_model [--rows 300000]

A generated search log is registered, and the components of transform_throughput.py are computed over it and written to one
memo file, as a worker does. Reading is that of a read solution, with checksums; bytes are those on disk. Each figure is the
least CPU time of the passes. The fixed part is separated by a second measurement with 1 % of the rows.
`warehouse/planning/rates.py` quotes the figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from benchmarks.support.search_log import generate
from benchmarks.transform_throughput import components
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from warehouse import Warehouse, WarehouseConfig, read_raw, register_table, write_memo_file
from warehouse.files.memo_file import read_memo_file
from warehouse.tables.manifests import current_fragments

_PASSES = 25


def cpu_secs(work: Callable[[], object]) -> float:
    """The least CPU seconds of this process over the passes."""
    taken = []
    for _ in range(_PASSES):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def measured(folder: Path, rows: int) -> dict[str, tuple[float, int, int]]:
    """CPU seconds, bytes on disk and columns, by kind of work."""
    (folder / "log" / "date=2026-01-01").mkdir(parents=True)
    source = folder / "log" / "date=2026-01-01" / "part.parquet"
    generate(source, rows)
    with Warehouse.open(WarehouseConfig(str(folder / "home"), fragment_rows=10 * rows)) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        with warehouse.catalog.read() as connection:
            (placed,) = current_fragments(connection, "log")
        plan = compile_plan(components())
        names = sorted(column.name for column in plan.columns)
        result = plan.run(read_raw(warehouse.storage, placed.fragment, names, coded=names))
        assert not result.failures, result.failures
        file = write_memo_file(warehouse.storage, "memos/one.memo", result.columns)
        size_bytes = file.size_bytes
        metadata = pq.read_metadata(source)
        raw_bytes = sum(
            metadata.row_group(group).column(column).total_compressed_size
            for group in range(metadata.num_row_groups)
            for column in range(metadata.num_columns)
            if metadata.row_group(group).column(column).path_in_schema.split(".")[0] in names
        )

        def write() -> None:
            write_memo_file(warehouse.storage, "memos/again.memo", result.columns)

        def read() -> None:
            read_memo_file(warehouse.storage, file.path, list(result.columns), file.checksum)

        return {
            "reading raw columns": (
                cpu_secs(lambda: read_raw(warehouse.storage, placed.fragment, names, coded=names)), raw_bytes, len(names)
            ),
            "reading memos": (cpu_secs(read), size_bytes, len(result.columns)),
            "writing memos": (cpu_secs(write), size_bytes, len(result.columns)),
        }  # fmt: skip


def main() -> None:
    """Measure with all rows and with few, and print the seconds per byte and per column."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=300_000)
    options = parser.parse_args()
    print(machine())
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        large, small = (measured(Path(name) / str(rows), rows) for rows in (options.rows, options.rows // 100))
    print(f"{'work':20} {'bytes':>12} {'columns':>8} {'secs per byte':>13} {'secs per column':>15} {'fixed':>6}")
    for work, (secs, size_bytes, columns) in large.items():
        few_secs, few_bytes, _ = small[work]
        a_byte = (secs - few_secs) / (size_bytes - few_bytes)
        a_column = max(few_secs - a_byte * few_bytes, 0.0) / columns
        fixed = a_column * columns / secs
        print(f"{work:20} {size_bytes:12,} {columns:8} {a_byte:13.2e} {a_column:15.2e} {fixed:6.1%}")


if __name__ == "__main__":
    main()
