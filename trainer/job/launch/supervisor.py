"""Runs a job: its controller, the readers and hosts that the controller wants, and a report of how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from trainer.errors import DataNotReady
from trainer.job.control.controller_client import ControllerClient, is_away, is_other_service
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.child_processes import ChildProcesses, Command, RunningProcess
from trainer.job.launch.outcome import read_outcome, remove_outcome
from trainer.job.launch.server_roles import ServerRoles
from trainer.job.launch.workers import LocalWorkers, Workers
from trainer.scheduling.events import DataRange
from trainer.scheduling.holds import ErrorClass, describe_error
from trainer.scheduling.orders import Commit
from trainer.scheduling.transitions import FINAL, JobState
from transforms.errors import DataError, HeadraceError, StorageError
from warehouse.scheduling.backoff import Backoff

_BACKOFF = Backoff(first_secs=0.25, most_secs=15.0, jitter=0.0)
_CONTROLLER = "controller"
#: A controller that ended so often without an answer does not start: by itself, or killed.
_MOST_STARTS, _MOST_KILLED_STARTS = 3, 20

#: Looks for more data of a job that has trained all it knows, or waits for data: its whole range, or None if there is no more.
#: Raises :class:`DataNotReady`, which holds the job until a later look.
FindMore = Callable[[JobStatus], DataRange | None]
#: The name of the plan by which hosts shall hold the tables from the next attempt on; empty: rows are spread over them.
FindPartition = Callable[[JobStatus], str]


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The settings of a supervisor.

    Attributes:
        look_secs: between looks at processes and status.
        grace_secs: the notice that SIGTERM gives to the job.
        end_secs: how long processes may take to end by themselves.
        backoff: the waits before a process is started again.
        poll_secs: between looks for more data.
    """

    look_secs: float = 0.1
    grace_secs: float = 30.0
    end_secs: float = 10.0
    backoff: Backoff = _BACKOFF
    poll_secs: float = 1.0


_SETTINGS = SupervisorSettings()


class ServerScale(Protocol):
    """Starts and ends the parameter servers of a job that scales them."""

    def follow(self, names: Collection[str]) -> None:
        """Have the servers of these names run, and no others. Called again and again."""
        ...


