"""CPU seconds of the kernels compared with reading the same columns from Parquet, in one thread.

    python -m benchmarks.kernels_and_reading [--rows N] [--log ml1m_joined.tsv.gz]

The work is that of transform_throughput.py and movielens_throughput.py (``--log`` or its generated log). Reading and kernels
of each row group are timed separately, best of five passes; kernels include the conversion to Arrow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import benchmarks.movielens_throughput as films
import benchmarks.transform_throughput as ads
from benchmarks.support.harness import machine
from benchmarks.support.ours import RowGroups
from benchmarks.support.search_log import generate
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    print(machine())
    print(f"{'work':<10} {'rows':>10} {'reading ns/row':>15} {'kernels ns/row':>15} {'kernels / reading':>18}")
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "ads.parquet"
        generate(source, options.rows)
        _report("ads", source, ads.components())
        source = Path(name) / "films.parquet"
        films.from_log(options.log, source) if options.log else films.generate(source, options.rows)
        _report("films", source, films.components())
    return 0


def _report(work: str, source: Path, components: Mapping[str, Node]) -> None:
    import pyarrow.parquet as pq

    rows = pq.read_metadata(source).num_rows
    reading, kernels = cpu_secs(source, components)
    print(f"{work:<10} {rows:10,} {reading / rows * 1e9:15.0f} {kernels / rows * 1e9:15.0f} {kernels / reading:18.2f}")


if __name__ == "__main__":
    sys.exit(main())
