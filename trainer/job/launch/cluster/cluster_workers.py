"""The readers and hosts of a job that run elsewhere: as a JobSet that is suspended while none is wanted, or started by others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from trainer.job.control.messages import JobStatus
from trainer.job.launch.cluster.set_scale import SetScale
from trainer.job.launch.cluster.suspension import Suspension
from trainer.scheduling.transitions import FINAL
from transforms.errors import HeadraceError

#: After a failed request, between looks whether the JobSet is there, and between those whether it is still suspended.
_RETRY_SECS, _CHECK_SECS = 5.0, 30.0
#: How long a JobSet may take to finish after its job, and between looks.
_FINISH_SECS, _LOOK_SECS = 30.0, 1.0


class ClusterWorkers:
    """Readers and hosts on other machines.

    Args:
        suspension: of their JobSet; None: others start and end them.
        on_message: called with a sentence about a request that failed, or a JobSet that is missing.
        clock: monotonic seconds.
        is_kept: whether the JobSet is suspended at the end instead of finished, since another job will resume it.
        readers: whose number follows what the controller wants; None: they are part of the JobSet, or others start them.
        servers: the same of parameter servers.
    """

    wait_while_held = True

    def __init__(
        self,
        suspension: Suspension | None,
        on_message: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_kept: bool = False,
        readers: SetScale | None = None,
        servers: SetScale | None = None,
    ) -> None:
        self._readers, self._servers = readers, servers
        self._suspension, self._on_message, self._clock, self._is_kept = suspension, on_message, clock, is_kept
        self._is_suspended: bool | None = None
        self._next_secs = 0.0
        self._problem = ""

    def follow(self, status: JobStatus, *, is_leaving: bool) -> None:
        """Resume the JobSet when processes are wanted for a plan, suspend it when none is; have as many readers and servers as wanted.

        After the job they end by themselves, which completes the JobSet: see :meth:`end`.
        """
        if status.state in FINAL:
            return
        is_wanted = status.planned_units > 0 and status.wanted_hosts + status.wanted_readers > 0 and not is_leaving
        self._follow(not is_wanted)
        self._scale(status.wanted_readers if is_wanted else 0, pods_of(status.running_servers) if is_wanted else 0)

    def suspend(self) -> None:
        """Suspend the JobSet, and end what is scaled, whatever the controller wants."""
        self._next_secs = 0.0
        self._follow(True)
        self._end_scaled()

    def keep_suspended(self) -> None:
        """Suspend the JobSet and what is scaled, and look now and then whether they still are; call it often."""
        self._follow(True)
        self._scale(0, 0)

    def end(self) -> None:
        """Suspend the JobSet unless it finishes by itself: its processes end with their job. What is scaled ends at once."""
        have_ended = not self._scaled  # a StatefulSet starts its pods again
        until_secs = self._clock() + (0.0 if self._is_kept else _FINISH_SECS)
        while self._suspension is not None and not self._is_suspended and self._clock() < until_secs:
            try:
                have_ended = have_ended or self._end_scaled()
                if have_ended and self._suspension.is_finished():
                    return
            except HeadraceError as error:
                self._on_message(f"JobSet {self._suspension.place}: {error.what}: {error.value}")
            time.sleep(_LOOK_SECS)
        self.suspend()

    def are_gone(self, status: JobStatus) -> bool:
        """Whether the job has no member but its parameter servers and embedding workers, which end with their cluster."""
        return all(one.role.kind.is_watched for one in status.members)

    @property
    def _scaled(self) -> list[SetScale]:
        return [one for one in (self._readers, self._servers) if one is not None]

    def _end_scaled(self) -> bool:
        """Have no scaled process run. Returns whether the cluster has agreed."""
        ended = [one.end() for one in self._scaled]
        return all(ended)

    def _scale(self, readers: int, servers: int) -> None:
        if self._readers is not None:
            self._readers.follow(readers)
        if self._servers is not None:
            self._servers.follow(servers)

    def _follow(self, is_suspended: bool) -> None:
        # A person may suspend what the controller wants; a JobSet that is to be suspended stays so.
        is_known = is_suspended == self._is_suspended
        if self._suspension is None or (is_known and not is_suspended):
            return
        if (is_known or self._problem) and self._clock() < self._next_secs:
            return
        try:
            is_there = self._suspension.set(is_suspended)
            problem = "" if is_there else f"JobSet {self._suspension.place} is not there yet, or not queued"
        except HeadraceError as error:
            is_there, problem = False, f"JobSet {self._suspension.place}: {error.what}: {error.value}"
        if problem and problem != self._problem:
            self._on_message(problem)
        self._problem = problem
        self._is_suspended = is_suspended if is_there else None
        self._next_secs = self._clock() + (_CHECK_SECS if is_there else _RETRY_SECS)


def pods_of(names: Collection[str]) -> int:
    """The pods of a StatefulSet among which are those of these servers: pod k is server ``s{k}``."""
    return max((int(one[1:]) + 1 for one in names), default=0)


@contextmanager
def suspended_afterwards(workers: ClusterWorkers) -> Iterator[None]:
    """Suspend the workers after the block, unless the process is terminated: then the next one goes on with them."""
    try:
        yield
    except SystemExit:
        raise
    except BaseException:
        workers.suspend()
        raise
    workers.end()
