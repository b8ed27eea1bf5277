"""Tables partitioned over simulated cores: what the exchange costs.

    python -m benchmarks.partitioned_cores [--rounds N] [--events N]

26 tables of 100,000 rows of 64 columns; ids by a power law of exponent 1.2; the valencies of most bags are small and those of a few are
in the hundreds. Numbers of cores are compared with the ``cpu`` engine on as many threads as there are processors. Rounds alternate, and ratios
are taken within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.long_tailed_bags import DIM, TABLES, features, make_batches
from trainer.tables import CpuEngine, IdBatch
from trainer.tables.routes.partitioned.engine import PartitionedEngine

Array = np.ndarray[Any, np.dtype[Any]]

_BATCHES, _LONGEST = 4, 500
_CORES = (1, 2, 4, 8)


def step_secs(engine: CpuEngine | PartitionedEngine, batches: list[IdBatch], gradients: Array) -> float:
    """The median seconds of a lookup and its update."""
    secs = []
    for batch in batches:
        fresh = IdBatch(batch.ids, batch.offsets, None, batch.bounds)
        began = time.perf_counter()
        engine.lookup(fresh)
        engine.apply_gradients(fresh, gradients)
        secs.append(time.perf_counter() - began)
    return statistics.median(secs)


def compare(
    sides: Mapping[str, CpuEngine | PartitionedEngine], batches: list[IdBatch], rounds: int
) -> dict[str, list[float]]:
    """The seconds of each side's step, by round."""
    gradients = np.random.default_rng(12).standard_normal((batches[0].rows, TABLES * DIM), np.float32)
    for engine in sides.values():
        step_secs(engine, batches, gradients)
    secs: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, engine in sides.items():
            secs[name].append(step_secs(engine, batches, gradients))
    return secs


def show(name: str, secs: list[float], by: list[float], engine: CpuEngine | PartitionedEngine) -> None:
    """One line of a table."""
    ratio = statistics.median(a / b for a, b in zip(secs, by, strict=True))
    line = f"  {name:<34} {statistics.median(secs) * 1e3:8.1f} ms  {ratio:5.2f}x"
    if isinstance(engine, PartitionedEngine):
        (traffic,) = engine.traffic.values()
        line += (
            f"   {traffic.ids / traffic.rows:5.2f} ids a row asked for, "
            f"{100 * traffic.padding_rows / (traffic.padding_rows + traffic.rows):3.0f} % padding"
        )
    print(line)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=4096)
    options = parser.parse_args()
    print(machine())
    batches = make_batches(_BATCHES, options.events, longest=_LONGEST)
    whole = CpuEngine(features(), seed=0)
    sides: dict[str, CpuEngine | PartitionedEngine] = {f"cpu, {whole.threads} threads": whole}
    sides |= {f"{n} cores": PartitionedEngine(features(), seed=0, cores=n) for n in _CORES}
    ids = sum(len(batch.ids) for batch in batches) / len(batches)
    print(f"\nlookup and update of {options.events:,} events with {ids:,.0f} ids, by the time of the cpu engine:")
    secs = compare(sides, batches, options.rounds)
    first = next(iter(sides))
    for name, engine in sides.items():
        show(name, secs[name], secs[first], engine)


if __name__ == "__main__":
    main()
