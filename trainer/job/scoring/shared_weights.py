"""One host's part of a trained model, for predictions of all hosts together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trainer.job.host.shard_arrays import shard_states
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.model.unbounded_tables import hashed_tables
from trainer.options.config import TrainConfig
from trainer.options.hashed import HashedOptions
from trainer.options.pruning import GroupOptions
from trainer.run.weights.run_state import LINEAR, Weights, build_dense, limits_of, linear_features
from trainer.run.weights.saved_tables import under
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.pruned.rows import groups_of
from transforms.arrays import Array


def shared_weights(
    layout: InputLayout, config: TrainConfig, head: AnyHead, arrays: Mapping[str, Array], exchange: Exchange
) -> Weights:
    """A model whose rows are spread over the hosts of ``exchange``; its ``predict`` is called by all of them at once, and changes nothing.

    ``arrays``: of a commit, those of this host's share of each table. The dense part, and the modules of towers, are on all hosts.
    """
    fitted = dataclasses.replace(_fitted(config, layout, arrays, exchange.hosts), deterministic=False, engine="cpu")
    limits = limits_of(layout, fitted, head)
    parts: dict[str, ShardedTables] = {}
    for kind, wanted, prefix in (("embedding", fitted.deep, ""), ("linear", fitted.linear, LINEAR)):
        if wanted and layout.features:
            features = linear_features(layout, fitted, head) if kind == "linear" else layout.features
            parts[kind] = ShardedTables(
                features,
                seed=fitted.seed,
                exchange=exchange,
                held=1,
                pruning=fitted.pruning,
                hashed=limits,
                hash_prefix=prefix,
            )
    weights = Weights(layout, parts.get("embedding"), build_dense(layout, fitted, head), head, parts.get("linear"))
    weights.dense.load_state(under(arrays, "dense/"))
    for kind, tables in parts.items():
        tables.load_parts(shard_states(arrays, kind, tables))
        tables.freeze()
    return weights


def _fitted(config: TrainConfig, layout: InputLayout, arrays: Mapping[str, Array], hosts: int) -> TrainConfig:
    """The options with places for the saved rows of this host: predicting gives no other row one.

    Hosts divide the places of hashed tables and of the groups of pruned ones by their number.
    """

    def stored(table: str) -> int:
        return max(len(arrays.get(f"{kind}/rows/{table}", ())) for kind in ("embedding", "linear"))

    hashed = hashed_tables(layout.features, config)
    places = {table: HashedOptions(capacity=max(stored(table), 1) * hosts) for table in hashed}
    pruning = config.pruning
    if pruning is not None:
        tables = tables_of(layout.features)
        groups = [[tables[t] for t in one.tables] for one in groups_of(tables, pruning, hashed)]
        pruning = dataclasses.replace(pruning, groups=tuple(
            GroupOptions(
                tuple(one.name for one in group),
                min(hosts * (sum(stored(one.name) for one in group) + len(group)), sum(one.vocabulary_size for one in group)),
            )
            for group in groups
        ))  # fmt: skip
    return dataclasses.replace(config, hashed=places, pruning=pruning)
