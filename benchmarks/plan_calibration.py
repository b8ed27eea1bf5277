"""The planner's cost model against measured steps of real processes, and its rates fitted to them.

    python -m benchmarks.plan_calibration [--sets N] [--held-out N] [--rounds N] [--seed N]

A core is a process with one thread, and rows cross loopback TCP as between the hosts of a job; there are as many cores as processors. Sets of
tables are drawn at random, each with four plans: ways drawn at random, all rows over all cores, whole tables by size, and the planner's. Rates are
fitted to the phases of the first sets' steps. The error is that of whole steps of the other sets, whose tables have other columns, and which had no
part in the fit.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np

from benchmarks.partition_plans import by_size
from benchmarks.support.core_processes import CoreProcesses, TimedSteps, phase_secs
from benchmarks.support.drawn_tables import DIMS, drawn_plan, drawn_set, rank_correlation
from benchmarks.support.harness import machine
from benchmarks.support.rate_fit import MeasuredCase, estimated_secs, fitted_rates
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.planner import make_plan
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology, topology_of

_HELD_OUT_DIMS = (12, 24, 48, 96, 160)


def plans_of(
    tables: tuple[TableFacts, ...], topology: PlanTopology, events: int, rng: np.random.Generator
) -> Iterator[PartitionPlan]:
    """The plans of a set."""
    yield drawn_plan(tables, topology.cores, rng)
    yield cyclic_plan([(one.name, one.rows, one.columns) for one in tables], topology.cores)
    yield by_size(tables, topology)
    yield make_plan(tables, topology, events).plan


def measured_cases(
    cores: CoreProcesses, topology: PlanTopology, sets: int, dims: tuple[int, ...], seed: int, rounds: int
) -> list[MeasuredCase]:
    """All plans of ``sets`` sets."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(sets):
        drawn = drawn_set(rng, dims=dims)
        for plan in plans_of(drawn.facts(), topology, topology.cores * drawn.events, rng):
            found.append(MeasuredCase(drawn, plan, phase_secs(cores.run(TimedSteps(drawn, plan, rounds)))))
    return found


def report(name: str, cases: list[MeasuredCase], topology: PlanTopology) -> None:
    """One line: how well the model says the seconds of a step, and which plan of a set is faster."""
    measured = np.array([case.secs.step for case in cases])
    estimated = np.array([estimated_secs(case, topology) for case in cases])
    error = np.abs(estimated / measured - 1)
    print(f"  {name:<28} rank correlation {rank_correlation(estimated.tolist(), measured.tolist()):.3f}, error of a step: "
          f"median {np.median(error):.1%}, 90 % of steps below {np.quantile(error, 0.9):.1%}")  # fmt: skip


def main() -> None:
    """Measure, fit, and report the error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=60)
    parser.add_argument("--held-out", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(machine())
    topology = topology_of(f"cpu:{max(os.cpu_count() or 2, 2)}")
    with CoreProcesses(topology.cores) as cores:
        fit = measured_cases(cores, topology, options.sets, DIMS, options.seed, options.rounds)
        other = measured_cases(cores, topology, options.held_out, _HELD_OUT_DIMS, options.seed + 1, options.rounds)
    steps = [1e3 * case.secs.step for case in other]
    print(f"{topology.cores} processes; {len(fit)} cases to fit, {len(other)} others with steps of {min(steps):.1f} to {max(steps):.1f} ms")  # fmt: skip
    fitted = replace(topology, rates=fitted_rates(fit, topology))
    print("rates by this machine: " + ", ".join(f"{name}={value:.3g}" for name, value in asdict(fitted.rates).items()))
    report("fitted, the cases of the fit", fit, fitted)
    report("fitted, other shapes", other, fitted)
    report("the rates of cpu, the same", other, topology)


if __name__ == "__main__":
    main()