@dataclass
class Supervisor:
    """The processes of one job.

    Args:
        files: of the run.
        job: its identity.
        command: the command line of a process.
        on_status: called with every new status of the controller.
        on_message: called with a sentence about a process that ended.
        find_more: looks for more data; None for a job that ends when its data is trained.
        workers: its readers and hosts; None: processes of this machine.
        servers: its parameter servers; None: it has none.
        embedding_workers: between hosts and servers; None: it has none.
        server_scale: starts and ends parameter servers; None: their number is fixed, or others start and end them.
        find_partition: the plan of its tables now; None: that of its beginning.
    """

    files: JobFiles
    job: str
    command: Command
    on_status: Callable[[JobStatus], None] = lambda status: None
    on_message: Callable[[str], None] = lambda message: None
    settings: SupervisorSettings = _SETTINGS
    find_more: FindMore | None = None
    workers: Workers | None = None
    servers: ServerRoles | None = None
    embedding_workers: ServerRoles | None = None
    server_scale: ServerScale | None = None
    find_partition: FindPartition | None = None
    clock: Callable[[], float] = time.monotonic
    _next_look_secs: float = 0.0
    _launch_options: tuple[str, ...] = ()
    _notice_secs: float | None = None
    _grace_secs: float = 0.0
    _noticed: bool = False
    _stops: int = 0
    _asked_stops: int = 0

    def __post_init__(self) -> None:
        logs, backoff = self.files.folder / "logs", self.settings.backoff
        self._processes = ChildProcesses(logs, self.command, backoff, self.on_message, self.clock)
        self._controller = self._processes.child(_CONTROLLER, _CONTROLLER)
        self._workers = LocalWorkers(self._processes) if self.workers is None else self.workers
        self._watched = [one for one in (self.servers, self.embedding_workers) if one is not None]

    def run(self, newest: Commit | None) -> JobStatus:
        """Run the job until it ends, is held, or has left after :meth:`give_notice`. Returns the last status.

        ``newest``: the newest intact commit. Raises :class:`StorageError` if the controller does not start.
        """
        remove_outcome(self.files)
        if newest is not None:
            self._launch_options = ("--commit", f"{newest.epochs},{newest.attempt},{newest.next_unit}")
        self._processes.start(self._controller, self._launch_options)
        client = ControllerClient.of_run(self.files, job=self.job, timeout_secs=5.0)
        status: JobStatus | None = None
        try:
            while True:
                self._restart_controller()
                found = self._look(client)
                if found is not None:
                    self._controller.failures = 0
                if found is not None and found != status:
                    status = found
                    self.on_status(status)
                if status is not None and found is not None:
                    if status.is_leaving and self._notice_secs is None:  # a notice that came by the controller
                        self.give_notice(status.deadline_in_secs)
                        self._noticed = True
                    self._tell(client, status)
                    for one in self._watched if status.state not in FINAL else ():
                        one.follow(client, status.running_servers if one is self.servers else ())
                    if self.server_scale is not None:
                        self.server_scale.follow(status.running_servers)
                    self._change_partition(client, status)
                    self._look_for_data(client, status)
                    self._workers.follow(status, is_leaving=self._notice_secs is not None)
                if (outcome := read_outcome(self.files)) is not None:
                    self.on_status(outcome)
                    return outcome
                if status is not None and self._has_left(status):
                    return status
                time.sleep(self.settings.look_secs)
        finally:
            client.close()
            self._processes.end_all(self.settings.end_secs)
            for one in self._watched:
                one.close()

    def running(self) -> dict[str, RunningProcess]:
        """The processes that run now, by name. Any thread may call it."""
        return self._processes.running()

    def give_notice(self, grace_secs: float | None = None) -> None:
        """The machine is preempted: the job commits within the grace period, and its processes leave. Any thread may call it."""
        if self._notice_secs is None:
            self._grace_secs = self.settings.grace_secs if grace_secs is None else grace_secs
            self._notice_secs = self.clock()

    @property
    def has_notice(self) -> bool:
        """Whether the job has a preemption notice."""
        return self._notice_secs is not None

    def stop(self) -> None:
        """Stop the job after a commit; at the second call, now."""
        self._stops += 1

    def _tell(self, client: ControllerClient, status: JobStatus) -> None:
        try:
            if self._notice_secs is not None and not self._noticed:
                client.notice(self._grace_secs)
                self._noticed = True
            if self._stops > self._asked_stops:
                self._asked_stops = self._stops
                client.stop(now=self._stops > 1)
        except HeadraceError as error:
            self.on_message(f"the controller did not answer: {error.what}")

    def _change_partition(self, client: ControllerClient, status: JobStatus) -> None:
        """Tell the controller about another plan of the tables, until it knows it."""
        if self.find_partition is None or status.state in FINAL:
            return
        if (wanted := self.find_partition(status)) == status.wanted_partition:
            return
        with self._spoken_of():
            client.partition(wanted)

    def _look_for_data(self, client: ControllerClient, status: JobStatus) -> None:
        """Tell the controller about more data, if it waits for some."""
        if self.find_more is None or not _waits_for_data(status) or self.clock() < self._next_look_secs:
            return
        self._next_look_secs = self.clock() + self.settings.poll_secs
        with self._spoken_of():
            try:
                found = self.find_more(status)
            except DataNotReady as error:
                if status.state is not JobState.HELD:
                    self.on_message(f"{error.what}: {error.value}")
                    client.plan_failed(describe_error(error))
                return
            if found is not None:
                client.data(found)
                self._next_look_secs = 0.0

    @contextmanager
    def _spoken_of(self) -> Iterator[None]:
        """A controller that does not answer is said, and asked again later."""
        try:
            yield
        except HeadraceError as error:
            if not is_away(error):
                raise
            self.on_message(f"the controller did not answer: {error.what}")

    def _has_left(self, status: JobStatus) -> bool:
        """Whether a job that is held or has left has no more process but the controller."""
        is_held = status.state is JobState.HELD and not (self.find_more is not None and _waits_for_data(status))
        if is_held and not self._workers.wait_while_held:
            return self._workers.are_gone(status)
        if self._notice_secs is None:
            return False
        over = self.clock() - self._notice_secs > self._grace_secs + self.settings.end_secs
        return over or (self._noticed and self._workers.are_gone(status) and status.state not in _WORKING)

    def _look(self, client: ControllerClient) -> JobStatus | None:
        """The status, or None if the controller does not answer now."""
        try:
            return client.status()
        except HeadraceError as error:
            if is_away(error) or is_other_service(error) or isinstance(error, DataError):
                return None
            raise

    def _restart_controller(self) -> None:
        child, processes = self._controller, self._processes
        if processes.reap(child) and child.process is None and read_outcome(self.files) is None:
            if child.failures > (_MOST_KILLED_STARTS if child.was_killed else _MOST_STARTS):
                raise StorageError("the controller of the job did not start", where=str(processes.log_path(child)),
                                   value=processes.last_line(child), next_step="see its log")  # fmt: skip
            # without a log the controller that ended had not begun the job
            processes.start(child, () if self.files.log.exists() else self._launch_options)


_WORKING = frozenset({JobState.TRAINING, JobState.ENDING, JobState.DRAINING, JobState.COMMITTING})


def _waits_for_data(status: JobStatus) -> bool:
    if status.state is JobState.HELD:
        return status.hold is not None and status.hold.error_class is ErrorClass.DATA_NOT_READY
    is_unknown = status.state is JobState.STARTING and not status.planned_units and not status.attempt
    return status.state is JobState.WAITING_FOR_DATA or is_unknown
