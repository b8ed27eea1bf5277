"""Events a second of jobs of real processes by the number of hosts, with a fixed batch of all hosts and with a fixed batch of each host.

    python -m benchmarks.host_scaling [--hosts 1 2 4] [--rows 60000] [--batch-rows 1024] [--repeats 2]

Each job trains the same synthetic log in epochs of one partition, with its tables on the hosts. *Shared*: hosts share batches of
``--batch-rows`` events, so every job takes the same steps. *Own*: `batch_rows_per_host`, each host trains batches of so many events, so a
step of H hosts has H times as many. The time is that between the first commit and the last one: processes have started by then. Jobs of
both kinds run in turn, and the best repeat counts. A job of more hosts than CPU cores is marked: its hosts share cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.support.harness import machine
from tests.trainer.job.launch.jobs import make_warehouse, run_job, settings
from trainer.job.control.messages import JobStatus
from trainer.run.weights.saved_run import read_newest_run
from warehouse import Warehouse

_PARTITIONS = 4


def rate_of(
    warehouse: Warehouse, folder: Path, hosts: int, batch_rows: int, per_host: bool
) -> tuple[float, int, float]:
    """Events a second between the first and the last commit; the steps of the job; and its last progressive log loss."""
    commits: dict[int, float] = {}

    def note(status: JobStatus) -> None:
        commits.setdefault(status.commit_epochs, time.monotonic())

    options = {"batch_rows": batch_rows, "batch_rows_per_host": per_host, "partitions_per_epoch": 1, "dim": 16,
               "top_mlp": (64, 32), "embedding_learning_rate": 0.01, "dense_learning_rate": 1e-3,
               "dense_scaling": {"price": (("log", 1.0, 1.0),), "input_4": (("log", 1.0, 1.0),)}}  # fmt: skip
    run_job(warehouse, folder, settings(hosts), on_status=note, unit_rows=1 << 16, **options)
    saved = read_newest_run(folder, on_skip=print)
    assert saved is not None
    history = saved.progress.history
    first = min(one for one in commits if one)
    events = sum(one.scores.events for one in history[first:])
    secs = commits[len(history)] - commits[first]
    return events / secs, saved.progress.step, float(history[-1].scores.log_loss or 0.0)


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=60_000, help="events of a partition")
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    print(machine())
    print(f"{_PARTITIONS} partitions of {given.rows:,} events, batches of {given.batch_rows:,}")
    print(f"{'':>6}{'shared':>37}{'own':>37}")
    print(f"{'hosts':>6}" + f"{'events/s':>12}{'of one':>8}{'steps':>8}{'loss':>9}" * 2)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-scaling-") as name,
        make_warehouse(Path(name), hours=_PARTITIONS, rows=given.rows) as warehouse,
    ):
        alone: dict[bool, float] = {}
        for hosts in given.hosts:
            line = f"{hosts:>6}"
            for per_host in (False, True):
                found = [
                    rate_of(warehouse, Path(name) / f"run-{hosts}-{per_host}-{k}", hosts, given.batch_rows, per_host)
                    for k in range(given.repeats)
                ]
                rate, steps, loss = max(found)
                alone.setdefault(per_host, rate)
                line += f"{rate:>12,.0f}{rate / alone[per_host]:>8.2f}{steps:>8,}{loss:>9.5f}"
            print(line + ("  hosts share cores" if hosts > cores else ""), flush=True)


if __name__ == "__main__":
    main()
