"""The store of tables of any kinds: plain, hashed or pruned ones, in memory of a process or of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.kernels.memory import PrivateMemory, TableMemory
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.spec import TableSpec
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.store import HashedStore
from trainer.tables.stores.joined.joined_store import JoinedPart, JoinedStore
from trainer.tables.stores.joined.part_of_memory import PartOfMemory
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.store import PrunedStore
from trainer.tables.stores.row_store import HeldStore

#: Begins the names of the arrays of pruned tables in the memory of several stores.
_PRUNED = "pruned_"


@dataclass(frozen=True, slots=True)
class RowKinds:
    """Which rows of tables have memory.

    Attributes:
        hashed: the limits of tables whose rows are by id, by name.
        pruning: how the most important rows of all other tables are chosen; None: all of their rows have memory.
        groups: of the pruned tables, by their positions among all tables.
        hash_prefix: of the names by which ids are hashed.
        job: the places that the hosts of a job share among their pruned tables; None: those of ``groups`` are for the rows here alone. Its tables here
            are by their positions among all.
    """

    hashed: Mapping[str, TableLimits]
    pruning: PruningOptions | None = None
    groups: tuple[RowGroup, ...] = ()
    hash_prefix: str = ""
    job: JobPlaces | None = None


def open_store(
    tables: Sequence[TableSpec], kinds: RowKinds, *, seed: int, threads: int, origins: Sequence[TableOrigin], answers: int,
    memory: TableMemory | None = None, undo_log: UndoLog | None = None,
) -> HeldStore:  # fmt: skip
    """The rows of tables.

    Args:
        tables: the tables, or the parts of tables that are here.
        kinds: which of their rows have memory.
        seed: what initial weights and samples are drawn from.
        threads: threads of the loops; 0 for one a processor.
        origins: of each table, the part of a whole table that it is.
        answers: results of reading that are in use at once.
        memory: has the rows; None: memory of this process.
        undo_log: of the same memory; None: a change that is cut off is not undone.

    Raises :class:`~trainer.errors.ConfigError` for tables that do not fit, and :class:`~trainer.errors.DamagedMemory` for a memory with other
    bytes than were written.
    """
    if kinds.pruning is None:
        if not kinds.hashed:
            return DenseStore(tables, seed=seed, threads=threads, origins=origins, answers=answers, memory=memory, undo_log=undo_log)  # fmt: skip
        return HashedStore(tables, kinds.hashed, seed=seed, threads=threads, origins=origins, answers=answers, memory=memory,
                           undo_log=undo_log, hash_prefix=kinds.hash_prefix)  # fmt: skip
    if not kinds.hashed:
        return PrunedStore(tables, kinds.pruning, groups=kinds.groups, seed=seed, threads=threads, origins=origins, answers=answers,
                           memory=memory, undo_log=undo_log, job=kinds.job)  # fmt: skip
    return _joined(tables, kinds, kinds.pruning, seed=seed, threads=threads, origins=origins, answers=answers,
                   memory=memory or PrivateMemory(), undo_log=undo_log)  # fmt: skip


def _joined(
    tables: Sequence[TableSpec], kinds: RowKinds, pruning: PruningOptions, *, seed: int, threads: int, origins: Sequence[TableOrigin],
    answers: int, memory: TableMemory, undo_log: UndoLog | None,
) -> JoinedStore:  # fmt: skip
    """The store of hashed tables and that of pruned ones. The index of hashed tables is first in the undo log."""
    by_id = tuple(t for t, one in enumerate(tables) if one.name in kinds.hashed)
    numbered = tuple(t for t in range(len(tables)) if t not in by_id)
    position = {t: k for k, t in enumerate(numbered)}
    groups = [RowGroup(tuple(position[t] for t in one.tables), one.rows) for one in kinds.groups]
    log_of_pruned = None if undo_log is None else undo_log.beside_store()
    hashed = HashedStore([tables[t] for t in by_id], kinds.hashed, seed=seed, threads=threads, origins=[origins[t] for t in by_id],
                         answers=answers, memory=memory, undo_log=undo_log, hash_prefix=kinds.hash_prefix)  # fmt: skip
    pruned = PrunedStore([tables[t] for t in numbered], pruning, groups=groups, seed=seed, threads=threads,
                         origins=[origins[t] for t in numbered], answers=answers, memory=PartOfMemory(memory, _PRUNED),
                         undo_log=log_of_pruned, job=None if kinds.job is None else kinds.job.of_tables(numbered))  # fmt: skip
    beside = len(pruned.saved_parts) - len(numbered)
    return JoinedStore(tables, [JoinedPart(hashed, by_id), JoinedPart(pruned, numbered, beside)], memory=memory, undo_log=undo_log,
                       answers=answers)  # fmt: skip
