"""The model of a job with several hosts: tables are spread over them, by rows or by a plan; dense weights are equal on all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.job.host.channels import Channels
from trainer.job.host.dense.gradient_buckets import BUCKET_BYTES
from trainer.job.host.dense.sharded_updates import SHARDED_BYTES
from trainer.job.host.host_weights import HostWeights
from trainer.job.host.shard_arrays import parted_shards, shard_arrays, shard_states
from trainer.job.host.tower_weights import TowerWeights, has_own_modules
from trainer.model.heads import BINARY
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.options.towers import FLAT, HostTowers
from trainer.planning.host_grid import GRID_BYTES
from trainer.planning.plan import PartitionPlan
from trainer.run.reading.batches import Batch
from trainer.run.weights.run_state import LINEAR, AttemptBeginning, build_in_tensorflow, limits_of, linear_features
from trainer.run.weights.saved_tables import under
from trainer.tables.batches import IdBatch, id_dtype
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.towers.counted_exchange import SentBytes, exchanges_of
from trainer.tables.routes.towers.placement import TowerPlacement, placement_of_hosts
from trainer.tables.routes.towers.tower_tables import TowerTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.tower_figures import TowerFigures
from transforms.arrays import Array


class ShardedWeights(HostWeights):
    """See :class:`HostWeights`. Arrays of tables are those of this host's shards.

    ``plan``: the placement of the deep part's tables, a core for each host; None: rows are spread over the hosts, as those of the linear part.
    ``towers``: the hosts exchange by these towers, and the plan is that of the towers; without any they exchange flat.
    ``values``: how rows, outputs of towers and gradients are encoded between hosts. Modules of the same towers are on their hosts, see :func:`~trainer.job.host.tower_weights.has_own_modules`.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        channels: Channels,
        plan: PartitionPlan | None = None,
        towers: HostTowers = FLAT,
        *,
        values: str = "float32",
        dense_values: str = "float32",
        bucket_bytes: int = BUCKET_BYTES,
        sharded_bytes: int = SHARDED_BYTES,
        grid_bytes: int = GRID_BYTES,
    ) -> None:
        exchange, held, pruning = channels.tables, config.batches_held, config.pruning
        hashed = limits_of(layout, config, head)
        engine: EmbeddingEngine | None = None
        deep: ShardedTables | None = None
        linear = dense = None
        self._modules: TowerWeights | None = None
        self._towered: TowerTables | None = None
        self._sent = SentBytes()
        if towers and config.deep:
            placement = placement_of_hosts(towers, exchange.hosts)
            if has_own_modules(layout, config, towers.towers):
                rows = config.rows_of_host(exchange.hosts)
                dense = build_in_tensorflow(layout, config, head, rows=rows, takes_outputs=True)
                self._modules = TowerWeights(dense, placement, exchange)
            engine = towered = _tower_tables(
                layout,
                config,
                exchange,
                placement,
                self._modules,
                hashed,
                values,
                self._sent,
                sends_sums=towers.sends_sums,
            )
            self._towered = towered
            deep = towered.rows
        elif layout.features and config.deep:
            parts = None if plan is None else TableParts(tables_of(layout.features), exchange.hosts, plan)
            engine = deep = ShardedTables(
                layout.features,
                seed=config.seed,
                exchange=exchange,
                parts=parts,
                held=held,
                pruning=pruning,
                hashed=hashed,
                values=values,
            )
        if layout.features and config.linear:
            features = linear_features(layout, config, head)
            linear = ShardedTables(
                features,
                seed=config.seed,
                exchange=exchange,
                held=held,
                pruning=pruning,
                hashed=hashed,
                hash_prefix=LINEAR,
                values=values,
            )
        super().__init__(
            layout,
            config,
            head,
            channels,
            engine,
            linear,
            dense=dense,
            dense_values=dense_values,
            bucket_bytes=bucket_bytes,
            sharded_bytes=sharded_bytes,
            grid_bytes=grid_bytes,
        )
        self._tables = [(kind, one) for kind, one in (("embedding", deep), ("linear", linear)) if one is not None]

    def begin_attempt(self, beginning: AttemptBeginning) -> None:
        """See :meth:`ModelWeights.begin_attempt <trainer.run.weights.run_state.ModelWeights.begin_attempt>`."""
        for _, tables in self._tables:
            tables.begin_attempt()

    @property
    def tower_figures(self) -> TowerFigures | None:
        """See :attr:`Weights.tower_figures`."""
        if self._towered is None:
            return None
        sent, forms = self._sent, self._towered.forms
        return TowerFigures(sent.between_hosts, sent.messages_between_hosts, sent.inside_hosts, forms.as_rows, forms.as_bags)  # fmt: skip

    def initial_arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.initial_arrays`."""
        shards = (shard_arrays(kind, tables) for kind, tables in self._tables)
        return {**self.dense_arrays(), **{name: array for own in shards for name, array in own.items()}}

    def arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.arrays`. All hosts call it at once."""
        self._gather_modules()
        self._gather_dense(to_all=True)
        return self.initial_arrays()

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`Weights.begin_tables`. All hosts call it at once; then :meth:`dense_arrays` has the modules of all towers, and at rank 0 all slots."""
        self._gather_modules()
        self._gather_dense()
        return tuple(one for kind, tables in self._tables for one in parted_shards(kind, tables, most_bytes))

    def _gather_modules(self) -> None:
        if self._modules is not None:
            self._modules.gather()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """See :meth:`Weights.load`."""
        self.dense.load_state(under(arrays, "dense/"))
        if self._modules is not None:
            self._modules.own.restart()
        for kind, tables in self._tables:
            tables.load_parts(shard_states(arrays, kind, tables))


def _tower_tables(
    layout: InputLayout, config: TrainConfig, exchange: Exchange, placement: TowerPlacement, modules: TowerWeights | None,
    hashed: Mapping[str, TableLimits], values: str, sent: SentBytes, *, sends_sums: bool,
) -> TowerTables:  # fmt: skip
    """This host's part of the tables of towers, of which each has machines of its own."""
    exchanges = exchanges_of(exchange, placement, sent)
    module = None if modules is None else modules.own
    # With modules the bits are not those of the flat exchange anyway, and one request for all events of a host sends fewer bytes.
    return TowerTables(layout.features, seed=config.seed, placement=placement, rank=exchange.rank, exchanges=exchanges, module=module,
                       output_widths=() if module is None else module.widths, is_deterministic=module is None and not sends_sums, may_send_sums=sends_sums, held=config.batches_held,
                       pruning=config.pruning, hashed=hashed, values=values)  # fmt: skip


def empty_batch(layout: InputLayout, batch_rows: int, head: AnyHead = BINARY) -> Batch:
    """A batch without events."""
    ids = IdBatch(
        np.zeros(0, id_dtype(layout.bounds)),
        np.zeros((len(layout.embedded), batch_rows + 1), np.int64),
        np.zeros(0, np.float32) if layout.is_weighted else None,
        layout.bounds,
    )
    dense = np.zeros((batch_rows, layout.dense_width), np.float32)
    return Batch(
        0, ids, dense, np.zeros(head.label_shape(batch_rows), np.float32), np.zeros(batch_rows, np.float32), ()
    )
