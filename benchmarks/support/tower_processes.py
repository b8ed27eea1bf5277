"""Workers of several hosts as processes that exchange embeddings over TCP: flat, or by towers. Links between hosts are limited."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.support.delayed_mailbox import DelayedMailbox, Link
from benchmarks.support.job_token import TOKEN
from benchmarks.support.piped_processes import ONE_THREAD, PipedProcesses
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.host_messages import Sender
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.towers.counted_exchange import CountedExchange, SentBytes, TowerExchanges
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_module import TowerModule
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.wire.flight.addresses import Address

Array = np.ndarray[Any, np.dtype[Any]]

_BATCHES = 3
_PATIENCE_SECS = 300.0
#: The channels of a worker: with all workers, with its peers, and with its tower.
_WORLD, _PEERS, _GROUP = range(3)


@dataclass(frozen=True, slots=True)
class TowerCase:
    """Tables with one feature each, and the events of a worker's batch.

    Attributes:
        tables, rows, dim: their number, and the size of each.
        events: of a worker's batch.
        valency: ids of a bag, by a power law of exponent ``skew``.
    """

    tables: int
    rows: int
    dim: int
    events: int
    valency: int
    skew: float = 1.05

    def features(self) -> list[FeatureSpec]:
        """The features."""
        return [FeatureSpec(name, TableSpec(name, self.rows, self.dim, Adagrad(0.01), "sum")) for name in self.names()]

    def names(self) -> list[str]:
        """The names of the features."""
        return [f"f{k:02d}" for k in range(self.tables)]

    def strided_towers(self, count: int) -> tuple[tuple[str, ...], ...]:
        """Every ``count``-th feature in one tower."""
        return tuple(tuple(self.names()[t::count]) for t in range(count))

    def batches(self, rank: int) -> list[IdBatch]:
        """Some batches of one worker."""
        found, rest, bag = [], 1 - self.skew, self.events * self.valency
        for number in range(_BATCHES):
            draw = np.random.default_rng((rank, number)).random(self.tables * bag)
            ranks = np.minimum(((self.rows**rest - 1) * draw + 1) ** (1 / rest), self.rows).astype(np.int64) - 1
            offsets = np.arange(self.tables)[:, None] * bag + np.arange(self.events + 1)[None] * self.valency
            found.append(
                IdBatch(
                    (ranks * 387_420_489 % self.rows).astype(np.int32),
                    offsets.astype(np.int64),
                    None,
                    (self.rows,) * self.tables,
                )
            )
        return found


@dataclass(frozen=True, slots=True)
class Way:
    """A way to exchange embeddings.

    Attributes:
        is_flat: every worker asks every worker for rows; all that follow but ``values`` have no effect.
        is_deterministic, is_swapped, may_send_rows, may_send_sums: those of :class:`TowerTables`.
        compression: of the towers' modules; 1: none.
        values: how rows, outputs and gradients are encoded, also those of the flat exchange.
    """

    name: str
    is_flat: bool = False
    is_deterministic: bool = True
    is_swapped: bool = False
    may_send_rows: bool = True
    may_send_sums: bool = True
    compression: int = 1
    values: str = "float32"


@dataclass(frozen=True, slots=True)
class TowerSteps:
    """Lookups and updates in one way behind ``link``, the share of each worker of its host's link."""

    case: TowerCase
    placement: TowerPlacement
    way: Way
    link: Link
    steps: int


@dataclass(frozen=True, slots=True)
class StepsDone:
    """What one worker did.

    Attributes:
        secs: of each step but the first, which reads rows that were never read.
        digests: of the outputs of each step.
        sent: in all steps.
        processor_secs: in all steps but the first.
    """

    secs: list[float]
    digests: list[str]
    sent: SentBytes
    processor_secs: float


