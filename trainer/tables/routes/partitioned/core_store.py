"""The store of one core's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.partitioned.pruned_groups import groups_on, job_tables, shared_groups_on, shares_places
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.open_store import RowKinds, open_store
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.row_store import RowStore


def store_of(
    parts: TableParts, exchange: Exchange, *, seed: int, threads: int, pruning: PruningOptions | None, hashed: Mapping[str, TableLimits],
    hash_prefix: str, groups: Sequence[RowGroup] | None = None, job: JobPlaces | None = None,
) -> RowStore:  # fmt: skip
    """The rows of this core of ``exchange``: all of them have values, or the most important ones, and of hashed tables those of ids that were seen.

    ``hashed``: the limits of this core's part of hashed tables, by name. ``groups``: of the pruned tables, with the places of this core, and ``job``, the
    places that it shares with others; None: those by the options. Raises :class:`~trainer.errors.ConfigError` for tables that do not fit.
    """
    rank = exchange.rank
    shards = [part.shard(rank) for part in parts.parts]
    if groups is None and pruning is not None:
        of_all = groups_of(parts.tables, pruning, hashed)
        if shares_places(pruning, exchange.hosts):
            groups, job = shared_groups_on(parts, of_all, rank), JobPlaces(job_tables(parts, of_all, rank), exchange)
        else:
            groups = groups_on(parts, of_all, rank)
    kinds = RowKinds(hashed, pruning, tuple(groups or ()), hash_prefix, job)
    return open_store([table for table, _ in shards], kinds, seed=seed, threads=threads, origins=[origin for _, origin in shards],
                      answers=2 * parts.cores)  # fmt: skip
