"""Simulate a thousand workers and a hundred thousand tasks with injected failures, in virtual time.

    python -m benchmarks.simulator [--small] [--seed N] [--workers W] [--tasks T]

The queue and the workers use the product's decision functions; a referee with its own ledger checks every event and ends the
run at the first violation. The script prints the outcomes of the tasks and the time of the run.
"""

from __future__ import annotations

import argparse
import gc
import random
import time

from tests.simulation.faults import Faults, with_bad_tasks
from tests.simulation.fleet import FleetConfig
from tests.simulation.simulate import make_tasks, simulate
from warehouse.scheduling.batching import BatchBudget


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--small", action="store_true", help="1 %% of the size")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=1000)
    options.add_argument("--tasks", type=int, default=100_000)
    given = options.parse_args()
    part = 100 if given.small else 1
    workers, count = max(given.workers // part, 2), max(given.tasks // part, 200)
    draw = random.Random(given.seed)
    made = make_tasks(draw, count, clients=("ads", "feed", "search"))
    tasks = with_bad_tasks(made, draw, flaky=count // 100, poison=count // 1000, killers=max(1, count // 5000))
    faults = Faults(kills=workers // 10, pauses=workers // 20, clock_jumps=workers // 20, skew_secs=2.0, slow_share=0.05,
                    outages=((60.0, 20.0),))  # fmt: skip
    gc.freeze()  # excludes the tasks from garbage collection
    begun, cpu_begun = time.perf_counter(), time.process_time()
    found = simulate(tasks, workers, seed=given.seed, fleet=FleetConfig(budget=BatchBudget(1e9)), faults=faults)
    secs, cpu_secs = time.perf_counter() - begun, time.process_time() - cpu_begun
    ending, counts = found.ending, found.counts
    print(f"{workers:,} workers, {count:,} tasks, seed {given.seed}: {found.virtual_secs:,.0f} virtual s in {secs:.1f} s "
          f"({cpu_secs:.1f} s of CPU), {found.events:,} events, {found.events / secs:,.0f} events/s")  # fmt: skip
    print(f"injected: {counts.kills:,} kills, {workers // 20:,} pauses of 120 s, {workers // 20:,} clock jumps, all clocks off "
          f"by up to 2 s, 5 % of the workers 8 times as slow, no catalog for 20 s ({counts.crashes:,} workers crashed)")  # fmt: skip
    print(f"{counts.leases:,} leases, {counts.commits:,} commits, {counts.fenced:,} fenced off, {counts.failures:,} failed "
          f"attempts")  # fmt: skip
    print(f"done {ending.done:,}; quarantined because they raised {ending.raised:,}, because they kill {ending.lost:,}, "
          f"without a cause {ending.faultless:,}; lost 0, committed twice 0")  # fmt: skip


if __name__ == "__main__":
    main()
