"""The tables of the deep part and of the linear part in one embedding engine: a TPU has one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.options.pruning import GroupOptions, PruningOptions
from trainer.planning.hot_shares import hot_rows_of
from trainer.planning.tables import FeatureLoad
from trainer.run.weights.run_state import LINEAR, limits_of, linear_features
from trainer.tables.batches import IdBatch
from trainer.tables.planned_tables import tables_to_plan
from trainer.tables.routes.servers.served_engine import ServedOptions
from trainer.tables.spec import FeatureSpec, tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.pruned.rows import groups_of

T = TypeVar("T")


def joined_features(layout: InputLayout, config: TrainConfig, head: AnyHead) -> tuple[FeatureSpec, ...]:
    """The features of one engine: those of the deep part, then those of the linear part."""
    deep = layout.features if config.deep else ()
    linear = linear_features(layout, config, head) if config.linear else ()
    return (*deep, *(_renamed(feature) for feature in linear))


def _renamed(feature: FeatureSpec) -> FeatureSpec:
    table = replace(feature.table, name=LINEAR + feature.table.name)
    return replace(feature, name=LINEAR + feature.name, table=table)


def joined_ids(ids: IdBatch, config: TrainConfig) -> IdBatch:
    """The ids of a batch for the features of :func:`joined_features`: twice, if the model has both parts."""
    if not (config.deep and config.linear):
        return ids
    weights = None if ids.weights is None else np.concatenate([ids.weights, ids.weights])
    offsets = np.concatenate([ids.offsets, ids.offsets + len(ids.ids)])
    bounds = None if ids.bounds is None else ids.bounds * 2
    return IdBatch(np.concatenate([ids.ids, ids.ids]), offsets, weights, bounds)


def joined_options(layout: InputLayout, config: TrainConfig, head: AnyHead) -> ServedOptions:
    """What the tables of one engine are beside plain ones. Raises :class:`~trainer.errors.ConfigError` for hot rows of no table."""
    features, limits = joined_features(layout, config, head), limits_of(layout, config, head)
    return ServedOptions(
        _joined_limits(limits, config),
        _joined_pruning(layout, config, head, limits),
        _joined_hot_rows(layout, config, features),
    )


def _joined_hot_rows(layout: InputLayout, config: TrainConfig, features: Sequence[FeatureSpec]) -> dict[str, int]:
    """The hot rows of each table: as many in both parts of the model. A share is shared out as without statistics."""
    if config.hot_rows is None:
        return {}
    loads = {
        one.name: FeatureLoad.assumed(one.name, one.table.vocabulary_size, (), has_one_id=True)
        for one in layout.features
    }
    found = hot_rows_of(config.hot_rows, tables_to_plan(layout.features, loads))
    return {one.name: found[one.name.removeprefix(LINEAR)] for one in tables_of(features)}


def _joined_pruning(
    layout: InputLayout, config: TrainConfig, head: AnyHead, hashed: Collection[str]
) -> PruningOptions | None:
    """The options of pruned tables: each part of the model has the groups that it has in an engine of its own."""
    if config.pruning is None:
        return None
    parts = []
    if config.deep:
        parts.append(("", tables_of(layout.features)))
    if config.linear:
        parts.append((LINEAR, tables_of(linear_features(layout, config, head))))
    groups = tuple(
        GroupOptions(tuple(prefix + tables[t].name for t in group.tables), group.rows)
        for prefix, tables in parts
        for group in groups_of(tables, config.pruning, hashed)
    )
    return replace(config.pruning, groups=groups)


def _joined_limits(limits: Mapping[str, TableLimits], config: TrainConfig) -> dict[str, TableLimits]:
    deep = limits if config.deep else {}
    linear = {LINEAR + name: one for name, one in limits.items()} if config.linear else {}
    return {**deep, **linear}


def by_input(features: Sequence[FeatureSpec], known: Mapping[str, T]) -> dict[str, T]:
    """What is known of inputs, by the names of the features of one engine."""
    named = {one.name: one.name.removeprefix(LINEAR) for one in features}
    return {name: known[of_input] for name, of_input in named.items() if of_input in known}


def place_of(table: str) -> tuple[str, str]:
    """The part of the model that has a table of one engine, as checkpoints name it, and the table's name there."""
    return ("linear", table.removeprefix(LINEAR)) if table.startswith(LINEAR) else ("embedding", table)


def name_in_engine(kind: str, table: str) -> str:
    """The inverse of :func:`place_of`."""
    return LINEAR + table if kind == "linear" else table
