"""Host processes that train the dense part of a model together, over TCP, in several ways of adding their gradients."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from benchmarks.support.delayed_mailbox import DelayedMailbox, Link
from trainer.embedding.exchange import all_gather, summed
from trainer.flight.addresses import Address
from trainer.host.channels import ChannelName, Channels
from trainer.host.dense_all_reduce import DenseAllReduce
from trainer.host.exchange_service import ExchangeService
from trainer.host.gradient_buckets import BUCKET_BYTES, GradientBuckets
from trainer.host.host_exchange import HostExchange

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel

Array = np.ndarray[Any, np.dtype[Any]]

#: The ways of a step: whole vectors to all hosts after the backward pass; buckets after it; buckets while it runs.
GATHERED, BUCKETED, OVERLAPPED = WAYS = ("gathered", "bucketed", "overlapped")
_INPUTS = 64
_PATIENCE_SECS = 300.0


@dataclass(frozen=True, slots=True)
class DenseCase:
    """A tower of ``layers`` layers of ``width`` over batches of ``rows`` events; so many ``bucket_bytes`` a bucket."""

    width: int
    layers: int
    rows: int
    bucket_bytes: int = BUCKET_BYTES

    @property
    def dense_bytes(self) -> int:
        """Of the weights, about."""
        return 4 * self.width * (_INPUTS + (self.layers - 1) * self.width)


@dataclass(frozen=True, slots=True)
class TimedRounds:
    """Steps of a case in every way, in turns, behind a link."""

    case: DenseCase
    link: Link
    steps: int
    rounds: int


#: By way, the seconds of a step in each round; and the seconds of a step without other hosts.
Times = tuple[dict[str, list[float]], float]


class _Trainer:
    """One host's part of a case."""

    def __init__(self, case: DenseCase, channels: Channels) -> None:
        self._channels = channels
        self._model = _model(case)
        buckets = GradientBuckets.of(self._model.sizes, channels.steps.hosts, case.bucket_bytes)
        self._sums = DenseAllReduce(buckets, channels.shares, channels.sums)
        self._staged = self._model.gradients_in_stages(buckets.groups, self._sums.put)
        rng = np.random.default_rng(channels.steps.rank)
        draw = rng.standard_normal
        labels = (rng.random(case.rows) < 0.3).astype(np.float32)
        none = np.zeros((case.rows, 0), np.float32)
        inputs = draw((case.rows, _INPUTS), np.float32)
        self._rows, self._inputs = case.rows, (inputs, none, none, labels, np.ones(case.rows, np.float32))

    def step(self, way: str) -> None:
        """Train a step."""
        if way == GATHERED:
            *_, flat = self._model.gradients(*self._inputs)
            counts = [int(a[0][0]) for a in all_gather(self._channels.steps, [np.array([self._rows], np.int64)])]
            self._model.apply(summed(self._channels.steps, flat * np.float32(self._rows / sum(counts))))
            return
        self._sums.begin(self._rows)
        if way == OVERLAPPED:
            self._staged(*self._inputs)
        else:
            *_, flat = self._model.gradients(*self._inputs)
            self._sums.put_all(flat)
        self._model.apply(self._sums.finish().gradients)

    def alone(self) -> None:
        """A step without other hosts."""
        *_, flat = self._model.gradients(*self._inputs)
        self._model.apply(flat)

    def times(self, rounds: TimedRounds) -> Times:
        """See :data:`Times`; all hosts begin a round together."""
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds.rounds + 1):  # the first traces
            for way in WAYS:
                secs = self._timed(lambda way=way: self.step(way), rounds.steps if number else 2)  # type: ignore[misc]
                if number:
                    found[way].append(secs)
        return found, self._timed(self.alone, rounds.steps)

    def _timed(self, work: Any, steps: int) -> float:
        all_gather(self._channels.steps, [np.zeros(1, np.int64)])
        began = time.perf_counter()
        for _ in range(steps):
            work()
        return (time.perf_counter() - began) / steps


def _model(case: DenseCase) -> DenseModel:
    from trainer.config import TrainConfig
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.training.run_state import build_weights
    from transforms.types import DType, Ragged

    config = TrainConfig(
        "unused", batch_rows=case.rows, dim=_INPUTS, bottom_mlp=(), top_mlp=(case.width,) * case.layers, threads=1
    )
    layout = lay_out([TypedInput("ids", Ragged(DType.INT64, 100))], config)
    return build_weights(layout, config, with_tables=False).dense


def _serve(rank: int, pipe: Connection) -> None:
    """One host: does the rounds that come until None."""
    mailbox = DelayedMailbox()
    with ExchangeService(Address("127.0.0.1", 0), mailbox) as service:
        pipe.send(service.address)
        addresses, attempt = pipe.recv(), 0
        while (rounds := pipe.recv()) is not None:
            attempt += 1
            mailbox.link = rounds.link
            each = [
                HostExchange(mailbox, attempt, rank, addresses, channel=name, check=lambda: None, patience_secs=_PATIENCE_SECS)
                for name in ChannelName
            ]  # fmt: skip
            pipe.send(_Trainer(rounds.case, Channels(*each)).times(rounds))
            pipe.recv()  # all hosts are done
            for one in each:
                one.close()


class DenseHosts:
    """``hosts`` processes with one thread for their matrices."""

    def __init__(self, hosts: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(hosts)]
        self._pipes = [own for own, _ in pipes]
        self._processes = [
            context.Process(target=_serve, args=(rank, other), daemon=True) for rank, (_, other) in enumerate(pipes)
        ]
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}  # of the processes that start now
        for process in self._processes:
            process.start()
        for _, other in pipes:
            other.close()
        addresses = [pipe.recv() for pipe in self._pipes]
        for pipe in self._pipes:
            pipe.send(addresses)

    def run(self, rounds: TimedRounds) -> list[Times]:
        """The times of each host. Raises :class:`EOFError` if a process ended."""
        for pipe in self._pipes:
            pipe.send(rounds)
        found: list[Times] = [pipe.recv() for pipe in self._pipes]
        for pipe in self._pipes:
            pipe.send(None)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if kind is None:
                pipe.send(None)
            else:
                process.kill()
            process.join()
