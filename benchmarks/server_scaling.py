"""A job that chooses the number of its parameter servers, beside one with the least number, and one with the most.

    python -m benchmarks.server_scaling [--servers 1..3] [--ids 100] [--dim 64] [--hours 12] [--rows 4000] [--passes 3] [--quick]

A made log has two lists of ids an event, of which the servers look up and update rows; the dense part is small. The commands are those of a user:
``headrace train --hosts 1 --servers N`` with the least number, with the range, and with the most, one after the other, each to its end. Printed are the
seconds of training, from the first trained event to the last commit, by those with the least number; for the range also each number of servers with the
time at which its tables were there and the events a second until the next one. Weights are compared bit for bit.

Servers share the processors of this machine with the host, so more of them help only as far as processors are idle: what is measured here is that the
number follows what is measured, what a change costs, and that a number which does not help is taken back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import OPTIONS
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.run_comparison import run_differences
from trainer.options.process_range import ProcessRange
from transforms.errors import HeadraceError

_START = datetime(2026, 3, 1)
_TABLE_ROWS = 200_000
_LOOK_SECS = 0.5


def write_log(folder: Path, hours: int, rows: int, ids: int) -> None:
    """Hours of events with two lists of ids."""
    rng = np.random.default_rng(1)
    for hour in (_START + timedelta(hours=k) for k in range(hours)):
        offsets = pa.array(np.arange(0, rows * ids + 1, ids, dtype=np.int32))
        columns = {
            "time": pa.array(np.full(rows, np.datetime64(hour, "us"))),
            "label": pa.array(rng.integers(0, 2, rows).astype(np.float32)),
            **{
                name: pa.ListArray.from_arrays(offsets, pa.array(rng.integers(0, _TABLE_ROWS, rows * ids)))
                for name in ("seen", "bought")
            },
        }
        place = folder / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        place.mkdir(parents=True)
        parquet.write_table(pa.table(columns), place / "part-0.parquet")


@dataclass
class Course:
    """The numbers of servers of a job over its time.

    Attributes:
        stages: each number with the second at which its tables were there, and the events of the attempts until the next one.
    """

    began: float = 0.0
    first_secs: float | None = None
    stages: list[tuple[float, int]] = field(default_factory=list)
    trained: list[tuple[float, int]] = field(default_factory=list)
    _done: int = 0
    _attempt: tuple[int, int] = (0, 0)

    def see(self, status: JobStatus, at_secs: float) -> None:
        """A status that came now."""
        reports = [one.progress for one in status.members if one.progress is not None and one.rank is not None]
        events = sum(one.events for one in reports if one.attempt == status.attempt)
        if status.attempt != self._attempt[0]:
            self._done += self._attempt[1]
        self._attempt = (status.attempt, max(events, self._attempt[1] if status.attempt == self._attempt[0] else 0))
        total = self._done + self._attempt[1]
        if events and self.first_secs is None:
            self.first_secs = at_secs
        if events:
            self.trained.append((at_secs, total))
            if status.used_servers and (not self.stages or self.stages[-1][1] != status.used_servers):
                self.stages.append((at_secs, status.used_servers))

    def lines(self) -> list[str]:
        """Each stage, with its rate."""
        ends = [*(at for at, _ in self.stages[1:]), self.trained[-1][0]]
        found = []
        for (at, servers), end in zip(self.stages, ends, strict=True):
            within = [(when, total) for when, total in self.trained if at <= when <= end]
            secs = within[-1][0] - within[0][0]
            rate = (within[-1][1] - within[0][1]) / secs if secs else 0.0
            found.append(
                f"  {at - (self.first_secs or 0.0):5.0f} s: {servers} server{'s' if servers > 1 else ''}, {rate:,.0f} events a second"
            )
        return found


def headrace(home: Path, *command: str) -> None:
    """Run a command to its end."""
    environment = {**os.environ, "HEADRACE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *command], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(command)}: {done.stderr[-4000:]}")


def train(home: Path, run_dir: Path, servers: str, options: Path) -> tuple[float, Course]:
    """The seconds from the first trained event to the end, and the course of a training."""
    command = [
        "train",
        "ctr",
        "--hosts",
        "1",
        "--readers",
        "1",
        "--servers",
        servers,
        "--config",
        str(options),
        "--run-dir",
        str(run_dir),
    ]
    environment = {**os.environ, "HEADRACE_HOME": str(home)}
    log = run_dir.with_suffix(".log")
    course, files = Course(), JobFiles(run_dir)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *command], stdout=output, stderr=output, env=environment
        )
        while process.poll() is None:
            try:
                client = ControllerClient.of_run(files, job=JobSpec.read(files).job, timeout_secs=2.0)
                try:
                    course.see(client.status(), time.monotonic())
                finally:
                    client.close()
            except HeadraceError:
                pass  # it has not begun, or has ended
            time.sleep(_LOOK_SECS)
    if process.returncode:
        raise SystemExit(log.read_text()[-4000:])
    assert course.first_secs is not None, "a training is longer than a look at it"
    return time.monotonic() - course.first_secs, course


def main() -> int:
    """Measure; the exit status is 1 if weights differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="1..3")
    parser.add_argument("--ids", type=int, default=100)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hours", type=int, default=12)
    parser.add_argument("--rows", type=int, default=4000, help="events an hour")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="two hours, one pass")
    given = parser.parse_args()
    hours, passes = (2, 1) if given.quick else (given.hours, given.passes)
    limits = ProcessRange.parse(given.servers, "--servers")
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-scaling-") as name:
        folder = Path(name)
        home, options = folder / "home", folder / "options.json"
        write_log(folder / "log", hours, given.rows, given.ids)
        (folder / "model.py").write_text(
            "import headrace as hr\n"
            "model = hr.Model('ctr', client='ads', label=hr.float32('label'))\n"
            f"model.input('seen', hr.ragged('seen', 'int64').modulo({_TABLE_ROWS}))\n"
            f"model.input('bought', hr.ragged('bought', 'int64').modulo({_TABLE_ROWS}))\n"
        )
        chosen = {**OPTIONS, "dim": given.dim, "batch_rows": 512, "bottom_mlp": [8], "top_mlp": [8], "passes": passes}
        options.write_text(json.dumps(chosen))
        headrace(home, "table", "add", "log", str(folder / "log"), "--time-column", "time")
        headrace(home, "model", "submit", str(folder / "model.py"), "--table", "log")
        headrace(home, "work", "--until-idle")
        found = {}
        for servers in (str(limits.least), given.servers, str(limits.most)):
            found[servers] = train(home, folder / f"run-{servers}", servers, options)
            secs, course = found[servers]
            print(
                f"--servers {servers}: {secs:.0f} s, {secs / found[str(limits.least)][0]:.2f}x of --servers {limits.least}",
                flush=True,
            )
            if servers == given.servers:
                print("\n".join(course.lines()), flush=True)
        base = folder / f"run-{limits.least}"
        differences = [one for servers in found for one in run_differences(base, folder / f"run-{servers}")]
    print(f"weights, slots and history: {'differ' if differences else 'equal bit for bit'}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
