"""The processes of an embedding worker: a keeper, which listens, and its child, which answers and has no memory that matters."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from trainer.job.launch.keeper import Keeper
from trainer.servers.client_updates import Greeting
from trainer.servers.direct_link import DirectLink
from trainer.servers.drain import DRAIN_SECS, Drain
from trainer.servers.embedding_worker import EmbeddingWorker
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.named_links import NamedLinks
from trainer.servers.row_server import RowServer
from trainer.servers.server_metrics import EMBEDDING_WORKER
from trainer.servers.service import ServerService, ServiceLimits
from trainer.tables.batches import IdBatch
from trainer.tables.optimizers import SGD
from trainer.tables.routes.servers.frames import Header, Kind, write_document
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.routes.workers import batch_messages as messages
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.spec import FeatureSpec, TableSpec
from trainer.tables.wire.settings import IDS, WireSettings
from trainer.wire.flight.addresses import LOOPBACK, Address, check_token
from trainer.wire.flight.connections import listen
from transforms.metrics.instruments import LabelledHistograms
from transforms.metrics.registry import Registry


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of an embedding worker.

    Attributes:
        servers: the addresses of the servers, in the order of its clients.
        address: where it listens; port 0 is any.
        token: that clients must have; empty for none.
        threads: threads of the loops of a client; 0 for one a processor.
        limits: of its messages.
        server_patience_secs: how long a server may be away.
        tls: the certificate of the worker; None: connections to it are not encrypted.
        server_tls: what verifies the servers; None: connections to them are not encrypted.
        server_token: of the servers; empty for none.
        drain_secs: after SIGTERM, how long a training that watches the worker may take to commit.
        serve_metrics: serves the metrics of the process that answers, in that process.
    """

    servers: tuple[Address, ...]
    address: Address = LOOPBACK
    token: str = ""
    threads: int = 1
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    server_patience_secs: float = 60.0
    tls: ssl.SSLContext | None = None
    server_tls: ssl.SSLContext | None = None
    server_token: str = ""
    drain_secs: float = DRAIN_SECS
    serve_metrics: Callable[[Registry], None] = lambda registry: None


def run_worker(options: WorkerOptions, on_listening: Callable[[Address], None] = lambda address: None) -> int:
    """Work until SIGTERM, after which a training that watches it may commit, or SIGINT; returns an exit status.

    ``on_listening``: called with the address once it listens. Raises :class:`~trainer.errors.ConfigError` for options that do not fit.
    """
    check_token(options.address, options.token)
    listening = listen(options.address)
    warm_up()
    keeper = Keeper(listening, partial(serve_worker, options), drain_secs=options.drain_secs, waits=False)
    on_listening(Address(*listening.getsockname()[:2]))
    return keeper.run()


def serve_worker(options: WorkerOptions, listening: socket.socket, drain: Drain | None = None) -> ServerService:
    """The service of a worker, whose clients go on with another worker when it ends."""

    own = NamedServers(options.servers, options.server_token, options.server_tls is not None)

    links = NamedLinks(options.server_tls, options.server_patience_secs, "headrace ps worker")

    def connect(greeting: Greeting, check: Callable[[], None], named: NamedServers | None) -> Sequence[Connect]:
        return links(greeting, named or own, check)

    worker = EmbeddingWorker(
        connect,
        threads=options.threads,
        most_answer_bytes=options.limits.most_bytes,
        most_kept_bytes=options.limits.message_bytes,
    )
    times, registry = LabelledHistograms(), Registry()
    registry.add("embedding worker", lambda: EMBEDDING_WORKER.families(worker.status(), times))
    options.serve_metrics(registry)
    return ServerService(
        listening, worker, token=options.token, limits=options.limits, tls=options.tls, drain=drain, times=times
    )


def warm_up() -> None:
    """Load the loops of requests before the first fork, so that a child begins with them."""
    features = (FeatureSpec("warm-up", TableSpec("warm-up", 1, 1, SGD(1.0))),)
    for ids, dtype in itertools.product(IDS, (np.int32, np.int64)):
        worker = EmbeddingWorker(_connect_directly)
        session = worker.begin(Greeting())
        batch = IdBatch(np.zeros(1, dtype), np.array([[0, 1]]))
        body = messages.write_ids(batch, encoded=ids == "unique")
        flags = messages.ENCODED_IDS if ids == "unique" else 0
        gradients = messages.write_gradients(1, np.ones(1, np.float32), np.zeros(4, np.uint8))
        document = write_document(WorkerTables(features, 0, wire=WireSettings(ids)).to_document())
        for header, content in (
            (Header(Kind.OPEN), bytearray(document)),
            (Header(Kind.FETCH, number=1, flags=flags), bytearray(body)),
            (Header(Kind.UPDATE, number=1), bytearray(b"".join(gradients))),
        ):
            worker.handle(session, header, content)
        worker.end(session)


def _connect_directly(greeting: Greeting, check: Callable[[], None], named: NamedServers | None) -> Sequence[Connect]:
    """Connect to a server in this process."""
    server = RowServer(HeldRows(None))
    return [lambda saves: DirectLink(server)]
