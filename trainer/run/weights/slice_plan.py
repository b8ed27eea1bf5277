"""What a slice takes of a partition plan: stacks, limits by statistics, and the tables that each device has whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.model.inputs import InputLayout
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.plan import PartitionPlan
from trainer.run.weights.one_engine import by_input, place_of
from trainer.tables.routes.partitioned.statistics_limits import choose_limits
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec, tables_of
from transforms.types import ColumnType, Dense, Vector


@dataclass(frozen=True, slots=True)
class SliceTables:
    """The settings of SparseCore on a slice, and a sentence about where its limits come from."""

    settings: SparseCoreSettings
    reason: str


def most_ids_of(column_type: ColumnType) -> int:
    """The most ids of an event in an input of this type; 0 where there is no bound."""
    if isinstance(column_type, Vector):
        return column_type.size
    return 1 if isinstance(column_type, Dense) else 0


def replicated_tables(plan: PartitionPlan, layout: InputLayout, features: Sequence[FeatureSpec]) -> dict[str, int]:
    """The most ids of a bag of each table that a slice has whole on every device, by the table's name in ``features``.

    They are those that the plan replicates, in both parts of the model, if each of their inputs bounds the ids of an event: programs of TPUs
    have fixed shapes. Where that is all tables, the largest one is left out, for the embedding hardware must have one.
    """
    bounds = by_input(features, {one.name: most_ids_of(one.type) for one in layout.embedded})
    planned = {one.name for one in plan.tables if one.is_replicated}
    tables = tables_of(features)
    found = {}
    for table in tables:
        own = [1 if one.max_sequence_length else bounds[one.name] for one in features if one.table == table]
        if place_of(table.name)[1] in planned and min(own) > 0:
            found[table.name] = max(own)
    if len(found) == len(tables):
        del found[max(tables, key=lambda one: one.vocabulary_size * one.dim).name]
    return found


def slice_tables(
    plan: PartitionPlan | None,
    layout: InputLayout,
    features: Sequence[FeatureSpec],
    statistics: Mapping[str, FeatureStatistics],
    *,
    batch_events: int,
    sparse_cores: int,
    max_ids: int | None,
    max_unique_ids: int | None,
) -> SliceTables:
    """The tables of a slice by the plan, if there is one.

    Args:
        layout: of the model's inputs.
        features: of the engine, of both parts of the model.
        statistics: of inputs, by name, as far as they are known.
        batch_events: of a step on all devices.
        sparse_cores: of all devices.
        max_ids, max_unique_ids: limits that are given; None for those by statistics.
    """
    stacks = () if plan is None else plan.stacks
    replicated = {} if plan is None else replicated_tables(plan, layout, features)
    spread = [one for one in features if one.table.name not in replicated]
    limits = choose_limits(
        spread,
        by_input(spread, statistics),
        batch_events=batch_events,
        partitions=sparse_cores,
        stacks=stacks,
        max_ids=max_ids,
        max_unique_ids=max_unique_ids,
    )
    settings = SparseCoreSettings(
        default_max_ids=limits.ids, default_max_unique_ids=limits.unique_ids, stacks=stacks, replicated=replicated
    )
    return SliceTables(settings, limits.reason)
