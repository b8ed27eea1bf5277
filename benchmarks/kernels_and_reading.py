"""CPU seconds of the kernels compared with reading the same columns from Parquet, in one thread.

    python -m benchmarks.kernels_and_reading [--rows N] [--log ml1m_joined.tsv.gz]

The work is that of transform_throughput.py and movielens_throughput.py (``--log`` or its generated log). Reading and kernels
of each row group are timed separately, best of five passes; kernels include the conversion to Arrow.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.support.harness import machine
from benchmarks.support.ours import RowGroups
from benchmarks.support.read_files import parse_options, write_files
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node

PASSES = 5


def cpu_secs(source: Path, components: Mapping[str, Node]) -> tuple[float, float]:
    """(reading, kernels) over the whole file, each the least of the passes for every row group."""
    groups = RowGroups(source, compile_plan(components))
    reading, kernels = [[] for _ in range(groups.count)], [[] for _ in range(groups.count)]  # type: ignore[var-annotated]
    for _ in range(PASSES):
        for group in range(groups.count):
            begun = time.thread_time()
            raw = groups.read(group)
            read = time.thread_time()
            result = groups.plan.run(raw)
            done = time.thread_time()
            assert not result.failures, result.failures
            reading[group].append(read - begun)
            kernels[group].append(done - read)
    return sum(map(min, reading)), sum(map(min, kernels))


def main() -> int:
    """Measure both workloads."""
    options = parse_options(__doc__)
    keep_freed_memory()
    print(machine())
    print(f"{'work':<10} {'rows':>10} {'reading ns/row':>15} {'kernels ns/row':>15} {'kernels / reading':>18}")
    with tempfile.TemporaryDirectory() as name:
        for work, source, components in write_files(Path(name), options.rows, options.log):
            _report(work, source, components)
    return 0


def _report(work: str, source: Path, components: Mapping[str, Node]) -> None:
    import pyarrow.parquet as pq

    rows = pq.read_metadata(source).num_rows
    reading, kernels = cpu_secs(source, components)
    print(f"{work:<10} {rows:10,} {reading / rows * 1e9:15.0f} {kernels / rows * 1e9:15.0f} {kernels / reading:18.2f}")


if __name__ == "__main__":
    sys.exit(main())
