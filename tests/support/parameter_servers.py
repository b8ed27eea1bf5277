"""Parameter servers in threads of a test, over real sockets."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.processes import PATIENCE_SECS
from trainer.planning.plan import PartitionPlan
from trainer.servers.allowed_runs import allowed_runs
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.loads.named_links import NamedLinks
from trainer.servers.row_server import RowServer
from trainer.servers.service import ServerService, ServiceLimits
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import FeatureSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.wire.flight.addresses import LOOPBACK
from trainer.wire.flight.connections import listen

#: How soon a reader of a snapshot must connect again.
_RETURN_SECS = 3.0


class ThreadServer:
    """A server in this process; ``folder``: of its memory, which a later server may take over."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        token: str = "",
        limits: ServiceLimits | None = None,
        tls=None,
        runs: Sequence[Path | str] = (),
        links: NamedLinks | None = None,
    ) -> None:
        self.listening = listen(LOOPBACK)
        self.rows = RowServer(
            HeldRows(folder),
            patience_secs=30.0,
            return_secs=_RETURN_SECS,
            runs=allowed_runs(list(map(str, runs))),
            connect=links,
        )
        self.service = ServerService(self.listening, self.rows, token=token, limits=limits, tls=tls)
        self.address = self.service.address

    def connect(self, greeting: Greeting | None = None, *, patience_secs: float = PATIENCE_SECS, tls=None) -> Connect:
        return connect_to(self.address, LinkOptions(greeting or Greeting(), patience_secs=patience_secs, tls=tls))

    def close(self) -> None:
        self.service.close()
        self.listening.close()


def sources_of(engine: PsEngine) -> CopySources:
    """The servers of an engine, as others take rows from them."""
    links = [getattr(one.link, "slow", one.link) for one in engine.servers]
    (attempt,) = {one._options.greeting.attempt for one in links}
    return CopySources(NamedServers(tuple(one._address for one in links)), attempt)


@contextmanager
def thread_servers(count: int, *, runs: Sequence[Path | str] = ()) -> Iterator[list[ThreadServer]]:
    with ExitStack() as stack:
        servers = [ThreadServer(runs=runs) for _ in range(count)]
        for server in servers:
            stack.callback(server.close)
        yield servers


def engine_on_servers(
    features: Sequence[FeatureSpec],
    *,
    seed: int,
    servers: int,
    plan: PartitionPlan | None = None,
    threads: int = 0,
    hashed: Mapping[str, TableLimits] | None = None,
) -> PsEngine:
    """An engine whose servers run as long as it is in use."""
    own = [ThreadServer() for _ in range(servers)]
    connects = [one.connect() for one in own]
    engine = PsEngine(features, seed=seed, servers=connects, plan=plan, threads=threads, hashed=hashed)
    for one in own:
        weakref.finalize(engine, one.close)
    return engine
