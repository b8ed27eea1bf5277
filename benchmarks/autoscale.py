"""Simulate a day with a tenfold surge in one hour: `headrace work --autoscale-hint` and three other fleets.

    python -m benchmarks.autoscale [--small] [--seed N]

The hint is updated every minute from the queue; its estimates are wrong by up to half. It is compared with a fixed fleet of
the day's mean need, a fixed fleet of the surge's need, and the minimum of worker-hours (every thread always computes, jobs
start at once).

Target: no deadline is missed, and at most 25 % more worker-hours are paid than needed.
"""

from __future__ import annotations

import argparse
import math
import time

from tests.simulation.fleet import FleetConfig
from tests.simulation.surge import ScalingPolicy, SurgeConfig, SurgeOutcome, fixed, hinted, run_surge
from warehouse.scheduling.capacity import CapacitySettings

THREADS = 4
START_SECS = 60.0


def policies(config: SurgeConfig) -> dict[str, ScalingPolicy]:
    rates = [config.rate(hour) for hour in range(config.hours)]
    a_worker = THREADS * CapacitySettings().utilisation
    return {
        "hint": hinted(CapacitySettings(threads=THREADS, start_secs=START_SECS)),
        "fixed, for the mean": fixed(math.ceil(sum(rates) / len(rates) / a_worker)),
        "fixed, for the surge": fixed(math.ceil(max(rates) / a_worker)),
    }


def line(name: str, one: SurgeOutcome) -> str:
    return (
        f"{name:<22}{one.paid_hours:>10.1f}{one.wasted:>10.0%}{one.missed:>10.2%}{one.worst_late_secs / 60:>12.1f}"
        f"{one.drain_secs / 60:>12.1f}{one.peak:>8}{one.changes:>9}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--small", action="store_true", help="four hours instead of half a day")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    config = SurgeConfig(hours=4, surge_hour=1, cores=4.0) if given.small else SurgeConfig(hours=12, surge_hour=4)
    fleet = FleetConfig(threads=THREADS, start_secs=START_SECS, poll_secs=15.0, until_idle=False)
    print(
        f"{'fleet':<22}{'hours':>10}{'wasted':>10}{'missed':>10}{'late min':>12}{'drain min':>12}{'peak':>8}{'changes':>9}"
    )
    begun = time.perf_counter()
    found = {name: run_surge(config, policy, seed=given.seed, fleet=fleet) for name, policy in policies(config).items()}
    for name, one in found.items():
        print(line(name, one))
    hint = found["hint"]
    print(f"{'no fleet does without':<22}{hint.needed_hours:>10.1f}")
    met = "met" if not hint.missed and hint.wasted <= 0.25 else "not met"
    print(f"target (none missed, at most 25 % wasted): {met}; simulated in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
