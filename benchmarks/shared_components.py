"""Savings by common subexpressions: 100 components in one plan, compared with the sum of each alone.

    python -m benchmarks.shared_components [--rows N]

The components are typical of several models over three texts, a category and two numbers: the same words lowered, paired,
intersected and hashed into tables of different sizes. Figures are CPU seconds of one thread over a batch in memory, best of
five.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import islice, product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from benchmarks.support.search_log import generate
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import concat, cross, text
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Node

COUNT = 100


def components() -> dict[str, Node]:
    """A hundred model inputs: every model has its own table sizes and a few features of its own."""
    query, title, category = (text(name).lower().unigrams() for name in ("query", "title", "category"))
    common = [
        concat(query & title, category),
        query,
        title,
        query.ngrams(2),
        title.ngrams(2),
        query & title,
        query | category,
        title - query,
        title.unique().head(3),
        concat(query, title).unique(),
    ]
    sizes = [10_000 * (i + 1) for i in range(8)]
    built = [tokens.hash_buckets(size) for tokens, size in product(common, sizes)]
    built += [cross(text("c1"), tokens.head(2), buckets=size) for tokens, size in product((query, category), sizes[:6])]
    built += [value.count() for value in common[:8]]
    return {f"input{i}": canonicalize(value.node) for i, value in enumerate(islice(built, COUNT))}


def cpu_secs(wanted: Mapping[str, Node], batch: pa.Table) -> float:
    """CPU seconds, the least of five runs."""
    plan = compile_plan(wanted)
    taken = []
    for _ in range(5):
        begun = time.thread_time()
        result = plan.run(batch)
        taken.append(time.thread_time() - begun)
        assert not result.failures, result.failures
    return min(taken)


def main() -> int:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name) / "log.parquet", options.rows)
        batch = pq.read_table(Path(name) / "log.parquet").combine_chunks()
    wanted = components()
    assert len({root.identity for root in wanted.values()}) == COUNT, "the components are not all different"
    together = cpu_secs(wanted, batch)
    alone = sum(cpu_secs({name: root}, batch) for name, root in wanted.items())
    print(machine())
    print(f"{COUNT} components over {options.rows:,} rows: together {together:.2f} s, each alone {alone:.2f} s in sum; "
          f"together / alone {together / alone:.2f}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
