"""The steps of an epoch by the number of hosts: the fewest possible, those of the plan, and those of real processes.

    python -m benchmarks.host_steps [--rows 3000 20000 1000000] [--batch-rows 64 1024] [--processes 1 2 4] [--seed 1]

For each size of an epoch and of a batch, the epoch is drawn as fragments of uneven sizes and cut into units as a job cuts it for that number of hosts.
*Shared*: hosts share each batch, as without an option. *Own*: each host has batches of its own, `batch_rows_per_host`. *Steps* are those of
all hosts, *fewest* those of a job whose batches are all whole but the last, *idle* the share of all steps of all hosts in which a host has
no event. With ``--processes`` jobs of real processes train a small log with so many hosts; their steps are those of their commits.

Target: steps are the fewest possible, those of shared batches for any number of hosts; under 5 % of the steps of hosts are idle from ten
steps on where hosts share each batch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.support.harness import machine
from tests.support.plans import plan_of
from trainer.checkpoints.host_steps import StepsByHost, idle_share
from trainer.run.weights.saved_run import read_newest_run
from trainer.scheduling.batch_parts import BatchParts

HOSTS = tuple(range(1, 17))
MOST_IDLE = 0.05


def drawn_fragments(rows: int, seed: int) -> list[int]:
    """Fragments of uneven sizes, each of at least one row, with so many rows in all."""
    random = np.random.default_rng(seed)
    cuts = random.choice(np.arange(1, rows), size=min(rows - 1, int(random.integers(1, 30))), replace=False)
    found: list[int] = np.diff([0, *np.sort(cuts), rows]).tolist()
    return found


def own_steps(fragments: list[int], batch_rows: int, hosts: int) -> list[int]:
    """The steps in which each host has events, of hosts with batches of their own."""
    plan = plan_of([fragments], hosts=hosts, batch_rows=batch_rows)
    events = np.zeros(hosts, np.int64)
    for unit in range(plan.stop_unit):
        shares = [plan.share(unit, rank, hosts) for rank in range(hosts)]
        events += [stop - first for first, stop in shares]
    steps: list[int] = (-(-events // batch_rows)).tolist()
    return steps


def shared_steps(rows: int, batch_rows: int, hosts: int) -> list[int]:
    """The steps in which each host has events, of hosts that share each batch."""
    parts = [BatchParts(batch_rows, rank, hosts, 0, rows) for rank in range(hosts)]
    return [sum(stop > first for first, stop in map(one.part, range(one.batches))) for one in parts]


def print_planned(rows: int, batch_rows: int, seed: int) -> bool:
    """Print the steps of an epoch for each number of hosts; whether the target is met."""
    fragments, is_met = drawn_fragments(rows, seed), True
    print(f"\n{rows:,} events in {len(fragments)} fragments of {min(fragments):,} to {max(fragments):,}, batches of {batch_rows:,}")  # fmt: skip
    print(f"{'':>6}{'shared':>27}{'own':>27}")
    print(f"{'hosts':>6}" + f"{'fewest':>9}{'steps':>9}{'idle':>9}" * 2)
    for hosts in HOSTS:
        line = f"{hosts:>6}"
        for is_shared in (True, False):
            steps = shared_steps(rows, batch_rows, hosts) if is_shared else own_steps(fragments, batch_rows, hosts)
            fewest, most = -(-rows // (batch_rows * (1 if is_shared else hosts))), max(steps)
            idle = 1 - sum(steps) / (most * hosts)
            is_met &= most == fewest and not (is_shared and fewest >= 10 and idle >= MOST_IDLE)
            line += f"{fewest:>9,}{most:>9,}{idle:>9.1%}"
        print(line)
    return is_met


def trained_steps(folder: Path, hosts: int) -> tuple[int, StepsByHost]:
    """The fewest steps that are possible, and those of each host of a job of real processes."""
    from tests.trainer.job.launch.jobs import make_warehouse, run_job, settings

    batch_rows = 16
    with make_warehouse(folder, hours=3, rows=500, memoize=False) as warehouse:
        options = {"batch_rows": batch_rows, "passes": 1, "partitions_per_epoch": 1}
        run_job(warehouse, folder / "run", settings(hosts), unit_rows=1 << 16, **options)
    saved = read_newest_run(folder / "run", on_skip=print)
    assert saved is not None
    assert saved.job is not None
    events = [one.scores.events for one in saved.progress.history]
    return sum(-(-count // batch_rows) for count in events), saved.job.host_steps


def print_trained(hosts: int) -> bool:
    """Print the steps of a job of real processes; whether the target is met."""
    with tempfile.TemporaryDirectory(prefix="headrace-steps-") as name:
        fewest, steps = trained_steps(Path(name), hosts)
    each = ", ".join(f"{name} {one.steps}" for name, one in steps.items())
    print(f"processes of {hosts} hosts: {each}; fewest {fewest}, idle {idle_share(steps):.1%}")
    return max(one.steps for one in steps.values()) == fewest and idle_share(steps) < MOST_IDLE


def main() -> int:
    """Print all; the exit status is 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000, 20_000, 1_000_000])
    parser.add_argument("--batch-rows", type=int, nargs="+", default=[64, 1_024])
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(machine())
    met = [print_planned(rows, batch, given.seed) for rows in given.rows for batch in given.batch_rows]
    print()
    met += [print_trained(hosts) for hosts in given.processes]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
