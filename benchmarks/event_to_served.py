"""From a landed partition to served weights: a caught-up training job on one machine, each stage of the way in seconds.

    python -m benchmarks.event_to_served [--partitions 30] [--hours 4] [--servers N] [--poll-secs S] [--globo FOLDER] [--quick]

``headrace train --follow --export`` trains the first hours of Globo's news log, else of the sample log. When it is caught up, the next
hours land one after the other: a partition's folder is renamed into the table's folder and registered, as ``headrace table add`` does. A
server, this process, applies each link to a folder of rows as soon as it appears. The next partition lands at a random moment after
that. Nothing computes memos: readers compute the inputs of what lands.

The last line says whether what is served has the weights of the newest commit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.many_models import GLOBO, globo
from benchmarks.support.fleets import news_fleet, search_fleet
from benchmarks.support.harness import machine
from benchmarks.support.traced_job import read_trace
from benchmarks.support.training_scene import OPTIONS
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from trainer.checkpoints.open_run import open_run
from trainer.serving.apply_chain import apply_chain
from trainer.serving.deltas.chain_files import link_places, open_chain, read_chain
from trainer.serving.deltas.commit_weights import newest_commit, served_commit
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model

#: Each stage ends at the first moment of this name after that of the stage before, or the last one before that of the next stage.
_STAGES = (
    ("partition registered (table add)", "registered"),
    ("new data seen by the supervisor", "new data seen"),
    ("read solution made", "read solution made"),
    ("plan of the new rows made", "plan made"),
    ("attempt begun by the host", "attempt begun"),
    ("inputs read, computed where no memo is", "inputs read"),
    ("first batch trained", "row trained"),
    ("last batch trained", "last row"),
    ("part written", "part written"),
    ("commit published", "commit published"),
    ("link begun", "link begun"),
    ("link renamed into the chain", "link renamed"),
    ("link applied to the served rows", "applied"),
)
_LOOK_SECS = 0.01
_MOST_SECS = 300.0


@dataclass(frozen=True, slots=True)
class Landing:
    """A log whose first hours are in a table, and folders of further hours.

    Attributes:
        root: the folder of the table.
        waiting: pairs of a folder and where it lands.
    """

    root: Path
    table: str
    model: str
    waiting: tuple[tuple[Path, Path], ...]


def make_landing(folder: Path, home: Path, given: argparse.Namespace) -> Landing:
    """Write the log, move all hours but the first ones out of its folder, and submit a model."""
    hours = given.hours + given.partitions + 2 + given.hours // 8  # of which some may hold no events
    if given.globo.is_dir() and not given.quick:
        root, fleet = globo(folder, given.globo, hours), news_fleet()
    else:
        root, fleet = folder / "log", search_fleet()
        write_sample_log(
            root, SampleLogConfig(hours=hours, mean_rows_per_hour=500 if given.quick else 8_000), late=False
        )
    (model,) = fleet.models(1)
    waiting = []
    for partition in sorted(root.glob("date=*/hour=*"))[given.hours :]:
        aside = folder / "waiting" / partition.relative_to(root)
        aside.parent.mkdir(parents=True, exist_ok=True)
        os.rename(partition, aside)
        waiting.append((aside, partition))
    if len(waiting) < given.partitions:
        raise SystemExit(
            f"--hours and --partitions must together be at most the hours of the log that have events, got {given.hours} and {given.partitions}: "
            "give fewer --hours"
        )
    for day in root.glob("date=*"):
        if not any(day.iterdir()):
            day.rmdir()
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, fleet.table, str(root))
        submit_model(warehouse, model, policy="none")
    return Landing(root, fleet.table, model.name, tuple(waiting[: given.partitions]))


@dataclass(frozen=True, slots=True)
class Job:
    """A running job that follows its table and writes a chain."""

    process: subprocess.Popen[bytes]
    trace: Path
    run: Path
    chain: Path
    output: Path

    def check(self) -> None:
        """Raise the end of a job that has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the job has ended:\n{self.output.read_text()[-4000:]}")


