"""The servers of a run: from their addresses, an engine on them."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.flight.addresses import Address
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to


@dataclass(frozen=True, slots=True)
class RunServers:
    """Where a run's tables are.

    Attributes:
        addresses: of the servers, in the order of a plan's cores.
        token: of the servers; empty for none.
        tls: what verifies them; None: connections are not encrypted.
        plan: where the tables stand, a core for each server; None: rows are spread over them.
        patience_secs: how long a server may be away before the run fails.
        wire: how rows and values are encoded on their way; servers take any encoding.
    """

    addresses: tuple[Address, ...]
    token: str = ""
    tls: ssl.SSLContext | None = None
    plan: PartitionPlan | None = None
    patience_secs: float = 60.0
    wire: WireSettings = field(default_factory=WireSettings)

    def engine(
        self, features: Sequence[FeatureSpec], seed: int, *, held: int = 2, clock: Callable[[], float] = time.time
    ) -> PsEngine:
        """The engine of the one process of a run; a run that begins later takes the servers over from it."""
        greeting = Greeting(token=self.token, attempt=int(clock() * 1000))
        options = LinkOptions(greeting, patience_secs=self.patience_secs, tls=self.tls)
        connects = [connect_to(address, options) for address in self.addresses]
        return PsEngine(features, seed=seed, servers=connects, plan=self.plan, held=held, wire=self.wire)
