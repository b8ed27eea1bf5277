"""Preemption notices to the parameter servers and embedding workers of one job: epochs that are lost or repeated.

    python -m benchmarks.server_notices [--notices 100] [--servers 2] [--workers 2] [--passes 24] [--epoch-secs 3] [--seed 1] [--quick]

Two hosts train a made log; their tables are on the servers, which they reach through the workers. SIGTERM comes to a server or a worker by turns, at
seeded random moments of its epochs: once the job has trained events again, after a time that is uniform over an epoch. The process leaves, and is
started again. An epoch is lost if an attempt that had trained events was given up, and repeated if it is trained by more than one attempt. After the
last notice the job trains to its end, and the ledger of the newest commit says how often each event was trained.

Targets: no epoch lost or repeated, no event lost or repeated.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.support.harness import machine
from headrace.cli.options.servers import server_command, worker_command
from headrace.cli.training_jobs import role_command, server_roles, worker_roles
from tests.trainer.job.launch.jobs import launch, make_warehouse, prepare, settings
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.chaos.accounts import Accounts
from trainer.job.launch.chaos.proof import TrainedEvents, count_trained
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.local_servers import LocalServers
from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
from trainer.scheduling.transitions import JobState
from transforms.errors import listed
from warehouse import Warehouse
from warehouse.scheduling.backoff import Backoff

SERVER, WORKER = "server", "worker"
BACKOFF = Backoff(first_secs=0.1, most_secs=0.5, jitter=0.0)


@dataclass
class Epochs:
    """The epochs of a job, and the events that each attempt has trained of them, by its statuses."""

    attempts: dict[int, dict[int, int]] = field(default_factory=dict)

    def see(self, status: JobStatus) -> None:
        """A status that came now."""
        reports = [one.progress for one in status.members if one.progress is not None]
        events = sum(one.events for one in reports if one.attempt == status.attempt)
        if events:
            self.attempts.setdefault(status.epoch, {})[status.attempt] = events

    @property
    def given_up(self) -> tuple[int, ...]:
        """The events of each attempt that was given up with trained events: a later one has the same epoch."""
        return tuple(events for found in self.attempts.values() for events in list(found.values())[:-1])

    @property
    def repeated(self) -> int:
        """The epochs that more than one attempt has trained."""
        return sum(len(found) > 1 for found in self.attempts.values())


class Notices:
    """Gives ``count`` notices to servers and workers by turns, while a job trains."""

    def __init__(self, processes: dict[str, LocalServers], count: int, epoch_secs: float, seed: int) -> None:
        self._processes, self._count, self._epoch_secs = processes, count, epoch_secs
        self._draw, self._over = random.Random(seed), threading.Event()
        self.given = dict.fromkeys(processes, 0)
        self.accounts, self.epochs = Accounts(), Epochs()

    def on_status(self, status: JobStatus) -> None:
        """A status of the job."""
        self.accounts.see(status, time.monotonic())
        self.epochs.see(status)

    def run(self) -> None:
        """Give the notices; a notice is over when its process has ended and another one has begun."""
        kinds = list(self._processes)
        while sum(self.given.values()) < self._count:
            kind = kinds[sum(self.given.values()) % len(kinds)]
            if not self._wait_for_training() or self._over.wait(self._draw.uniform(0.0, self._epoch_secs)):
                return
            found = self._processes[kind].processes
            if not found or not self.accounts.is_training:
                continue
            name = self._draw.choice(sorted(found))
            self.accounts.notices.append(self.accounts.interruption(kind, time.monotonic()))
            os.kill(found[name], signal.SIGTERM)
            self.given[kind] += 1
            while self._processes[kind].processes.get(name, found[name]) == found[name] and not self._over.wait(0.05):
                pass

    def _wait_for_training(self) -> bool:
        while not self.accounts.is_training:
            if self._over.wait(0.05):
                return False
        return True

    def end(self) -> None:
        """The job has ended."""
        self._over.set()


@dataclass(frozen=True)
class Outcome:
    """What notices have cost.

    Attributes:
        state: of the job at its end.
        given: the notices, by kind.
        attempts: that have trained events.
        commits: attempts that were committed.
        given_up: the events of each attempt that was not committed.
        repeated: epochs that more than one attempt has trained.
        trained: the events of the run, by its ledger.
        commit_secs: from each notice to a server to the commit of its epoch.
        secs: of the job.
    """

    state: JobState
    given: dict[str, int]
    attempts: int
    commits: int
    given_up: tuple[int, ...]
    repeated: int
    trained: TrainedEvents
    commit_secs: tuple[float, ...]
    secs: float

    @property
    def is_exact(self) -> bool:
        """Whether the job is done, and nothing was lost or repeated."""
        return self.state is JobState.DONE and not self.given_up and not self.repeated and self.trained.is_exact


def disturb(
    warehouse: Warehouse,
    folder: Path,
    *,
    notices: int,
    servers: int,
    workers: int,
    passes: int,
    epoch_secs: float,
    seed: int,
) -> Outcome:
    """Train a job to its end under notices, or under those that it outlasts."""
    run, options = folder / "run", {"batch_rows": 128, "passes": passes, "linear": True}
    files = JobFiles(run)
    files.make_token()
    token = str(files.token)
    with ExitStack() as opened:
        started = LocalServers(servers, server_command, token_file=files.token, logs=run / "logs", runs=str(run))
        of_servers = opened.enter_context(started)
        processes = {SERVER: of_servers}
        if workers:
            command = partial(worker_command, of_servers.addresses, "", token)
            started = LocalServers(
                workers, command, token_file=files.token, logs=run / "logs", kind="w", has_rows=False
            )
            processes[WORKER] = opened.enter_context(started)
        at_workers = processes[WORKER].addresses if workers else ()
        spec = ServersSpec(tuple(map(str, of_servers.addresses)), token_file=token, run=1, workers=tuple(map(str, at_workers)),
                           workers_token_file=token if workers else "")  # fmt: skip
        of = settings(2, epoch_secs=epoch_secs, most_readers=2, most_restarts=10**6, backoff=BACKOFF)
        job = launch(warehouse, run, of, unit_rows=500, servers=spec, **options)
        found = Notices(processes, notices, epoch_secs, seed)
        supervisor = Supervisor(
            files,
            job.spec.job,
            partial(role_command, str(run)),
            on_status=found.on_status,
            settings=SupervisorSettings(look_secs=0.1, backoff=BACKOFF),
            servers=server_roles(job.spec, files, tell=lambda sentence: None),
            embedding_workers=worker_roles(job.spec, files, tell=lambda sentence: None),
        )
        thread = threading.Thread(target=found.run, daemon=True)
        thread.start()
        began = time.monotonic()
        try:
            status = supervisor.run(job.newest)
        finally:
            found.end()
        thread.join()
        secs = time.monotonic() - began
    commits, epochs = found.accounts.commits, found.epochs
    of_server = [one for one in found.accounts.notices if one.role == SERVER and one.attempt in commits]
    return Outcome(
        status.state,
        found.given,
        sum(map(len, epochs.attempts.values())),
        len(commits),
        epochs.given_up,
        epochs.repeated,
        count_trained(prepare(warehouse, run, **options)),
        tuple(commits[one.attempt] - one.at_secs for one in of_server),
        secs,
    )


def main() -> int:
    """Measure; the exit status is 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notices", type=int, default=100)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="embedding workers; 0: hosts use the servers themselves")
    parser.add_argument("--passes", type=int, default=24, help="passes over the log: the job must outlast the notices")
    parser.add_argument("--epoch-secs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="4 notices, 6 passes and epochs of 2 s")
    given = parser.parse_args()
    notices, passes, epoch_secs = (4, 6, 2.0) if given.quick else (given.notices, given.passes, given.epoch_secs)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-notices-") as name:
        folder = Path(name)
        with make_warehouse(folder, hours=3, rows=20_000) as warehouse:
            found = disturb(warehouse, folder, notices=notices, servers=given.servers, workers=given.workers, passes=passes,
                            epoch_secs=epoch_secs, seed=given.seed)  # fmt: skip
    if (outlasted := sum(found.given.values())) < notices:
        raise SystemExit(
            f"the job ended {found.state} after {outlasted} of {notices} notices: give more --passes than {passes}"
        )
    kinds = ", ".join(f"{count} to {kind}s" for kind, count in found.given.items())
    print(f"{notices} notices ({kinds}) in {found.secs:.0f} s: {len(found.given_up)} epochs lost, {found.repeated} repeated, of {found.attempts} attempts with "
          f"{found.commits} commits")  # fmt: skip
    if found.given_up:
        print(
            f"the attempts that were given up had trained {listed([f'{one:,}' for one in sorted(found.given_up)])} events"
        )
    print(
        f"{found.trained.events:,} events in {found.trained.expected} passes: {found.trained.lost} lost, {found.trained.repeated} repeated"
    )
    if found.commit_secs:
        print(
            f"commits {statistics.median(found.commit_secs):.2f} s after the notice to a server in the median, {max(found.commit_secs):.2f} s at most"
        )
    return 0 if found.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
