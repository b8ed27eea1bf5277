"""The store of one core's rows."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.options.pruning import PruningOptions
from trainer.tables.routes.partitioned.pruned_groups import groups_on
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.store import HashedStore
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.pruned.store import PrunedStore
from trainer.tables.stores.row_store import RowStore


def store_of(
    parts: TableParts, rank: int, *, seed: int, threads: int, pruning: PruningOptions | None, hashed: Mapping[str, TableLimits],
    hash_prefix: str,
) -> RowStore:  # fmt: skip
    """The rows of the core of ``rank``: all of them have values, or the most important ones, or those of ids that were seen.

    ``hashed``: the limits of this core's part of hashed tables, by name. Raises :class:`~trainer.errors.ConfigError` for tables that do not fit.
    """
    shards = [part.shard(rank) for part in parts.parts]
    tables, origins, answers = [table for table, _ in shards], [origin for _, origin in shards], 2 * parts.cores
    if pruning is not None:
        groups = groups_on(parts, groups_of(parts.tables, pruning), rank)
        return PrunedStore(tables, pruning, seed=seed, threads=threads, origins=origins, groups=groups, answers=answers)
    if hashed:
        return HashedStore(
            tables, hashed, seed=seed, threads=threads, origins=origins, answers=answers, hash_prefix=hash_prefix
        )
    return DenseStore(tables, seed=seed, threads=threads, origins=origins, answers=answers)
