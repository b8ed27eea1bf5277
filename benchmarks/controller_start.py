"""The controller of a training job: its start, its memory with a million work units, its events per second, and its replay; a reader's start.

    python -m benchmarks.controller_start [--small]

The start is that of a process, from its creation to the answer of its service, imports included; the process holds the plan of a million
units of 20,000 fragments and the ends of 1,000 epochs. Seconds are wall-clock, CPU seconds are those of the process. Heartbeats are sent
by processes over Flight, and wait for no change; events of the log are synced to disk, one append for those that arrive together.
A reader's start is that of ``headrace role reader``, until it has joined the job.

Targets: starts under 1 s, under 150 MB with a million units, no TensorFlow or Beam in these processes.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.support.harness import machine
from headrace.cli.training_jobs import role_command
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.event_log import Entry, EventLog, LogOwner, read_log
from trainer.job.control.job_files import JobFiles
from trainer.job.control.logged_job import LoggedJob, replay
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.scheduling.events import Heartbeat, Joined, Left, Role, RoleKind, Tick
from trainer.scheduling.job import Job, JobSettings
from trainer.scheduling.work_units import UnitPlan
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import HeadraceError

JOB = "benchmark"
CONTROLLER = """
import pickle, resource, sys, time
from pathlib import Path
from trainer.job.control.controller import ControllerSettings
from trainer.job.control.job_files import JobFiles
from trainer.job.control.open_controller import open_controller
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import JobSettings

class Nothing:
    def publish(self, order):
        pass

run_dir = Path(sys.argv[1])
plan = pickle.loads((run_dir / "plan").read_bytes())
step = plan.stop_unit // 1000
stops = tuple(range(step, plan.stop_unit, step)) + (plan.stop_unit,)
data = DataRange("0" * 64, plan.stop_unit, stops)
settings = ControllerSettings(job="benchmark")
files = JobFiles(run_dir)
files.make_token()
with open_controller(files, JobSettings(), Nothing(), controller_settings=settings, data=data) as (controller, _):
    controller.run()
usage = resource.getrusage(resource.RUSAGE_SELF)
loaded = {"tensorflow", "keras", "apache_beam", "sqlalchemy", "pandas", "numba"} & set(sys.modules)
print(usage.ru_maxrss / 1024, plan.stop_unit, len(stops), ",".join(loaded) or "none")
"""
CALLS = """
import sys, time
from pathlib import Path
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import RoleCall
from trainer.scheduling.events import Joined, Role, RoleKind
role, calls = Role(RoleKind.READER, sys.argv[2]), int(sys.argv[3])
client = ControllerClient.of_run(JobFiles(Path(sys.argv[1])), job="benchmark")
client.send(RoleCall("benchmark", role, 1, None, (Joined(0.0, role, 1, "", 1),)))
begun = time.perf_counter()
for _ in range(calls):
    client.send(RoleCall("benchmark", role, 1))
print(time.perf_counter() - begun)
"""


def write_plan(path: Path, fragments: int) -> None:
    """A plan of 50 units per fragment, pickled."""
    numbers = np.arange(fragments, dtype=np.int32)
    plan = UnitPlan(
        most_rows=1000,
        keys=tuple(f"part-{n // 200}/f{n}.parquet" for n in range(fragments)),
        partitions=numbers // 200,
        end_secs=np.zeros(fragments),
        fragment=numbers,
        first_row=np.zeros(fragments, np.int32),
        rows=np.full(fragments, 50_000, np.int32),
        due=np.full(fragments, 50_000, np.int32),
        pass_number=np.zeros(fragments, np.uint8),
        section_units=50 * np.arange(fragments + 1),
        section_due=50_000 * np.arange(fragments + 1),
    )
    path.write_bytes(pickle.dumps(plan))


def cpu_secs(process_id: int) -> float:
    """The CPU seconds of a process so far."""
    user, system = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class RunningController:
    """A controller in a process. ``start_secs``: until it answered."""

    def __init__(self, run_dir: Path) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, str(run_dir)], stdout=subprocess.PIPE, text=True
        )
        self.client = ControllerClient.of_run(JobFiles(run_dir), job=JOB)
        while True:
            try:
                self.status = self.client.status()
                break
            except Unreachable:
                time.sleep(0.002)
        self.start_secs = time.perf_counter() - begun
        self.start_cpu_secs = cpu_secs(self.process.pid)

    def stop(self) -> str:
        self.client.stop(now=True)
        output, _ = self.process.communicate(timeout=60)
        return output


def starts(run_dir: Path, rounds: int) -> None:
    print("| start | seconds | CPU seconds | MB at the end | units | ends of epochs | forbidden modules |")
    print("|---|---|---|---|---|---|---|")
    for number in range(rounds):
        running = RunningController(run_dir)
        rss, units, stops, loaded = running.stop().split()
        JobFiles(run_dir).log.unlink()
        print(
            f"| {number + 1} | {running.start_secs:.2f} | {running.start_cpu_secs:.2f} | {float(rss):.0f} | {int(units):,} | "
            f"{int(stops):,} | {loaded} |"
        )


def reader_starts(run_dir: Path, rounds: int) -> None:
    """Start readers of a job, one after another, beside its controller."""
    files = JobFiles(run_dir)
    files.make()
    files.make_token()
    JobSpec(FORMAT, JOB, JobSettings(release=version("headrace")), None, str(run_dir / "home")).write(files)
    controller = subprocess.Popen(role_command(str(run_dir), "controller", "controller", ()), stderr=subprocess.DEVNULL)
    client = ControllerClient.of_run(files, job=JOB)
    _wait_for(client, 0)
    print("| start of a reader | seconds | CPU seconds | MB | TensorFlow or Beam |")
    print("|---|---|---|---|---|")
    for number in range(rounds):
        begun = time.perf_counter()
        reader = subprocess.Popen(role_command(str(run_dir), "reader", f"r{number}", ()), stderr=subprocess.DEVNULL)
        _wait_for(client, 1)
        secs, cpu = time.perf_counter() - begun, cpu_secs(reader.pid)
        proc = Path(f"/proc/{reader.pid}")
        mapped, pages = (proc / "maps").read_text(), int((proc / "statm").read_text().split()[1])
        loaded = [name for name in ("tensorflow", "apache_beam") if name in mapped]
        print(f"| {number + 1} | {secs:.2f} | {cpu:.2f} | {pages * 4096 / 1e6:.0f} | {', '.join(loaded) or 'none'} |")
        reader.terminate()
        reader.wait(60)
        _wait_for(client, 0)
    client.stop(now=True)
    controller.wait(60)


def _wait_for(client: ControllerClient, readers: int) -> None:
    """Wait until the job has so many readers."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            if len(client.status().live(RoleKind.READER)) == readers:
                return
        except HeadraceError:
            pass  # the controller is starting
        time.sleep(0.01)
    raise SystemExit(f"a job must have {readers} readers within 60 s")