def _run(work: TowerSteps, exchanges: Sequence[HostExchange], rank: int) -> StepsDone:
    placement, sent = work.placement, SentBytes()
    groups = (
        range(placement.workers),
        placement.peers_of(rank),
        placement.group_of(placement.tower_of(placement.host_of(rank))),
    )
    counted = [
        CountedExchange(one, [placement.host_of(member) for member in group], sent)
        for one, group in zip(exchanges, groups, strict=True)
    ]
    features = work.case.features()
    if work.way.is_flat:
        tables: ShardedTables | TowerTables = ShardedTables(
            features, seed=1, exchange=counted[_WORLD], threads=1, values=work.way.values
        )
    else:
        module, widths = _module(work, rank) if work.way.compression > 1 else (None, ())
        towers = TowerExchanges(counted[_PEERS], counted[_GROUP], counted[_WORLD])
        tables = TowerTables(features, seed=1, placement=placement, rank=rank, exchanges=towers, module=module, output_widths=widths, threads=1,
                             is_deterministic=work.way.is_deterministic, is_swapped=work.way.is_swapped, may_send_rows=work.way.may_send_rows, may_send_sums=work.way.may_send_sums, values=work.way.values)  # fmt: skip
    batches, secs, digests = work.case.batches(rank), [], []
    gradients = np.random.default_rng(rank).standard_normal((work.case.events, tables.width), np.float32)
    processor_began = 0.0
    for step in range(work.steps):
        if step == 1:
            processor_began = time.process_time()
        batch = batches[step % _BATCHES]
        began = time.monotonic()
        outputs = tables.lookup(batch)
        tables.apply_gradients(batch, gradients)
        secs.append(time.monotonic() - began)
        digests.append(hashlib.sha256(outputs.tobytes()).hexdigest())
    return StepsDone(secs[1:], digests, sent, time.process_time() - processor_began)


def _module(work: TowerSteps, rank: int) -> tuple[TowerModule, tuple[int, ...]]:
    """The module of a worker's tower in a DLRM."""
    from trainer.model.dense_model import DenseModel
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.model.tensorflow_settings import prepare_tensorflow
    from trainer.options.config import TrainConfig
    from transforms.types import DType, Ragged

    options = {"towers": work.placement.towers, "compression": work.way.compression}
    config = TrainConfig("unused", dim=work.case.dim, tower_modules=options, deterministic=False, threads=1)
    prepare_tensorflow(config)
    inputs = [TypedInput(name, Ragged(DType.INT64, work.case.rows)) for name in work.case.names()]
    model = DenseModel(lay_out(inputs, config), config, takes_outputs=True)
    module = model.tower_module(work.placement.tower_of(work.placement.host_of(rank)))
    return module, module.widths


def _serve(rank: int, pipe: Connection) -> None:
    """One worker: does the work that comes until None."""
    work: TowerSteps | None = None

    def is_far(sender: Sender) -> bool:
        assert work is not None
        placement = work.placement
        host = placement.host_of(rank)
        if sender.channel == _PEERS:
            return sender.rank != host
        member = sender.rank if sender.channel == _WORLD else placement.group_of(placement.tower_of(host))[sender.rank]
        return placement.host_of(member) != host

    mailbox = DelayedMailbox(is_far)
    with ExchangeService(Address("127.0.0.1", 0), mailbox, token=TOKEN) as service:
        pipe.send(service.address)
        addresses, attempt = pipe.recv(), 0
        while (work := pipe.recv()) is not None:
            attempt, mailbox.link, placement = attempt + 1, work.link, work.placement
            host = placement.host_of(rank)
            group = placement.group_of(placement.tower_of(host))
            members = {
                _WORLD: (rank, range(placement.workers)),
                _PEERS: (host, placement.peers_of(rank)),
                _GROUP: (group.index(rank), group),
            }
            exchanges = [
                HostExchange(mailbox, attempt, place, [addresses[one] for one in ranks], channel=channel, token=TOKEN, check=lambda: None,
                             patience_secs=_PATIENCE_SECS)
                for channel, (place, ranks) in members.items()
            ]  # fmt: skip
            pipe.send("ready")  # no message may come before all mailboxes have begun
            pipe.recv()
            pipe.send(_run(work, exchanges, rank))
            pipe.recv()  # all workers are done
            for one in exchanges:
                one.close()


class TowerProcesses(PipedProcesses):
    """``workers`` processes with one thread for their matrices; :meth:`run` does the same work on all of them."""

    def __init__(self, workers: int) -> None:
        super().__init__(_serve, workers, {**ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "3"})
        self.send(self.receive())  # their addresses

    def run(self, work: TowerSteps) -> list[StepsDone]:
        """What each worker did, by rank. Raises :class:`EOFError` if a process ended."""
        self.send(work)
        self.receive()
        self.send(None)
        found: list[StepsDone] = self.receive()
        self.send(None)
        return found
