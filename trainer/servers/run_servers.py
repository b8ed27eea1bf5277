"""The servers of a run: from their addresses, connections to them and an engine over these."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial

from trainer.errors import ConfigError, ServerLost
from trainer.options.combinations import Setup, check_setup
from trainer.planning.plan import PartitionPlan
from trainer.servers.client_updates import Greeting, Mode, attempt_number, run_of
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.server_status import ServerStatus, read_status
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, connect_through, connect_to
from trainer.servers.worker_lanes import lanes_of
from trainer.tables.hashed_counts import HashedCounts, sum_counts
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.served_engine import ServedEngine, ServedOptions
from trainer.tables.routes.servers.server_link import Connect, ConnectWorker
from trainer.tables.routes.servers.tiered_engine import TieredEngine
from trainer.tables.routes.workers.engine import WorkerEngine, direct_engine
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.spec import FeatureSpec
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.addresses import Address

#: Of plain tables.
PLAIN = ServedOptions()


def go_on() -> None:
    """The check of a wait that nothing ends."""


@dataclass(frozen=True, slots=True)
class RunServers:
    """Where a run's tables are.

    Attributes:
        addresses: of the servers, in the order of a plan's cores.
        token: of the servers; empty for none.
        tls: what verifies them; None: connections are not encrypted.
        plan: the placement of the tables, a core for each server; None: rows are spread over them.
        mode: how the updates of several hosts come together. With :attr:`Mode.EACH` bits depend on timing, so lookups may overlap.
        patience_secs: how long a server may be away before the run fails.
        wire: how rows and values are encoded on their way; servers take any encoding.
        run: its number. A run with a higher one takes the servers over.
        workers: addresses of embedding workers, which hosts divide by :func:`~trainer.servers.worker_lanes.lanes_of`; another one takes the
            batches of one that fails. None: a host uses the servers itself.
        workers_tls: what verifies the workers; None: connections to them are not encrypted.
        workers_token: of the workers; empty for none.
        are_named: workers take the servers from their clients: these are others than those with which the workers were started.
    """

    addresses: tuple[Address, ...]
    token: str = ""
    tls: ssl.SSLContext | None = None
    plan: PartitionPlan | None = None
    mode: Mode = Mode.SUMMED
    patience_secs: float = 60.0
    wire: WireSettings = field(default_factory=WireSettings)
    run: int = 0
    workers: tuple[Address, ...] = ()
    workers_tls: ssl.SSLContext | None = None
    workers_token: str = ""
    are_named: bool = False

    def without(self, names: Sequence[str]) -> RunServers:
        """The other servers; s0 names the first one. Raises :class:`ConfigError` if none is left, or not as many as their plan has cores."""
        kept = tuple(one for k, one in enumerate(self.addresses) if f"s{k}" not in names)
        if kept == self.addresses:
            return self
        if not kept or (self.plan is not None and self.plan.cores != len(kept)):
            raise ConfigError("a plan needs all of its servers", value=", ".join(names), allowed="none away")
        return replace(self, addresses=kept, are_named=True)

    @property
    def named(self) -> NamedServers:
        """The servers as a worker is given them."""
        return NamedServers(self.addresses, self.token, self.tls is not None)

    def sources(self, attempt: int) -> CopySources:
        """The servers as others take rows from them in an attempt of the run."""
        return CopySources(self.named, attempt_number(self.run, attempt))

    def wait(self, on_wait: Callable[[Address], None]) -> int:
        """The highest number of a run that a server has had, once all of them and of the workers answer.

        ``on_wait`` is called for each that does not answer at once. Raises :class:`~trainer.errors.ServerLost` for one that stays away
        longer than the patience.
        """
        read = partial(read_status, patience_secs=self.patience_secs)
        of_servers = partial(read, token=self.token, tls=self.tls)
        of_workers = partial(read, token=self.workers_token, tls=self.workers_tls)
        all_reads = {**dict.fromkeys(self.addresses, of_servers), **dict.fromkeys(self.workers, of_workers)}
        found = (look(address, check=cache(partial(on_wait, address))) for address, look in all_reads.items())
        return max(run_of(one.attempt) for one in found)

    def statuses(self, *, among: Collection[str] | None, patience_secs: float) -> dict[str, ServerStatus]:
        """What each server has done since its process began, by address, without those that do not answer in time.

        ``among``: the addresses of those that are asked; None: all.
        """
        found = {}
        for address in self.addresses:
            if among is None or str(address) in among:
                with suppress(ServerLost):
                    found[str(address)] = read_status(
                        address, token=self.token, tls=self.tls, patience_secs=patience_secs
                    )
        return found

    def hashed_counts(self) -> dict[str, HashedCounts]:
        """What the hashed tables have done on all servers, by name. Raises :class:`~trainer.errors.ServerLost`."""
        read = partial(read_status, token=self.token, tls=self.tls, patience_secs=self.patience_secs)
        return sum_counts(read(address).hashed for address in self.addresses)

    def connect(
        self,
        attempt: int,
        client: int = 0,
        clients: int = 1,
        check: Callable[[], None] = go_on,
        check_saving: Callable[[], None] = go_on,
    ) -> list[Connect]:
        """Functions that connect to each server in an attempt of the run.

        ``check`` is called while a request waits, and raises to end it; ``check_saving``: while one for a snapshot does.
        """
        role = SessionRole.LOADS if self.workers else SessionRole.TRAINS
        greeting = replace(self._greeting(attempt, client, clients), role=role)
        options = LinkOptions(greeting, patience_secs=self.patience_secs, tls=self.tls, check=check)
        return [connect_to(address, options, check_saving) for address in self.addresses]

    def connect_workers(
        self, attempt: int, held: int, client: int = 0, clients: int = 1, check: Callable[[], None] = go_on
    ) -> tuple[ConnectWorker, ...]:
        """What connects to the embedding worker of each lane of a client; none without workers. Otherwise as :meth:`connect`.

        ``held``: the batches between a lookup and its update. Where lookups overlap, each of these batches and the one that is looked up next has a
        lane of its own, so that an update never waits behind a lookup that is on its way.
        """
        if not self.workers:
            return ()
        greeting = replace(self._greeting(attempt, client, clients), token=self.workers_token)
        lanes = lanes_of(len(self.workers), client, clients, held + 1 if self.mode is Mode.EACH else 1)
        found = []
        for lane, numbers in enumerate(lanes):
            first, *others = (self.workers[number] for number in numbers)
            options = LinkOptions(
                replace(greeting, lane=lane, lanes=len(lanes)),
                patience_secs=self.patience_secs,
                tls=self.workers_tls,
                check=check,
                others=tuple(others),
            )
            found.append(connect_through(first, options))
        return tuple(found)

    def _greeting(self, attempt: int, client: int, clients: int) -> Greeting:
        return Greeting(self.token, client, clients, attempt_number(self.run, attempt), self.mode)

    def engine_over(
        self,
        connects: Sequence[Connect],
        features: Sequence[FeatureSpec],
        seed: int,
        held: int,
        options: ServedOptions = PLAIN,
        workers: Sequence[ConnectWorker] = (),
    ) -> ServedEngine:
        """The engine of tables over connections, those to workers among them; see :data:`~trainer.run.weights.served_weights.MakeEngine`.

        Raises :class:`ConfigError` for a combination that :mod:`trainer.options.combinations` refuses.
        """
        check_setup(
            Setup(
                hashed=bool(options.hashed),
                pruned=options.pruning is not None,
                servers=True,
                workers=bool(workers),
                plan=self.plan is not None,
                slices=self.plan is not None and not self.plan.has_whole_rows,
                hot=bool(options.hot_rows),
                rounded=self.wire.values != "float32",
            )
        )
        if options.hot_rows:
            return TieredEngine(
                features, options.hot_rows, seed=seed, servers=connects, plan=self.plan, held=held, wire=self.wire
            )
        return self.engine_on(self.direct_engine(connects, features, seed, held, options), seed, held, options, workers)

    def direct_engine(
        self, connects: Sequence[Connect], features: Sequence[FeatureSpec], seed: int, held: int, options: ServedOptions
    ) -> PsEngine:
        """The engine on the servers themselves: that of the run, or with workers the one of loads and snapshots beside them."""
        if self.workers:
            return direct_engine(self._worker_tables(features, seed, held, options), connects)
        return PsEngine(
            features,
            seed=seed,
            servers=connects,
            plan=self.plan,
            held=held,
            wire=self.wire,
            overlaps=self.mode is Mode.EACH,
            hashed=options.hashed,
            pruning=options.pruning,
        )

    def engine_on(
        self, direct: PsEngine, seed: int, held: int, options: ServedOptions, workers: Sequence[ConnectWorker]
    ) -> ServedEngine:
        """The engine of the run over that on its servers, which has the rows and ends with it; ``workers``: of its lanes, none without workers."""
        if not workers:
            return direct
        tables = self._worker_tables(direct.features, seed, held, options)
        return WorkerEngine(tables, direct, workers, overlaps=self.mode is Mode.EACH)

    def _worker_tables(
        self, features: Sequence[FeatureSpec], seed: int, held: int, options: ServedOptions
    ) -> WorkerTables:
        return WorkerTables(
            tuple(features),
            seed,
            self.plan,
            held=held,
            wire=self.wire,
            hashed=options.hashed,
            pruning=options.pruning,
            servers=self.named if self.are_named else None,
        )

    def engine(
        self,
        attempt: int,
        features: Sequence[FeatureSpec],
        seed: int,
        held: int,
        options: ServedOptions = PLAIN,
    ) -> ServedEngine:
        """The engine of an attempt of a run that one process trains."""
        return self.engine_over(
            self.connect(attempt), features, seed, held, options, self.connect_workers(attempt, held)
        )
