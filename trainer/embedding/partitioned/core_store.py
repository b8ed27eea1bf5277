"""The store of one core's rows."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.embedding.cpu.dense_store import DenseStore
from trainer.embedding.hashed.limits import TableLimits
from trainer.embedding.hashed.store import HashedStore
from trainer.embedding.partitioned.pruned_groups import groups_on
from trainer.embedding.partitioned.table_parts import TableParts
from trainer.embedding.pruned.rows import groups_of
from trainer.embedding.pruned.store import PrunedStore
from trainer.embedding.row_store import RowStore
from trainer.pruning_options import PruningOptions


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
