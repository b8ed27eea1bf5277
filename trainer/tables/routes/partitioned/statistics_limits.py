"""Limits of request buffers by the statistics of an engine's features, and where a limit comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.planning.buffer_limits import BufferLimits, limits_of
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.tables.routes.partitioned.static_buffers import stacks_of
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of


@dataclass(frozen=True, slots=True)
class ChosenLimits:
    """The limits of all stacks of a slice, and a sentence about where they come from."""

    ids: int
    unique_ids: int
    reason: str


def without_statistics(features: Sequence[FeatureSpec], statistics: Mapping[str, FeatureStatistics]) -> tuple[str, ...]:
    """The features without statistics, by name; statistics of a table with another number of rows do not count."""
    known = {name: one.frequencies.rows for name, one in statistics.items()}
    return tuple(one.name for one in features if known.get(one.name) != one.table.vocabulary_size)


def limits_by_stack(
    features: Sequence[FeatureSpec],
    statistics: Mapping[str, FeatureStatistics],
    *,
    batch_events: int,
    partitions: int,
    stacks: Sequence[Sequence[str]] = (),
) -> dict[tuple[str, ...], BufferLimits]:
    """The limits of each stack, by the names of its tables.

    Args:
        statistics: of every feature, by name.
        batch_events: events of a batch on all partitions, over which rows are spread cyclically.
        stacks: names of tables by stack, as a plan has them; other tables are stacked by the rule.

    Raises :class:`ConfigError` for features without statistics.
    """
    if missing := without_statistics(features, statistics):
        raise ConfigError("limits from statistics need the statistics of every feature", value=", ".join(missing)[:200],
                          next_step="train the model, or give limits")  # fmt: skip
    found = {
        names: [statistics[one.name] for one in features if one.table.name in names]
        for names in _stacks(tables_of(features), stacks)
    }
    limits = limits_of({"_".join(names): own for names, own in found.items()}, batch_events, partitions)
    return {names: limits["_".join(names)] for names in found}


def _stacks(tables: Sequence[TableSpec], planned: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The names of the tables of each stack; those that are not planned are stacked by the rule."""
    known, named = {one.name for one in tables}, {name for stack in planned for name in stack}
    own = [tuple(name for name in stack if name in known) for stack in planned]
    rest = [one for one in tables if one.name not in named]
    return [*filter(None, own), *(tuple(rest[t].name for t in stack.tables) for stack in stacks_of(rest, None))]


def settings_by_statistics(
    features: Sequence[FeatureSpec],
    statistics: Mapping[str, FeatureStatistics],
    *,
    batch_events: int,
    cores: int,
    stacks: Sequence[Sequence[str]] = (),
) -> SparseCoreSettings:
    """Limits for :class:`~trainer.tables.routes.partitioned.engine.PartitionedEngine`, by stack; see :func:`limits_by_stack`.

    ``stacks``: those of the engine's plan. They hold where rows are spread cyclically over all cores.
    """
    found = limits_by_stack(features, statistics, batch_events=batch_events, partitions=cores, stacks=stacks)
    return SparseCoreSettings(
        max_ids_per_table={"_".join(names): one.ids for names, one in found.items()},
        max_unique_ids_per_table={"_".join(names): one.rows for names, one in found.items()},
    )


def choose_limits(
    features: Sequence[FeatureSpec],
    statistics: Mapping[str, FeatureStatistics],
    *,
    batch_events: int,
    partitions: int,
    stacks: Sequence[Sequence[str]] = (),
    max_ids: int | None = None,
    max_unique_ids: int | None = None,
) -> ChosenLimits:
    """The limits of a slice: those that are given, else the largest of any stack by statistics, else TensorFlow's."""
    if max_ids is not None and max_unique_ids is not None:
        return ChosenLimits(max_ids, max_unique_ids, _sentence(max_ids, max_unique_ids, "as they are given"))
    missing = without_statistics(features, statistics)
    if missing:
        unset = SparseCoreSettings()
        ids, unique_ids = unset.default_max_ids, unset.default_max_unique_ids
        why = f"TensorFlow's, for there are no statistics of {', '.join(missing)}"
    else:
        limits = limits_by_stack(
            features, statistics, batch_events=batch_events, partitions=partitions, stacks=stacks
        ).values()
        ids, unique_ids = max(one.ids for one in limits), max(one.rows for one in limits)
        why = "by the statistics of all features"
    if max_ids is not None or max_unique_ids is not None:
        why += f", but for the {'ids' if max_ids is not None else 'distinct ids'}, which are given"
    ids = ids if max_ids is None else max_ids
    unique_ids = unique_ids if max_unique_ids is None else max_unique_ids
    return ChosenLimits(ids, unique_ids, _sentence(ids, unique_ids, why))


def _sentence(ids: int, unique_ids: int, why: str) -> str:
    return f"limits of SparseCore are {ids:,} ids and {unique_ids:,} distinct ids of a stack: {why}"
