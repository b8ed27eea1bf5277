"""A new model that shares most of its features: planned from other models' statistics, against planned from its own full profile.

    python -m benchmarks.shared_statistics FILE... [--cores 8 128] [--events-per-core 256] [--shared 0.95] [--chip v5p:2x2x1]

Each file lists tables with rows, dim and pooling_factor: docs/embedding-plans.md describes it. A feature of each is sampled: bags have the
pooling factor's ids in the mean, and row r is drawn in proportion to (r + 1) ** -s, where s is 0.8 to 1.2 by table.

* profile: the statistics of all features, from batches of the model itself;
* shared: of 95 % of the features, three samples of other models' runs, merged with aging: other batches, whose exponents and valencies differ by up
  to 0.02 and 5 % from this model's; of the other features nothing is known but
  whether an event has one id: they are assumed to be like the others (FeatureLoad.assumed).

Both plans are priced by one cost model with the profile. The third figure is the plan without any statistics.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.partition_plans import roomy, without_feedback
from benchmarks.support.harness import machine
from trainer.planning.feature_statistics import FeatureStatistics, aged_merge
from trainer.planning.loads import loads_of
from trainer.planning.planner import make_plan
from trainer.planning.table_file import read_tables
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.planning.topologies import PlanTopology, topology_of
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.statistics.batch_sampler import BatchSampler

Array = np.ndarray[Any, np.dtype[Any]]

_BATCHES, _MOST_EVENTS, _BATCH_IDS = 6, 4096, 2_000_000
_RUNS, _HALF_LIFE_EVENTS = 3, 20_000.0


@dataclass(frozen=True)
class Traffic:
    """How a model looks a table up: ids an event in the mean, and the exponent of its rows' power law."""

    valency: float
    exponent: float

    def drifted(self, rng: np.random.Generator) -> Traffic:
        """The same feature in another model's batches."""
        return Traffic(self.valency * rng.uniform(0.95, 1.05), self.exponent + rng.uniform(-0.02, 0.02))

    def bags(self, rng: np.random.Generator, rows: int, events: int) -> tuple[Array, Array]:
        """Ids and sizes of bags; ranks are drawn by the continuous power law, which has an inverse."""
        sizes = rng.poisson(self.valency, events) if self.valency > 1.0 else np.ones(events, np.int64)
        drawn, power = rng.random(int(sizes.sum())), 1.0 - self.exponent
        if abs(power) < 1e-6:
            ranks = (rows + 1.0) ** drawn
        else:
            ranks = (1.0 + drawn * ((rows + 1.0) ** power - 1.0)) ** (1.0 / power)
        return np.minimum(ranks.astype(np.int64) - 1, rows - 1), sizes


def sample(table: TableFacts, traffic: Traffic, events: int, seed: int) -> FeatureStatistics:
    """What a run of a model samples of one feature."""
    rng = np.random.default_rng(seed)
    feature = FeatureSpec("f", TableSpec(table.name, table.rows, 8, Adagrad(0.1)))
    sampler = BatchSampler([feature], share=1.0, seed=0)
    for step in range(_BATCHES):
        ids, sizes = traffic.bags(rng, table.rows, events)
        offsets = np.concatenate([[0], np.cumsum(sizes)])[None]
        sampler.add(step, IdBatch(ids, offsets), events)
    return sampler.take()["f"]


def planned_by(table: TableFacts, found: FeatureStatistics) -> TableFacts:
    """The table with these statistics."""
    return replace(table, features=(FeatureLoad.sampled(table.name, found),))


def profiles(tables: Sequence[TableFacts], share: float) -> tuple[list[TableFacts], list[TableFacts]]:
    """The tables by the model's own profile, and by what the catalog has."""
    rng = np.random.default_rng(7)
    pooling = sum(one.ids_per_event for one in tables)
    events = int(min(_MOST_EVENTS, max(_BATCH_IDS / pooling, 64)))
    unknown = set(rng.choice(len(tables), max(1, round((1.0 - share) * len(tables))), replace=False).tolist())
    own, shared = [], []
    for k, table in enumerate(tables):
        traffic = Traffic(table.ids_per_event, rng.uniform(0.8, 1.2))
        own.append(planned_by(table, sample(table, traffic, events, 10 * k)))
        found = sample(table, traffic.drifted(rng), events, 10 * k + 1)
        for run in range(1, _RUNS):
            found = aged_merge(found, sample(table, traffic.drifted(rng), events, 10 * k + 1 + run), _HALF_LIFE_EVENTS)
        shared.append(planned_by(table, found))
    known = [one.features[0] for k, one in enumerate(shared) if k not in unknown]
    similar = [one for one in known if one.ids_per_event > 1.0] or known
    for k in unknown:
        table = tables[k]
        load = FeatureLoad.assumed(table.name, table.rows, similar, has_one_id=table.ids_per_event == 1.0)
        shared[k] = replace(table, features=(load,))
    return own, shared


def compare(
    own: Sequence[TableFacts], shared: Sequence[TableFacts], topology: PlanTopology, events: int
) -> list[float]:
    """The steps of the plans by shared statistics and by none, over that of the plan by the profile."""
    known = (own, shared, without_feedback(own))
    plans = [make_plan(tables, topology, events).plan for tables in known]
    secs = [loads_of(plan, own, topology, events).step_secs for plan in plans]
    return [one / secs[0] for one in secs[1:]]


def main() -> None:
    """Compare the plans of all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--cores", type=int, nargs="+", default=[8, 128])
    parser.add_argument("--events-per-core", type=int, default=256)
    parser.add_argument("--shared", type=float, default=0.95)
    parser.add_argument("--chip", default="v5p:2x2x1")
    options = parser.parse_args()
    print(machine())
    print(f"{'tables':<38} {'cores':>5}   step by the profile's plan: shared, without statistics")
    found: list[list[float]] = []
    for file in options.files:
        tables = read_tables(Path(file).read_bytes(), file, skew=1.0)
        own, shared = profiles(tables, options.shared)
        for cores in options.cores:
            topology = roomy(tables, topology_of(options.chip).with_cores(cores))
            ratios = compare(own, shared, topology, options.events_per_core * cores)
            print(f"{Path(file).stem[:38]:<38} {cores:>5}   {ratios[0]:.4f}  {ratios[1]:.4f}", flush=True)
            found.append(ratios)
    means = [math.exp(statistics.fmean(map(math.log, one))) for one in zip(*found, strict=True)]
    worst = max(one[0] for one in found)
    print(f"geometric means: shared {means[0]:.4f}, at most {worst:.4f}; without statistics {means[1]:.4f}")


if __name__ == "__main__":
    main()
