"""Random faults while workers compute: killed processes, lost connections, full disks, clock jumps, concurrent maintenance.

There are two kinds of runs, both from ``tests/chaos``. The first empties the queue of one submission: at the end every memo
exists once, with the bytes of an undisturbed run. In the others (``--runs`` of ``--faults`` faults on each catalog) models
come and go, the table changes, and garbage collection, compaction and eviction run beside the workers and are killed. When
the workers have finished, no value may be wrong, no lease and no file may be left, and verification finds nothing. A run
can be repeated with its seed.

Needs the programs of a PostgreSQL server, and the right to mount a file system for full disks (root).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.havoc import small_disk
from tests.chaos.scene import COMPONENTS, HOURS, write_log
from tests.chaos.storm import Outcome, run_storm
from tests.chaos.test_fifty_faults import run_and_check
from tests.support.postgresql import PostgresServer, running

_DISK_BYTES = 64 << 20


def empty_the_queue(server: PostgresServer, seed: int, *, is_small: bool) -> None:
    """Run one submission under faults and print its counts."""
    hours, components, faults = (10, 8, 8) if is_small else (HOURS, COMPONENTS, 50)
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        root = Path(folder)
        log = write_log(root / "log", hours)
        with small_disk(root / "home", _DISK_BYTES) as mounted:
            if not mounted:
                print("no full disks: this user may not mount a file system")
            report = run_and_check(root, server, log, hours, components, faults, seed)
    print_counts(report.faults)
    print(f"{sum(report.faults.values())} faults in one run of {hours * components:,} tasks, {report.workers_died} worker crashes, "
          f"{report.secs:.0f} s: every memo present, none twice, none wrong, no lease stuck", flush=True)  # fmt: skip


def weather_storms(server: PostgresServer, catalogs: tuple[str, ...], runs: int, faults: int, seed: int) -> bool:
    """Do ``runs`` on each catalog and print a line per run and the sums; return whether all were correct."""
    outcomes: list[Outcome] = []
    for catalog in catalogs:
        for number in range(seed, seed + runs):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder, contextlib.ExitStack() as stack:
                stack.enter_context(small_disk(Path(folder) / "home", _DISK_BYTES))
                outcome = run_storm(Path(folder), server if catalog == "postgresql" else None, number, faults)
            outcomes.append(outcome)
            print(f"{catalog:>10}, seed {number}: {sum(outcome.report.faults.values())} faults, "
                  f"{outcome.report.workers_died} worker crashes, {outcome.memos:,} memos compared, "
                  f"{len(outcome.wrong)} wrong values, {outcome.leases} leaked leases, {len(outcome.files)} leaked files, "
                  f"{len(outcome.findings)} findings, {time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip
            for problem in outcome.problems:
                print(f"            {problem}", flush=True)
            if outcome.problems:
                print(outcome.report.errors[-4000:], file=sys.stderr, flush=True)
    print_counts(sum((one.report.faults for one in outcomes), Counter()))
    print("results of the concurrent maintenance:")
    print_counts(sum((one.report.chores for one in outcomes), Counter()))
    print(f"{len(outcomes)} runs of {faults} faults: {sum(len(one.wrong) for one in outcomes)} wrong values, "
          f"{sum(one.leases for one in outcomes)} leaked leases, {sum(len(one.files) for one in outcomes)} leaked files, "
          f"{sum(len(one.findings) for one in outcomes)} findings")  # fmt: skip
    return not any(outcome.problems for outcome in outcomes)


def print_counts(counts: Counter[str]) -> None:
    """Print one line per count, by name."""
    for name, count in sorted(counts.items()):
        print(f"{name:>28}  {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="80 tasks and 8 faults in the first run")
    parser.add_argument("--seed", type=int, default=11, help="seed of the first run; further runs increment it")
    parser.add_argument("--runs", type=int, default=1, help="runs of the second kind on each catalog; 0: none")
    parser.add_argument("--faults", type=int, default=50, help="faults per run of the second kind")
    parser.add_argument("--catalog", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--storms-only", action="store_true", help="leave the first run out")
    options = parser.parse_args()
    catalogs = ("sqlite", "postgresql") if options.catalog == "both" else (options.catalog,)
    with running() as server:
        if not options.storms_only:
            empty_the_queue(server, options.seed, is_small=options.small)
        if options.runs and not weather_storms(server, catalogs, options.runs, options.faults, options.seed):
            sys.exit(1)


if __name__ == "__main__":
    main()
