"""Embedding workers in threads of a test, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.support.parameter_servers import ThreadServer
from tests.support.processes import PATIENCE_SECS
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting
from trainer.servers.embedding_worker import EmbeddingWorker
from trainer.servers.service import ServerService, ServiceLimits
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, connect_through, connect_to
from trainer.tables import FeatureSpec
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import ConnectWorker
from trainer.tables.routes.workers.engine import WorkerEngine, direct_engine
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen


class ThreadWorker:
    """An embedding worker in this process, over servers at addresses."""

    def __init__(
        self, servers: Sequence[Address], *, token: str = "", limits: ServiceLimits | None = None, threads: int = 1, tls=None
    ) -> None:  # fmt: skip
        self.listening = listen(LOOPBACK)

        def connect(greeting: Greeting, check: Callable[[], None], named: NamedServers | None):
            found = NamedServers(tuple(servers)) if named is None else named
            own = greeting if named is None else replace(greeting, token=named.token)
            options = LinkOptions(own, patience_secs=PATIENCE_SECS, check=check)
            return [connect_to(address, options) for address in found.addresses]

        self.worker = EmbeddingWorker(connect, threads=threads)
        self.service = ServerService(self.listening, self.worker, token=token, limits=limits, tls=tls)
        self.address = self.service.address

    def connect(
        self, greeting: Greeting | None = None, *, patience_secs: float = PATIENCE_SECS, tls=None
    ) -> ConnectWorker:
        options = LinkOptions(greeting or Greeting(), patience_secs=patience_secs, tls=tls)
        return connect_through(self.address, options)

    def close(self) -> None:
        self.service.close()
        self.listening.close()


def engine_through(
    features: Sequence[FeatureSpec],
    servers: Sequence[ThreadServer],
    *workers: ThreadWorker,
    seed: int,
    greeting: Greeting | None = None,
    wire: WireSettings | None = None,
    hashed: Mapping[str, TableLimits] | None = None,
    staleness: int | None = 0,
    overlaps: bool = False,
    **settings,
) -> WorkerEngine:
    """An engine over servers in threads, with a lane for each of the workers."""
    own = greeting or Greeting()
    connects = [one.connect(replace(own, role=SessionRole.LOADS)) for one in servers]
    tables = WorkerTables(tuple(features), seed, wire=wire or WireSettings(), hashed=hashed or {}, **settings)
    lanes = connects_of(workers, own)
    return WorkerEngine(tables, direct_engine(tables, connects), lanes, staleness=staleness, overlaps=overlaps)


def connects_of(workers: Sequence[ThreadWorker], own: Greeting) -> list[ConnectWorker]:
    """The connections of a client with a lane for each of the workers."""
    return [one.connect(replace(own, lane=lane, lanes=len(workers))) for lane, one in enumerate(workers)]


def engine_on_worker(
    features: Sequence[FeatureSpec],
    *,
    seed: int,
    servers: int,
    plan: PartitionPlan | None = None,
    hashed: Mapping[str, TableLimits] | None = None,
) -> WorkerEngine:
    """An engine whose worker and servers run until the process ends."""
    made = [ThreadServer() for _ in range(servers)]
    worker = ThreadWorker([one.address for one in made])
    return engine_through(features, made, worker, seed=seed, plan=plan, hashed=hashed)
