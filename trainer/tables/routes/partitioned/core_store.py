"""The store of one core's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.routes.partitioned.pruned_groups import groups_on
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.open_store import RowKinds, open_store
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.row_store import RowStore


def store_of(
    parts: TableParts, rank: int, *, seed: int, threads: int, pruning: PruningOptions | None, hashed: Mapping[str, TableLimits],
    hash_prefix: str, groups: Sequence[RowGroup] | None = None,
) -> RowStore:  # fmt: skip
    """The rows of the core of ``rank``: all of them have values, or the most important ones, and of hashed tables those of ids that were seen.

    ``hashed``: the limits of this core's part of hashed tables, by name. ``groups``: of the pruned tables, with the places of this core; None: its
    share by its rows, of those by the options. Raises :class:`~trainer.errors.ConfigError` for tables that do not fit.
    """
    shards = [part.shard(rank) for part in parts.parts]
    if groups is None:
        groups = () if pruning is None else groups_on(parts, groups_of(parts.tables, pruning, hashed), rank)
    kinds = RowKinds(hashed, pruning, tuple(groups), hash_prefix)
    return open_store([table for table, _ in shards], kinds, seed=seed, threads=threads, origins=[origin for _, origin in shards],
                      answers=2 * parts.cores)  # fmt: skip
