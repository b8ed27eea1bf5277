"""The servers of a run: from their addresses, connections to them and an engine over these."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.server_link import Connect
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.flight.addresses import Address
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.tcp_link import LinkOptions, connect_to


def _go_on() -> None:
    """The check of a wait that nothing ends."""


@dataclass(frozen=True, slots=True)
class RunServers:
    """Where a run's tables are.

    Attributes:
        addresses: of the servers, in the order of a plan's cores.
        token: of the servers; empty for none.
        tls: what verifies them; None: connections are not encrypted.
        plan: where the tables stand, a core for each server; None: rows are spread over them.
        mode: how the updates of several hosts come together.
        patience_secs: how long a server may be away before the run fails.
        wire: how rows and values are encoded on their way; servers take any encoding.
    """

    addresses: tuple[Address, ...]
    token: str = ""
    tls: ssl.SSLContext | None = None
    plan: PartitionPlan | None = None
    mode: Mode = Mode.SUMMED
    patience_secs: float = 60.0
    wire: WireSettings = field(default_factory=WireSettings)

    def connect(
        self, attempt: int, client: int = 0, clients: int = 1, check: Callable[[], None] = _go_on
    ) -> list[Connect]:
        """What connects to each server in an attempt; ``check`` is called while a request waits, and raises to end it."""
        greeting = Greeting(self.token, client, clients, attempt, self.mode)
        options = LinkOptions(greeting, patience_secs=self.patience_secs, tls=self.tls, check=check)
        return [connect_to(address, options) for address in self.addresses]

    def engine_over(
        self, connects: Sequence[Connect], features: Sequence[FeatureSpec], seed: int, held: int
    ) -> PsEngine:
        """The engine of tables over connections; ``held``: batches between a lookup and its update."""
        return PsEngine(features, seed=seed, servers=connects, plan=self.plan, held=held, wire=self.wire)

    def engine(
        self, features: Sequence[FeatureSpec], seed: int, held: int, clock: Callable[[], float] = time.time
    ) -> PsEngine:
        """The engine of the one process of a run; a run that begins later takes the servers over from it."""
        return self.engine_over(self.connect(int(clock() * 1000)), features, seed, held)