def heartbeats(run_dir: Path, roles: int, calls: int) -> None:
    running = RunningController(run_dir)
    before = cpu_secs(running.process.pid)
    begun = time.perf_counter()
    clients = [
        subprocess.Popen([sys.executable, "-c", CALLS, str(run_dir), f"r{n}", str(calls)], stdout=subprocess.PIPE)
        for n in range(roles)
    ]
    for one in clients:
        one.communicate()
    secs, cpu = time.perf_counter() - begun, cpu_secs(running.process.pid) - before
    events = roles * calls
    log_bytes = running.client.status().log_bytes
    running.stop()
    JobFiles(run_dir).log.unlink()
    print(f"{events:,} heartbeats of {roles} processes: {events / secs:,.0f}/s with the senders on the same machine, "
          f"{cpu / events * 1e6:.0f} us of the controller's CPU each; the log has {log_bytes:,} bytes")  # fmt: skip


def logged_events(folder: Path, count: int) -> None:
    first = Job(JobSettings(hosts=2))
    roles = [Role(RoleKind.READER, f"r{n}") for n in range(16)]

    def event(number: int):
        role = roles[number % 16]
        return Joined(0.0, role, number + 1, "", 1)

    for together in (1, 16):
        log = EventLog(folder / f"together{together}", LogOwner(JOB, "", 1), first)
        job = LoggedJob(first, log, check_lease=lambda: None)
        begun, cpu = time.perf_counter(), time.process_time()
        for start in range(0, count, together):
            job.apply([event(n) for n in range(start, start + together)])
        secs, cpu = time.perf_counter() - begun, time.process_time() - cpu
        print(f"{count:,} logged events, {together} per append: {count / secs:,.0f}/s, {cpu / count * 1e6:.0f} us of CPU each; "
              f"the log has {log.size_bytes:,} bytes")  # fmt: skip


def replays(folder: Path, count: int) -> None:
    """A log of joins, heartbeats, ticks and leaves of 16 readers, which is never replaced."""
    first, roles = Job(JobSettings(hosts=2)), [Role(RoleKind.READER, f"r{n}") for n in range(16)]
    log = EventLog(folder / "long", LogOwner(JOB, "", 1), first, most_bytes=1 << 40, sync=lambda descriptor: None)
    for start in range(0, count, 4):
        role, number, at = roles[start // 4 % 16], start + 1, start / 100
        log.append([Entry(Joined(at, role, number, "", 1), at, at), Entry(Heartbeat(at, role, number), at, at),
                    Entry(Tick(at), at, at), Entry(Left(at, role, number), at, at)], first)  # fmt: skip
    begun, cpu = time.perf_counter(), time.process_time()
    with read_log(log.path, job=JOB, release="") as found:
        assert found is not None
        replay(found[0].job, found[1])
    secs, cpu = time.perf_counter() - begun, time.process_time() - cpu
    limit = 1 << 20
    print(f"replay of {count:,} events: {secs:.2f} s ({cpu:.2f} s of CPU) for {log.size_bytes:,} bytes; "
          f"a log is replaced at {limit:,} bytes, {secs * limit / log.size_bytes:.2f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of everything")
    small = parser.parse_args().small
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plan(folder / "plan", 2_000 if small else 20_000)
        starts(folder, 2 if small else 5)
        reader_starts(folder / "readers", 2 if small else 5)
        heartbeats(folder, 4, 250 if small else 2_500)
        logged_events(folder, 480 if small else 4_800)
        replays(folder, 10_000 if small else 100_000)


if __name__ == "__main__":
    main()
