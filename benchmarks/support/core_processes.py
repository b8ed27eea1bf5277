"""Processes that are each one core of partitioned tables and exchange rows over TCP, as the hosts of a job do, with the time of each phase."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet
from benchmarks.support.job_token import TOKEN
from benchmarks.support.piped_processes import PipedProcesses
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.mailbox import Mailbox
from trainer.planning.plan import PartitionPlan
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.spec import tables_of
from trainer.wire.flight.addresses import Address

Array = np.ndarray[Any, np.dtype[Any]]

_BATCHES = 4
#: A step has three exchanges: of requests, of rows, and of gradients.
_EXCHANGES = 3
_PATIENCE_SECS = 120.0

Result = TypeVar("Result", covariant=True)


class Work(Protocol[Result]):
    """What all cores do together; it is sent to their processes."""

    def run(self, exchange: HostExchange) -> Result:
        """Do it on one core."""


class _TimedExchange:
    """An exchange that notes when each of its calls begins and ends."""

    def __init__(self, exchange: HostExchange) -> None:
        self._exchange = exchange
        self.rank, self.hosts = exchange.rank, exchange.hosts
        self.times: list[tuple[float, float]] = []

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        began = time.monotonic()
        received = self._exchange.all_to_all(parts)
        self.times.append((began, time.monotonic()))
        return received


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """When a core's steps began and ended, and the calls of the exchange in them; ``[steps]`` and ``[steps, 3, 2]`` seconds of one clock."""

    began: Array
    ended: Array
    exchanges: Array


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Lookups and updates of ``drawn`` by ``plan``, batch after batch, with the times of their phases."""

    drawn: DrawnSet
    plan: PartitionPlan
    rounds: int

    def run(self, exchange: HostExchange) -> StepTimes:
        """The times on one core."""
        timed = _TimedExchange(exchange)
        tables = tables_on(timed, self.drawn, self.plan)
        batches = self.drawn.batches(_BATCHES, timed.rank)
        gradients = np.random.default_rng(3).standard_normal((self.drawn.events, tables.width), np.float32)
        began, ended = [], []
        for number in range(1 + self.rounds):
            if number == 1:  # the first round reads rows that were never read before
                began, ended = [], []
                timed.times.clear()
            for batch in batches:
                began.append(time.monotonic())
                tables.lookup(batch)
                tables.apply_gradients(batch, gradients)
                ended.append(time.monotonic())
        return StepTimes(np.array(began), np.array(ended), np.array(timed.times).reshape(-1, _EXCHANGES, 2))


def tables_on(exchange: Exchange, drawn: DrawnSet, plan: PartitionPlan) -> ShardedTables:
    """One core's part of the tables."""
    features = drawn.features()
    parts = TableParts(tables_of(features), exchange.hosts, plan)
    return ShardedTables(features, seed=1, exchange=exchange, parts=parts, threads=1)


def _serve(rank: int, pipe: Connection) -> None:
    """One core: does the work that comes until None."""
    mailbox = Mailbox()
    with ExchangeService(Address("127.0.0.1", 0), mailbox, token=TOKEN) as service:
        pipe.send(service.address)
        addresses = pipe.recv()
        attempt = 0
        while (work := pipe.recv()) is not None:
            attempt += 1
            exchange = HostExchange(
                mailbox, attempt, rank, addresses, token=TOKEN, check=lambda: None, patience_secs=_PATIENCE_SECS
            )
            try:
                pipe.send(work.run(exchange))
            finally:
                exchange.close()


class CoreProcesses(PipedProcesses):
    """``cores`` processes with one thread for their matrices; :meth:`run` does the same work on all of them."""

    def __init__(self, cores: int) -> None:
        super().__init__(_serve, cores)
        self.send(self.receive())  # their addresses

    def run(self, work: Work[Result]) -> list[Result]:
        """What ``work`` gives on each core. Raises :class:`EOFError` if a process ended."""
        self.send(work)
        return self.receive()


@dataclass(frozen=True, slots=True, eq=False)
class PhaseSecs:
    """The median seconds of a step and of its phases.

    Attributes:
        step: from the beginning of a step to that of the next one.
        reader: [cores], for a core's own events.
        lookup: [cores], to read the rows that are asked for.
        exchange: from the moment when the last core sends to that when the last one has received.
        update: [cores].
    """

    step: float
    reader: Array
    lookup: Array
    exchange: float
    update: Array


def phase_secs(times: Sequence[StepTimes]) -> PhaseSecs:
    """The phases of a case."""
    exchanges = np.stack([one.exchanges for one in times])
    began, ended = (np.stack([getattr(one, name) for one in times]) for name in ("began", "ended"))
    reader = exchanges[:, :, 0, 0] - began + exchanges[:, :, 2, 0] - exchanges[:, :, 1, 1]
    wire = exchanges[:, :, :, 1].max(axis=0) - exchanges[:, :, :, 0].max(axis=0)
    return PhaseSecs(
        step=float(np.median(np.diff(began[0]))),
        reader=np.median(reader, axis=1),
        lookup=np.median(exchanges[:, :, 1, 0] - exchanges[:, :, 0, 1], axis=1),
        exchange=float(np.median(wire.sum(axis=1))),
        update=np.median(ended - exchanges[:, :, 2, 1], axis=1),
    )
