"""Host processes that work together over TCP, on the channels of a job, behind a link with a delay and a rate."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from benchmarks.support.delayed_mailbox import DelayedMailbox, Link
from benchmarks.support.job_token import TOKEN
from benchmarks.support.piped_processes import ONE_THREAD, PipedProcesses
from trainer.job.host.channels import ChannelName, Channels
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.wire.flight.addresses import Address

_PATIENCE_SECS = 300.0

Result = TypeVar("Result", covariant=True)


class Work(Protocol[Result]):
    """What all hosts do together; it is sent to their processes."""

    @property
    def link(self) -> Link:
        """The link into each host."""

    def run(self, channels: Channels) -> Result:
        """Do it on one host."""


def _serve(rank: int, pipe: Connection) -> None:
    """One host: does the work that comes until None."""
    mailbox = DelayedMailbox()
    with ExchangeService(Address("127.0.0.1", 0), mailbox, token=TOKEN) as service:
        pipe.send(service.address)
        addresses, attempt = pipe.recv(), 0
        while (work := pipe.recv()) is not None:
            attempt += 1
            mailbox.link = work.link
            each = [
                HostExchange(mailbox, attempt, rank, addresses, channel=name, token=TOKEN, check=lambda: None, patience_secs=_PATIENCE_SECS)
                for name in ChannelName
            ]  # fmt: skip
            pipe.send(work.run(Channels(*each)))
            pipe.recv()  # all hosts are done
            for one in each:
                one.close()


class HostProcesses(PipedProcesses):
    """``hosts`` processes with one thread for their matrices."""

    def __init__(self, hosts: int) -> None:
        super().__init__(_serve, hosts, {**ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "3"})
        self.send(self.receive())  # their addresses

    def run(self, work: Work[Result]) -> list[Result]:
        """What ``work`` gives on each host. Raises :class:`EOFError` if a process ended."""
        self.send(work)
        found: list[Result] = self.receive()
        self.send(None)
        return found
