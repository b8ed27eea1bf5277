"""Time from starting Python to the first transform, with compiled kernels and without.

    python -m benchmarks.cold_start [--rounds R]

Seconds from starting Python to the end of the first run of the search log's components (transform_throughput.py) over
1,000 rows, including imports. Kernels are cached in a separate folder, which is empty for the first process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.harness import machine

ROOT = Path(__file__).resolve().parent.parent

FIRST_TRANSFORM = """
import sys
sys.path.insert(0, sys.argv[1])
import pyarrow.parquet as pq
from transforms.expressions.expression import concat, text
from transforms.execution.plan import compile_plan
query, title, category = (text(name) for name in ("query", "title", "category"))
inputs = {"overlap": concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000)}
inputs |= {f"c{i}": text(f"c{i}").fill_null("").hash_buckets(1_000_000) for i in range(1, 27)}
result = compile_plan({name: value.node for name, value in inputs.items()}).run(pq.read_table(sys.argv[2]))
assert not result.failures, result.failures
"""


def secs_of_a_process(source: Path, kernels: Path) -> float:
    """Wall-clock seconds of one new process."""
    begun = time.perf_counter()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels)}
    subprocess.run([sys.executable, "-c", FIRST_TRANSFORM, str(ROOT), str(source)], check=True, env=environment)
    return time.perf_counter() - begun


def main() -> int:
    """Measure both."""
    from benchmarks.support.search_log import generate

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "log.parquet"
        generate(source, 1_000)
        never = secs_of_a_process(source, Path(name) / "kernels")
        before = [secs_of_a_process(source, Path(name) / "kernels") for _ in range(options.rounds)]
    print(machine())
    print(f"first transform in a new process: kernels never compiled before {never:.1f} s; "
          f"compiled before {statistics.median(before):.2f} s ({min(before):.2f}..{max(before):.2f})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
