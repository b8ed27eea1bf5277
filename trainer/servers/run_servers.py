"""The servers of a run: from their addresses, connections to them and an engine over these."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from trainer.embedding.hashed.limits import TableLimits
from trainer.embedding.hashed.options import HashedCounts, sum_counts
from trainer.embedding.ps.engine import PsEngine
from trainer.embedding.ps.server_link import Connect
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire.settings import WireSettings
from trainer.flight.addresses import Address
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting, Mode, attempt_number, run_of
from trainer.servers.server_status import read_status
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
        mode: how the updates of several hosts come together. With :attr:`Mode.EACH` bits depend on timing, so lookups may overlap.
        patience_secs: how long a server may be away before the run fails.
        wire: how rows and values are encoded on their way; servers take any encoding.
        run: its number. A run with a higher one takes the servers over.
    """

    addresses: tuple[Address, ...]
    token: str = ""
    tls: ssl.SSLContext | None = None
    plan: PartitionPlan | None = None
    mode: Mode = Mode.SUMMED
    patience_secs: float = 60.0
    wire: WireSettings = field(default_factory=WireSettings)
    run: int = 0

    def wait(self, on_wait: Callable[[Address], None]) -> int:
        """The highest number of a run that a server has had, once all of them answer.

        ``on_wait`` is called for each that does not answer at once. Raises :class:`~trainer.errors.ServerLost` for one that stays away
        longer than the patience.
        """
        return max(self._run_on(address, cache(partial(on_wait, address))) for address in self.addresses)

    def _run_on(self, address: Address, check: Callable[[], None]) -> int:
        found = read_status(address, token=self.token, tls=self.tls, patience_secs=self.patience_secs, check=check)
        return run_of(found.attempt)

    def hashed_counts(self) -> dict[str, HashedCounts]:
        """What the hashed tables have done on all servers, by name. Raises :class:`~trainer.errors.ServerLost`."""
        read = partial(read_status, token=self.token, tls=self.tls, patience_secs=self.patience_secs)
        return sum_counts(read(address).hashed for address in self.addresses)

    def connect(
        self,
        attempt: int,
        client: int = 0,
        clients: int = 1,
        check: Callable[[], None] = _go_on,
        check_saving: Callable[[], None] = _go_on,
    ) -> list[Connect]:
        """What connects to each server in an attempt of the run.

        ``check`` is called while a request waits, and raises to end it; ``check_saving``: while one for a snapshot does.
        """
        greeting = Greeting(self.token, client, clients, attempt_number(self.run, attempt), self.mode)
        options = LinkOptions(greeting, patience_secs=self.patience_secs, tls=self.tls, check=check)
        return [connect_to(address, options, check_saving) for address in self.addresses]

    def engine_over(
        self,
        connects: Sequence[Connect],
        features: Sequence[FeatureSpec],
        seed: int,
        held: int,
        hashed: Mapping[str, TableLimits],
    ) -> PsEngine:
        """The engine of tables over connections; see :data:`~trainer.training.served_weights.MakeEngine`."""
        return PsEngine(features, seed=seed, servers=connects, plan=self.plan, held=held, wire=self.wire,
                        overlaps=self.mode is Mode.EACH, hashed=hashed)  # fmt: skip

    def engine(
        self, attempt: int, features: Sequence[FeatureSpec], seed: int, held: int, hashed: Mapping[str, TableLimits]
    ) -> PsEngine:
        """The engine of an attempt of a run that one process trains."""
        return self.engine_over(self.connect(attempt), features, seed, held, hashed)
