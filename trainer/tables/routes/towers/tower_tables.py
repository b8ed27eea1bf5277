"""Embedding tables by the tower transform (Luo et al., MLSys 2024, section 3.1): the lookups and updates of one worker.

A lookup has five steps: (a) the indices of a worker's events go to its peer in each tower; (b) requests are shuffled inside the tower; (c) the
owners read rows; (d) rows are shuffled back and combined; (e) the combined bags go to the worker of the events. An update takes the same way
back. Between hosts combined bags move, or distinct rows where these are fewer bytes, and only between workers of equal rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainer.errors import BadBatch, ConfigError, NonFiniteLoss
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan
from trainer.planning.row_groups import RowGroup
from trainer.tables.batches import IdBatch
from trainer.tables.engine import TablesSnapshot, TableState
from trainer.tables.hashed_counts import NO_COUNTS, HashedCounts
from trainer.tables.kernels.layout import feature_layout
from trainer.tables.kernels.threads import Team, available_threads
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.pruned_groups import shares_places
from trainer.tables.routes.partitioned.requests import RequestMaker, Requests, asked_layout
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.counted_exchange import TowerExchanges
from trainer.tables.routes.towers.partial_sums import Beside, OwnedBags, PartialSums, ReturnedSums, SummedBags
from trainer.tables.routes.towers.peer_messages import TowerPart, join_events
from trainer.tables.routes.towers.peer_steps import permute_indices, return_gradients, send_outputs
from trainer.tables.routes.towers.placement import TowerPlacement, features_of_towers
from trainer.tables.routes.towers.sent_batch import BatchSender, SentBatch, SentForms
from trainer.tables.routes.towers.sent_forms import summed_by_owners
from trainer.tables.routes.towers.tower_groups import are_in_all_towers, groups_in_tower, job_tables_of_tower
from trainer.tables.routes.towers.tower_layout import TowerLayout
from trainer.tables.routes.towers.tower_module import TowerModule, sum_in_tower
from trainer.tables.routes.towers.tower_rows import AskedByWorker, TowerRows, UnitRows, split_asked
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of
from trainer.tables.stores.hashed.limits import TableLimits, divided_limits
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.wire.encoded_values import FLAG_OF
from transforms.arrays import Array


@dataclass(slots=True, eq=False)
class _TowerBatch:
    """A batch of one worker's events, and what its lookup leaves for its update.

    Attributes:
        sent: the batch, as the towers get it.
        units: the rows of this worker's units; None before the lookup.
        parts: what each source of this worker has asked for.
        activations: of the units.
        asked: what the workers of the tower have asked this one for.
        summed: the bags whose sums the owners give; None: rows move.
        owned: what each worker of the tower has asked this one to add.
    """

    sent: SentBatch
    units: list[UnitRows] | None = None
    parts: list[TowerPart] = field(default_factory=list)
    activations: list[Array] = field(default_factory=list)
    asked: AskedByWorker = field(default_factory=list)
    summed: SummedBags | None = None
    owned: list[OwnedBags] = field(default_factory=list)

    @property
    def events(self) -> list[int]:
        """Of each source."""
        return [one.batch.rows for one in self.parts]


class TowerTables(BagTables[_TowerBatch]):
    """One worker's part of the tables of ``features``, in a tower. All workers make the same calls in the same order.

    Args:
        placement: the towers and their hosts.
        rank: of this worker among all.
        exchanges: with its peers, its tower, and all workers.
        plans: of each tower, which of its workers has which rows, by place; None: rows are spread cyclically.
        module: compresses the outputs of this worker's tower; None: they stay as they are.
        output_widths: of each tower, if modules compress them.
        is_deterministic: gradients of a row are added in the order of the flat exchange, for its bits. Otherwise the bags of all sources
            of a worker share their requests: fewer bytes inside hosts, and the bits of another order.
        is_swapped: step c comes before b: owners are asked by the workers of the events, so step d is the only shuffle inside hosts.
        threads: of this worker; 0 for one a processor.
        held: batches between a lookup and its update, for which it keeps what both need.
        pruning: the most important rows of each worker of tables that are not hashed have places, by these options; None: all rows have values.
        hashed: by name the limits of tables of unbounded vocabularies, whose capacities are divided over the workers of their towers.
        values: how rows, outputs and gradients are encoded between workers, see :class:`~trainer.tables.wire.settings.WireSettings`.
        may_send_rows: a table is sent as rows where these are fewer bytes than its bags, see
            :mod:`~trainer.tables.routes.towers.sent_forms`. Modules need bags, and so do pruned tables, whose lookups towers count.
        may_send_sums: where a step need not be deterministic, owners add their rows of a bag if this is fewer bytes than the rows, see
            :mod:`~trainer.tables.routes.towers.partial_sums`; without a plan of the tower.

    Attributes:
        tower: of this worker.
        rows: its part of the tower's tables.
        forms: how the tables of its trained batches went to their towers.

    Raises :class:`ConfigError` for features and towers that do not fit, for exchanges of other workers, and for a swapped lookup without an
    exchange with all workers or without ``is_deterministic``, for hashed and pruned tables of which a worker would have no place, for slices and copies of
    pruned ones, and for hashed ones by plans.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, placement: TowerPlacement, rank: int, exchanges: TowerExchanges,
        plans: Sequence[PartitionPlan | None] = (), module: TowerModule | None = None, output_widths: Sequence[int] = (),
        is_deterministic: bool = True, is_swapped: bool = False, threads: int = 0, held: int = 2,
        pruning: PruningOptions | None = None, hashed: Mapping[str, TableLimits] | None = None, values: str = "float32",
        may_send_rows: bool = True, may_send_sums: bool = True,
    ) -> None:  # fmt: skip
        features, self._placement, self._exchanges = tuple(features), placement, exchanges
        self._chosen = features_of_towers(features, placement.towers)
        self._host = placement.host_of(rank)
        self.tower = placement.tower_of(self._host)
        self._check_exchanges(rank)
        if is_swapped and (exchanges.world is None or not is_deterministic):
            raise ConfigError("a swapped lookup must be deterministic, and have an exchange with all workers", where="is_swapped",
                              value=f"is_deterministic {is_deterministic}, world {exchanges.world is not None}")  # fmt: skip
        self._is_deterministic, self._is_swapped, self._flag = is_deterministic, is_swapped, FLAG_OF[values]
        self._of_towers = [tuple(features[f] for f in chosen) for chosen in self._chosen]
        plans = plans or [None] * len(placement.towers)
        tables, self._hashed = tables_of(features), hashed or {}
        self._parts = [
            TableParts(tables_of(of_tower), len(placement.group_of(t)), plan)
            for t, (of_tower, plan) in enumerate(zip(self._of_towers, plans, strict=True))
        ]
        _check_limits(self._hashed, tables, self._parts, is_planned=any(plan is not None for plan in plans))
        own = self._of_towers[self.tower]
        self._layouts = [TowerLayout(one) for one in self._of_towers]
        groups: tuple[RowGroup, ...] = ()
        job: JobPlaces | None = None
        if pruning is not None:
            of_all = groups_of(tables, pruning, self._hashed)
            shares = shares_places(pruning, placement.workers) and are_in_all_towers(of_all, tables, self._parts)
            groups = groups_in_tower(of_all, tables, self._parts, placement, rank, are_shared=shares)
            if shares:
                job = JobPlaces(job_tables_of_tower(of_all, tables, self._parts, placement, rank), self._all_workers())
        self.rows = TowerRows(
            own,
            seed=seed,
            exchange=exchanges.group,
            parts=None if plans[self.tower] is None else self._parts[self.tower],
            threads=threads,
            held=held,
            pruning=pruning if groups else None,
            groups=groups,
            job=job,
            hashed={one.name: self._hashed[one.name] for one in tables_of(own) if one.name in self._hashed},
            values=values,
        )
        team = Team(threads or available_threads())
        super().__init__(features, self.rows.tables, team, held=held, counted=tables)
        self._module = module
        plain_widths = [one.width for one in self._layouts]
        self._widths = list(output_widths) or plain_widths
        _check_widths(module, self._widths, plain_widths, self.tower)
        self._has_modules = bool(output_widths)
        self.forms = SentForms()
        self._sender = BatchSender(features, self._chosen, self._layouts, seed=seed, hashed=list(self._hashed), team=team, flag=self._flag,
                                   may_send_rows=may_send_rows and pruning is None and not output_widths)  # fmt: skip
        self._makers = self._request_makers(seed) if is_swapped else []
        self._sums: PartialSums | None = None
        if may_send_sums and not is_deterministic and plans[self.tower] is None and exchanges.group.hosts > 1:
            shards = [part.shard(exchanges.group.rank)[0] for part in self.rows.parts.parts]
            self._sums = PartialSums(own, shards, owners=exchanges.group.hosts, seed=seed, hashed=list(self._hashed), store=self.rows.store,
                                     team=team, flag=self._flag)  # fmt: skip

    def _check_exchanges(self, rank: int) -> None:
        place = self._placement
        group = place.group_of(self.tower)
        known = [
            (self._exchanges.peers, self._host, place.hosts),
            (self._exchanges.group, group.index(rank), len(group)),
        ]
        if self._exchanges.world is not None:
            known.append((self._exchanges.world, rank, place.workers))
        for exchange, expected, members in known:
            if (exchange.rank, exchange.hosts) != (expected, members):
                raise ConfigError("an exchange must have the rank of its worker", where=f"worker {rank}", value=f"rank {exchange.rank} of {exchange.hosts}",
                                  allowed=f"rank {expected} of {members}")  # fmt: skip

    def _all_workers(self) -> Exchange:
        """The exchange with all workers. Raises :class:`ConfigError` where this worker has none."""
        if self._exchanges.world is not None:
            return self._exchanges.world
        if self._placement.host_workers > 1:
            raise ConfigError("workers that share the places of pruned tables must have an exchange with all of them", where="exchanges.world",
                              value=None, allowed="an exchange", next_step="give world, or pruning.places divided")  # fmt: skip
        return self._exchanges.peers

    def _request_makers(self, seed: int) -> list[RequestMaker]:
        """Of each tower, what makes the requests that its worker for this host's events would make."""
        makers = []
        for t, (features, parts) in enumerate(zip(self._of_towers, self._parts, strict=True)):
            of_features = feature_layout(features, parts.tables)
            layout = asked_layout(of_features, parts.tables, seed, self._hashed)
            core = self._place_of_peer(t, self._exchanges.peers.rank)
            makers.append(RequestMaker(features, of_features, layout, parts=parts, core=core, team=self.team))
        return makers

    def _place_of_peer(self, tower: int, host: int) -> int:
        """The place of the worker of a tower that takes the bags of this worker's peer on ``host``."""
        at = self._placement.tower_hosts[tower].index(self._placement.peer_host(tower, host))
        return at * self._placement.host_workers + self._rank_on_host

    @property
    def _rank_on_host(self) -> int:
        return self._exchanges.group.rank % self._placement.host_workers

    @property
    def width(self) -> int:
        """Columns of the outputs: in the order of the features, or tower after tower if modules compress them."""
        return sum(self._widths)

    @property
    def hashed_counts(self) -> Mapping[str, HashedCounts]:
        """What each hashed table has done on this worker, by name: nothing where it is in another tower."""
        return dict.fromkeys(self._hashed, NO_COUNTS) | dict(self.rows.hashed_counts)

    def prepare(self, batch: IdBatch) -> _TowerBatch:
        """See :class:`BagTables`."""
        return _TowerBatch(self._sender.send(batch))

    def begin(self, kept: _TowerBatch) -> Callable[[], Array]:
        """See :class:`BagTables`: the outputs of this worker's events, float32 [batch.rows, width]."""
        kept.parts = permute_indices(self._exchanges.peers, self._placement, kept.sent.parts, self._layouts)
        bags = [one.batch for one in kept.parts]
        requests = [
            self.rows.prepare(one).requests for one in (bags if self._is_deterministic else [join_events(bags)])
        ]
        if self._sums is not None:
            found_here = self._with_sums(kept, self._sums, *requests)
        else:
            kept.asked = self._ask_owners(kept.sent.parts) if self._is_swapped else self.rows.shuffle_requests(requests)
            kept.units = self.rows.shuffle_rows(requests, self.rows.read(kept.asked))
            found_here = [self.rows.combine(one) for one in kept.units]
        kept.activations = self._by_source(found_here, kept.events)
        of_towers = send_outputs(
            self._exchanges.peers, self._placement, self._outputs(kept), self._floats(kept.sent), flag=self._flag
        )
        found = self._assembled(kept.sent, of_towers)
        return lambda: found

    def update(self, kept: _TowerBatch, gradients: Array) -> Iterable[tuple[Array, Array]]:
        """See :class:`BagTables`: the rows of all workers' batches, and the weights of this tower's module.

        ``gradients``: of the loss over all workers' events. A module's gradients are summed inside the tower only. Raises :class:`BadBatch` for a
        batch that was not looked up, before anything is exchanged.
        """
        batch = kept.sent.batch
        if kept.units is None:
            raise BadBatch("a batch must be looked up before its update", value=f"{batch.rows} events", next_step="call lookup with this batch first")  # fmt: skip
        by_tower = self._split(kept.sent, gradients.reshape(batch.rows, self.width))
        floats = [self._floats_of(self.tower, one) for one in kept.parts]
        of_sources = return_gradients(self._exchanges.peers, self._placement, by_tower, floats, flag=self._flag)
        by_activations = self._by_activations(kept, of_sources)
        of_units = by_activations if self._is_deterministic else [np.concatenate(by_activations)]
        self.forms.add(kept.sent.rows)
        self.rows.update_units(kept.units, of_units, kept.asked, self._order(), self._returned(kept, of_units))
        return [(batch.offsets, kept.sent.distinct)]

    def freeze(self) -> None:
        """See :class:`BagTables`."""
        self.rows.freeze()

    def state(self) -> dict[str, TableState]:
        """See :meth:`ShardedTables.state`: the rows of this worker."""
        return self.rows.state()

    def section_names(self, t: int) -> tuple[str, ...]:
        """See :meth:`SavedTables.section_names <trainer.tables.engine.SavedTables.section_names>`."""
        return self.rows.section_names(t)

    def load(self, state: Mapping[str, TableState]) -> None:
        """See :class:`BagTables`."""
        self.rows.load(state)

    def begin_snapshot(self, *, most_bytes: int) -> TablesSnapshot:
        """See :meth:`ShardedTables.begin_snapshot`."""
        return self.rows.begin_snapshot(most_bytes=most_bytes)

    def end_snapshot(self) -> None:
        """See :meth:`ShardedTables.end_snapshot`."""
        self.rows.end_snapshot()

    def _with_sums(self, kept: _TowerBatch, sums: PartialSums, whole: Requests) -> list[Array]:
        """Steps b to d where owners may add their rows of a bag: the activations of the only unit. ``whole``: the rows of all its bags."""
        batch, columns = whole.batch, self._layouts[self.tower]
        use = columns.use_of(batch, whole.layout.vocabulary)
        chosen = (summed_by_owners(use, owners=self._exchanges.group.hosts, has_weights=batch.weights is not None, flag=self._flag)
                  & ~columns.have_sequences)[columns.table_of]  # fmt: skip
        kept.summed, messages = sums.ask(batch, chosen)
        asking = Beside(messages)
        offsets = batch.offsets.copy()
        offsets[chosen] = offsets[chosen, :1]
        requests = self.rows.prepare(replace(batch, offsets=offsets)).requests if chosen.any() else whole
        kept.asked = self.rows.shuffle_requests([requests], asking)
        kept.owned = [sums.received(one, f"worker {place}") for place, one in enumerate(asking.received)]
        answering = Beside([[sums.sums(one)] for one in kept.owned])
        kept.units = self.rows.shuffle_rows([requests], self.rows.read(kept.asked), answering)
        activations = self.rows.combine(kept.units[0])
        sums.add(kept.summed, answering.received, activations)
        return [activations]

    def _returned(self, kept: _TowerBatch, of_units: Sequence[Array]) -> ReturnedSums | None:
        """The gradients of the bags that owners have added, on their way to these."""
        if self._sums is None or kept.summed is None:
            return None
        message = self._sums.gradients(kept.summed, of_units[0])
        return ReturnedSums(self._sums, kept.owned, Beside([[message]] * self._exchanges.group.hosts))

    def _outputs(self, kept: _TowerBatch) -> list[Array]:
        """What each source gets, flat."""
        if self._module is not None:
            outputs = self._module.outputs(np.concatenate(kept.activations))
            return [one.reshape(-1) for one in np.split(outputs, _cuts(kept.events))]
        layout = self._layouts[self.tower]
        return [layout.pack(one, part.rows) for one, part in zip(kept.activations, kept.parts, strict=True)]

    def _by_activations(self, kept: _TowerBatch, of_sources: list[Array]) -> list[Array]:
        """The gradients of each source's activations, float32 [events, width], after an update of the module."""
        if self._module is None:
            layout = self._layouts[self.tower]
            return [layout.unpack(one, part.rows, part.batch.rows) for one, part in zip(of_sources, kept.parts, strict=True)]  # fmt: skip
        by_outputs = np.concatenate(of_sources).reshape(-1, self._module.width)
        by_activations, by_weights = self._module.gradients(np.concatenate(kept.activations), by_outputs)
        self._module.apply(sum_in_tower(self._exchanges.group, by_weights))
        return np.split(by_activations, _cuts(kept.events))

    def _floats_of(self, tower: int, part: TowerPart) -> int:
        """The values of a tower's outputs for a part."""
        if self._has_modules:
            return part.batch.rows * self._widths[tower]
        return self._layouts[tower].floats(part.rows, part.batch.rows)

    def _floats(self, sent: SentBatch) -> list[int]:
        """The values that each tower gives this worker."""
        return [self._floats_of(tower, part) for tower, part in enumerate(sent.parts)]

    def _ask_owners(self, parts: Sequence[TowerPart]) -> AskedByWorker:
        """The swapped way of step b: the workers of the events ask the owners of all towers at once."""
        assert self._exchanges.world is not None
        sent: list[Sequence[Array]] = [()] * self._placement.workers
        for t, (maker, part) in enumerate(zip(self._makers, parts, strict=True)):
            reads = maker.make(part.batch).reads
            for owner, rank in enumerate(self._placement.group_of(t)):
                sent[rank] = [reads.rows[reads.of_owner(owner)], reads.counts[owner]]
        received = self._exchanges.world.all_to_all(sent)
        parts_of_tower = len(self._parts[self.tower].parts)
        return [
            [split_asked(received[rank], parts_of_tower, f"worker {rank}")[0] for rank in self._sources_of_place(place)]
            for place in range(self._exchanges.group.hosts)
        ]

    def _sources_of_place(self, place: int) -> list[int]:
        """The ranks of the workers whose bags a worker of this tower takes, in the order of its units."""
        host, w = divmod(place, self._placement.host_workers)
        sources = self._placement.sources_of(self._placement.tower_hosts[self.tower][host])
        return [source * self._placement.host_workers + w for source in sources]

    def _order(self) -> list[tuple[int, int]]:
        """The pairs of a place and a unit, by the rank of the worker whose events they are."""
        places = range(self._exchanges.group.hosts)
        if not self._is_deterministic:
            return [(place, 0) for place in places]
        ranks = [(rank, place, unit) for place in places for unit, rank in enumerate(self._sources_of_place(place))]
        return [(place, unit) for _, place, unit in sorted(ranks)]

    def _by_source(self, of_units: list[Array], events: Sequence[int]) -> list[Array]:
        if self._is_deterministic:
            return of_units
        return np.split(of_units[0], _cuts(events))

    def _assembled(self, sent: SentBatch, of_towers: Sequence[Array]) -> Array:
        """The outputs of all towers, in the order of columns."""
        if not self._has_modules:
            return self._sender.combine(sent, of_towers)
        shaped = [one.reshape(sent.batch.rows, width) for one, width in zip(of_towers, self._widths, strict=True)]
        return np.concatenate(shaped, axis=1)

    def _split(self, sent: SentBatch, gradients: Array) -> list[Array]:
        """The gradients of each tower's outputs, flat."""
        if not self._has_modules:
            return self._sender.gradients(sent, gradients)
        return [one.reshape(-1) for one in np.split(gradients, np.cumsum(self._widths)[:-1], axis=1)]

    def check_finite(self, gradients: Array) -> None:
        """See :class:`BagTables`; with modules the outputs are not by feature."""
        if not self._has_modules:
            super().check_finite(gradients)
        elif not np.isfinite(gradients).all():
            at = int(np.flatnonzero(~np.isfinite(gradients))[0])
            event, column = divmod(at, self.width)
            raise NonFiniteLoss("training diverged: a gradient is NaN or infinite", value=float(gradients[at]),
                                where=f"output {column} of the towers, event {event} of the batch")  # fmt: skip


def _check_limits(
    hashed: Mapping[str, TableLimits], tables: Sequence[TableSpec], parts: Sequence[TableParts], *, is_planned: bool
) -> None:
    """Raise :class:`ConfigError`, on all workers alike, for limits of hashed tables that do not fit the towers."""
    divided_limits(hashed, tables, 1, is_planned=is_planned)
    for of_tower in parts:
        own = {one.name: hashed[one.name] for one in of_tower.tables if one.name in hashed}
        divided_limits(own, of_tower.tables, of_tower.cores, is_planned=is_planned)


def _cuts(events: Sequence[int]) -> Array:
    """Where the events of each source but the first begin."""
    return np.cumsum(events)[:-1]


def _check_widths(module: TowerModule | None, widths: Sequence[int], plain: Sequence[int], tower: int) -> None:
    own = plain[tower] if module is None else module.width
    if len(widths) != len(plain) or widths[tower] != own:
        raise ConfigError("output_widths must be those of the towers' modules", where=f"tower {tower}", value=list(widths),
                          allowed=f"{len(plain)} widths, {own} of tower {tower}")  # fmt: skip