@contextmanager
def following(folder: Path, home: Path, model: str, given: argparse.Namespace) -> Iterator[Job]:
    """The job, which ends with the context."""
    options = folder / "options.json"
    options.write_text(json.dumps({**OPTIONS, "network": "dlrm"}))
    run, chain, trace, output = (folder / name for name in ("run", "chain", "trace", "output"))
    servers = ("--servers", str(given.servers)) if given.servers else ()
    command = [sys.executable, "-m", "benchmarks.support.traced_job", str(trace), "train", model, "--home", str(home),
               "--config", str(options), "--run-dir", str(run), "--hosts", "1", "--readers", "1", "--follow",
               "--poll-secs", str(given.poll_secs), "--export", str(chain), *servers]  # fmt: skip
    with open(output, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Job(process, trace, run, chain, output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_MOST_SECS)


def wait_for_link(job: Job, after: int) -> Path:
    """The first link whose number is above ``after``."""
    end = time.monotonic() + _MOST_SECS
    while True:
        found = [one for one in link_places(open_chain(job.chain)) if one.number > after]
        if found:
            return job.chain / found[0].name
        job.check()
        if time.monotonic() > end:
            raise SystemExit(f"no link after {after} in {_MOST_SECS:g} s:\n{job.output.read_text()[-4000:]}")
        time.sleep(_LOOK_SECS)


def wait_until_caught_up(job: Job, served: Path) -> int:
    """Wait until no link comes any more; the number of the last one, which is applied."""
    number, quiet_since = -1, time.monotonic()
    while time.monotonic() - quiet_since < 8.0 or number < 0:
        job.check()
        newest = max((one.number for one in link_places(open_chain(job.chain))), default=-1)
        if newest > number:
            number, quiet_since = newest, time.monotonic()
        time.sleep(0.1)
    apply_chain(job.chain, served)
    return number


def land(
    job: Job, landing: Landing, warehouse: Warehouse, place: tuple[Path, Path], number: int, served: Path
) -> dict[str, float]:
    """Land a partition, and apply the link with it; the moments on the way."""
    place[1].parent.mkdir(parents=True, exist_ok=True)
    os.rename(*place)
    landed = time.time()
    register_table(warehouse, landing.table, str(landing.root))
    moments = [("registered", time.time())]
    wait_for_link(job, number)
    apply_chain(job.chain, served)
    moments.append(("applied", time.time()))
    time.sleep(0.05)
    moments += [one for one in read_trace(job.trace) if landed < one[1] < moments[-1][1]]
    moments += [("last row", max(at for name, at in moments if name == "row trained"))]
    return {"landed": landed, **_first_after_each_other(sorted(moments, key=lambda one: one[1]))}


def _first_after_each_other(moments: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The moment of each stage: the first of its name; of the beginning of a link, the last one."""
    found: dict[str, float] = {}
    for name, at in moments:
        if name == "link begun" and at > found.get("link renamed", np.inf):
            continue
        if name not in found or name == "link begun":
            found[name] = at
    return found


def show(found: Sequence[dict[str, float]]) -> None:
    """Print the median and the 99th percentile of each stage, and of the whole."""
    print(f"{'stage: it ends when …':<42} {'median s':>9} {'p99 s':>8} {'after landing, median s':>24}")
    for k, (name, point) in enumerate(_STAGES):
        before = "landed" if k == 0 else _STAGES[k - 1][1]
        secs = [max(0.0, one[point] - one[before]) for one in found]
        since = [one[point] - one["landed"] for one in found]
        print(f"{name:<42} {np.median(secs):9.3f} {np.percentile(secs, 99):8.3f} {np.median(since):24.3f}")
    total = [one["applied"] - one["landed"] for one in found]
    print(f"landed to applied, {len(found)} partitions: median {np.median(total):.2f} s, p99 {np.percentile(total, 99):.2f} s, "
          f"from {min(total):.2f} s to {max(total):.2f} s")  # fmt: skip


def main() -> int:
    """Measure and print; the exit status is 1 if other weights than those of the newest commit are served."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=30, help="that land, one after the other")
    parser.add_argument("--hours", type=int, default=4, help="of history")
    parser.add_argument(
        "--servers", type=int, default=0, help="parameter servers that hold the tables; 0: the host does"
    )
    parser.add_argument("--poll-secs", type=float, default=1.0, help="of the job")
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="3 partitions of few rows of a made log, to test the script"
    )
    given = parser.parse_args()
    if given.quick:
        given.partitions = 3
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="headrace-served-") as name:
        folder = Path(name)
        home, served = folder / "home", folder / "served"
        landing = make_landing(folder, home, given)
        held = f"{given.servers} parameter servers" if given.servers else "the host"
        print(f"{machine()}; tables are held by {held}; a look for new data every {given.poll_secs:g} s", flush=True)
        found = []
        with (
            following(folder, home, landing.model, given) as job,
            Warehouse.open(WarehouseConfig(str(home))) as warehouse,
        ):
            number = wait_until_caught_up(job, served)
            for place in landing.waiting:
                time.sleep(draw.uniform(0.5, 0.5 + max(given.poll_secs, 1.0)))
                found.append(land(job, landing, warehouse, place, number, served))
                number = max(one.number for one in link_places(open_chain(job.chain)))
        show(found)
        last = read_chain(job.chain)[-1].manifest
        rows = sum(one.rows_after for one in last.tables)
        changed = sum(one.rows for one in last.tables)
        is_newest = last.commit == served_commit(newest_commit(open_run(job.run)))
        print(
            f"the last link has {changed:,} of {rows:,} rows; the newest commit is served: {'yes' if is_newest else 'NO'}"
        )
    return 0 if is_newest else 1


if __name__ == "__main__":
    sys.exit(main())
