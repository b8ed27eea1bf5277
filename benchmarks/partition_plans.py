"""Partition plans of published table sets: bound, load imbalance and time of the planner, and the step of simpler plans beside it.

    python -m benchmarks.partition_plans FILE... [--cores 8 128 1024] [--events-per-core 256] [--skew 1.05] [--chip v5p:2x2x1]

Each file lists tables with rows, dim and pooling_factor: docs/embedding-plans.md describes it. Cores are those of the chip, with more memory where
the tables need it. All plans are priced by one cost model with the true statistics, so the ratios say how the plans differ, not how fast a
device is. The plans:

* by size: whole tables, the largest first, each on the core with the fewest bytes; a table beyond a core's memory is spread over all;
* cyclic: the rows of every table over all cores;
* assumed: the planner with one id an event and all rows alike for every table, as without feedback;
* planned: the planner with statistics.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.support.harness import machine
from trainer.planning.loads import loads_of
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.planning.planner import make_plan
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.table_file import read_tables
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.planning.topologies import PlanTopology, topology_of
from trainer.solving.process import search_with

_SPARE = 1.3


def by_size(tables: Sequence[TableFacts], topology: PlanTopology) -> PartitionPlan:
    """Whole tables, largest first, each on the core with the fewest bytes."""
    used = [0] * topology.cores
    found: dict[str, TablePlan] = {}
    for table in sorted(tables, key=lambda one: -one.table_bytes):
        core = min(range(topology.cores), key=used.__getitem__)
        cores: tuple[int, ...] = (core,)
        if used[core] + table.table_bytes > topology.memory_bytes:
            cores = tuple(range(min(topology.cores, table.rows)))
        for one in cores:
            used[one] += table.table_bytes // len(cores)
        found[table.name] = TablePlan(table.name, table.rows, table.columns, (Slice(0, table.columns, cores),))
    return PartitionPlan(topology.cores, tuple(found[table.name] for table in tables))


def without_feedback(tables: Sequence[TableFacts]) -> list[TableFacts]:
    """The tables with one id an event, of all rows alike."""
    return [
        replace(one, features=(FeatureLoad(one.name, 1.0, RowFrequencies.power_law(one.rows, 0.0)),)) for one in tables
    ]


@dataclass(frozen=True)
class Found:
    """The embedding seconds of a step under each plan, and what the planner says of its own."""

    secs: dict[str, float]
    gap: float
    imbalance: float
    planner_secs: float


def compare(tables: Sequence[TableFacts], topology: PlanTopology, events: int) -> Found:
    """All plans of one set."""
    began = time.perf_counter()
    planned = make_plan(tables, topology, events, search=search_with(5.0))
    took = time.perf_counter() - began
    assumed = make_plan(without_feedback(tables), topology, events)
    plans = {
        "by size": by_size(tables, topology),
        "cyclic": cyclic_plan([(one.name, one.rows, one.columns) for one in tables], topology.cores),
        "assumed": assumed.plan,
        "planned": planned.plan,
    }
    secs = {name: loads_of(plan, tables, topology, events).step_secs for name, plan in plans.items()}
    return Found(secs, planned.gap, planned.loads.imbalance, took)


def roomy(tables: Sequence[TableFacts], topology: PlanTopology) -> PlanTopology:
    """The topology with memory for all tables."""
    needed = int(_SPARE * sum(one.table_bytes for one in tables) / topology.cores)
    return replace(topology, memory_bytes=max(topology.memory_bytes, needed))


def main() -> None:
    """Compare the plans of all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--cores", type=int, nargs="+", default=[8, 128, 1024])
    parser.add_argument("--events-per-core", type=int, default=256)
    parser.add_argument("--skew", type=float, default=1.05)
    parser.add_argument("--chip", default="v5p:2x2x1")
    options = parser.parse_args()
    print(machine())
    print(
        f"{'tables':<38} {'cores':>5} {'gap':>6} {'imbalance':>9} {'secs':>6}   step by the planner's: by size, cyclic, assumed"
    )
    ratios_of: dict[int, list[list[float]]] = {cores: [] for cores in options.cores}
    for file in options.files:
        tables = read_tables(Path(file).read_bytes(), file, skew=options.skew)
        for cores in options.cores:
            topology = roomy(tables, topology_of(options.chip).with_cores(cores))
            found = compare(tables, topology, options.events_per_core * cores)
            ratios = [found.secs[name] / found.secs["planned"] for name in ("by size", "cyclic", "assumed")]
            print(
                f"{Path(file).stem[:38]:<38} {cores:>5} {found.gap:6.1%} {found.imbalance:9.3f} {found.planner_secs:6.1f}   "
                + "  ".join(f"{ratio:6.2f}x" for ratio in ratios),
                flush=True,
            )
            ratios_of[cores].append(ratios)
    for cores, of_sets in ratios_of.items():
        means = [math.exp(statistics.fmean(map(math.log, one))) for one in zip(*of_sets, strict=True)]
        print(
            f"{cores} cores, geometric means: by size {means[0]:.2f}x, cyclic {means[1]:.2f}x, assumed {means[2]:.2f}x"
        )


if __name__ == "__main__":
    main()
