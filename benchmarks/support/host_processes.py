"""Host processes that work together over TCP, on the channels of a job, behind a link with a delay and a rate."""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from benchmarks.support.delayed_mailbox import DelayedMailbox, Link
from benchmarks.support.job_token import TOKEN
from benchmarks.support.piped_processes import ONE_THREAD, PipedProcesses
from trainer.job.host.channels import Channels, members_of, names_of
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.host_messages import Sender
from trainer.planning.host_grid import HostGrid
from trainer.wire.flight.addresses import Address

_PATIENCE_SECS = 300.0

Result = TypeVar("Result", covariant=True)


class Work(Protocol[Result]):
    """What all hosts do together; it is sent to their processes."""

    @property
    def link(self) -> Link:
        """The link into each host; of hosts on a grid, from other machines."""

    def run(self, channels: Channels) -> Result:
        """Do it on one host."""


def _serve(rank: int, pipe: Connection, hosts: int, grid: HostGrid | None) -> None:
    """One host: does the work that comes until None."""

    def is_far(sender: Sender) -> bool:
        return grid is None or sender.rank // grid.places != rank // grid.places

    mailbox = DelayedMailbox(is_far)
    with ExchangeService(Address("127.0.0.1", 0), mailbox, token=TOKEN) as service:
        pipe.send(service.address)
        addresses, attempt = pipe.recv(), 0
        while (work := pipe.recv()) is not None:
            attempt += 1
            mailbox.link = work.link
            each = [
                HostExchange(mailbox, attempt, rank, addresses, channel=name, members=members_of(name, rank, hosts, grid), token=TOKEN,
                             check=lambda: None, patience_secs=_PATIENCE_SECS)
                for name in names_of(grid)
            ]  # fmt: skip
            before = mailbox.far_bytes
            result = work.run(Channels.of(each, grid))
            pipe.send((result, mailbox.far_bytes - before))
            pipe.recv()  # all hosts are done
            for one in each:
                one.close()


class HostProcesses(PipedProcesses):
    """``hosts`` processes with one thread for their matrices; ``grid``: of the hosts, if several share a machine.

    Attributes:
        far_bytes: that have passed the link into each host in the last work.
    """

    def __init__(self, hosts: int, grid: HostGrid | None = None) -> None:
        serve = partial(_serve, hosts=hosts, grid=grid)
        super().__init__(serve, hosts, {**ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "3"})
        self.far_bytes: list[int] = []
        self.send(self.receive())  # their addresses

    def run(self, work: Work[Result]) -> list[Result]:
        """What ``work`` gives on each host. Raises :class:`EOFError` if a process ended."""
        self.send(work)
        found: list[tuple[Result, int]] = self.receive()
        self.send(None)
        self.far_bytes = [size for _, size in found]
        return [result for result, _ in found]
