"""Simulate the training job: readers under tenfold changes of speed, preemption notices, and crashes.

    python -m benchmarks.training_job [--small] [--seed N]

In virtual time, on the decisions that production uses (`trainer/scheduling/`). The number of readers follows the host's buffer, beside as
many readers as the beginning needs and as many as the peak needs. A step is starved if it waits for input although there is data.

Targets: under 2 % of steps starved; at least 99 % of preempted epochs committed with a notice of 30 s; a crash loses at most one
epoch, and half of them less than half of one.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import median

from tests.simulation.reader_scale import ScaleConfig, ScaleOutcome, ScaleRun, Speed
from tests.simulation.training_job import JobFaults, Simulation
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.job import JobSettings, PhaseSettings

EPOCH_SECS = 60.0


def between(begin: float, end: float, factor: float) -> Speed:
    """A speed that changes by ``factor`` in a time."""
    return lambda moment: factor if begin <= moment < end else 1.0


def scenarios(secs: float) -> dict[str, ScaleConfig]:
    begin, end = secs * 0.3, secs * 0.6
    base = ScaleConfig(secs=secs)
    return {
        "steady": base,
        "storage 10x slower": replace(base, read_speed=between(begin, end, 0.1)),
        "storage 10x faster": replace(base, read_speed=between(begin, end, 10.0)),
        "host 10x faster": replace(base, host_speed=between(begin, end, 10.0)),
        "host 10x slower": replace(base, host_speed=between(begin, end, 0.1)),
        "storage stalls for 3 s": replace(base, stalls=(3.0, 60.0)),
        "2 % stragglers, 20x": replace(base, straggler_share=0.02),
        "storage slow at first": replace(base, read_unit_secs=4.0),
    }


def line(name: str, config: ScaleConfig, seed: int) -> str:
    settings = BufferSettings(limit_bytes=128 << 20)
    outcome = ScaleRun(config, settings, seed=seed).run()
    peak = max(count for _, count in outcome.readers)
    few, many = (
        ScaleRun(replace(config, fixed_readers=count), settings, seed=seed).run() for count in (min(2, peak), peak)
    )
    text = f"{name:<24}{_starved(outcome)}{_starved(few)}{_starved(many)}"
    hours = outcome.reader_secs / max(many.reader_secs, 1e-9)
    return f"{text}{peak:>6}{len(outcome.readers) - 1:>9}{hours:>9.0%}{outcome.most_bytes / 2**20:>7.0f}"


def _starved(one: ScaleOutcome) -> str:
    return f"{one.starved_share:>9.3%}{one.starved_secs:>8.1f}"


def preempted(notices: int, seed: int) -> tuple[int, int]:
    """Preempted epochs and those that were committed, of jobs of one and two hosts with notices of 30 s."""
    ended = committed = run = 0
    while ended < notices:
        settings = JobSettings(hosts=1 + run % 2)
        faults = JobFaults(window_secs=400.0, role_notices=3, job_notices=3)
        sim = Simulation(seed * 1000 + run, settings=settings, faults=faults, units=400)
        sim.run()
        more, kept = sim.preempted
        ended, committed, run = ended + more, committed + kept, run + 1
    return ended, committed


def crashed(crashes: int, seed: int) -> list[float]:
    """The seconds of training that each crash of a host cost."""
    lost: list[float] = []
    phase = PhaseSettings(epoch_secs=EPOCH_SECS)
    run = 0
    while len(lost) < crashes:
        settings = JobSettings(hosts=1 + run % 2, initial=phase, caught_up=phase)
        sim = Simulation(seed * 1000 + run, settings=settings, faults=JobFaults(window_secs=900.0, kills=9), units=1500)
        sim.run(patience_secs=3000.0)
        lost, run = lost + sim.lost_secs, run + 1
    return lost


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--small", action="store_true", help="four minutes instead of ten, and 20 faults instead of 100"
    )
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    secs, faults = (240.0, 20) if given.small else (600.0, 100)
    print(f"{'':<24}{'control':>17}{'few readers':>17}{'peak readers':>17}")
    print(f"{'scenario':<24}" + f"{'starved':>9}{'secs':>8}" * 3 + f"{'peak':>6}{'changes':>9}{'hours':>9}{'MB':>7}")
    for name, config in scenarios(secs).items():
        print(line(name, config, given.seed), flush=True)
    ended, committed = preempted(faults, given.seed)
    print(f"preempted epochs that were committed: {committed} of {ended}, {committed / ended:.1%} (target 99 %)")
    lost = crashed(faults, given.seed)
    print(f"progress lost to {len(lost)} crashes, epochs of {EPOCH_SECS:.0f} s: at most {max(lost):.0f} s, "
          f"median {median(lost):.0f} s (targets: one epoch with its commit, half an epoch)")  # fmt: skip


if __name__ == "__main__":
    main()
