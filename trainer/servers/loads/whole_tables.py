"""Hashed and pruned tables, which a server loads as wholes: all rows that it owns, and what the table has beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainer.checkpoints.merge_tables import newest_of_layers
from trainer.errors import TornCheckpoint
from trainer.servers.held_rows import HeldRows
from trainer.servers.loads.owned_rows import OwnedRows
from trainer.tables.engine import ChangedRows, TableSections, TableState
from trainer.tables.hashed_history import KeptHistory
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.servers.pruned_servers import OwnRows, loads_of_server
from trainer.tables.routes.servers.table_documents import HeldPruning, HeldTables
from trainer.tables.spec import TableSpec
from trainer.tables.state_checks import check_state
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.saved_history import CANDIDATES, STEPS, LoadedHistory, loaded_history, newest_rows
from trainer.tables.stores.pruned.history import NUMBERS, PrunedHistory, kept_numbers
from trainer.tables.stores.pruned.saved_parts import SavedPart
from transforms.arrays import Array

_WINDOW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SourceRows:
    """Rows that a source has and a server owns, by the numbers of the server.

    Attributes:
        rows: int64, ascending.
        weights, slots: float32, of each row.
        ages: int64, of each row of a hashed table; of others None.
        read_bytes: that were read for them.
    """

    rows: Array
    weights: Array
    slots: Array
    ages: Array | None
    read_bytes: int


def joined_layers(before: SourceRows, after: SourceRows, removed: Array, steps: int, where: str) -> SourceRows:
    """The rows of a partial shard and of its base, as those of one shard.

    Args:
        before: those of the base, whose arrays may be changed.
        after: those that were changed since.
        removed: rows of the base that there are no more, ascending.
        steps: by which the other rows of the base have become older.
        where: names the table in errors.

    Raises :class:`~trainer.errors.TornCheckpoint` for shards that do not fit each other.
    """
    widths = [(one.weights.shape[1:], one.slots.shape[1:]) for one in (before, after)]
    if widths[0] != widths[1]:
        raise TornCheckpoint(
            "a shard must have the columns of its base", where=where, value=widths[1], allowed=str(widths[0])
        )
    rows, places = newest_of_layers([before.rows, after.rows], 1, removed, where)
    at = np.flatnonzero(places >= len(before.rows))
    later, has_same = places[at] - len(before.rows), np.array_equal(rows, before.rows)

    def joined(base: Array, changed: Array) -> Array:
        if not has_same:
            both: Array = np.concatenate([base, changed])[places]
            return both
        base[at] = changed[later]  # in place: no other copy of a large table
        return base

    ages = None
    if before.ages is not None and after.ages is not None:
        ages = joined(before.ages + steps, after.ages)
    weights, slots = joined(before.weights, after.weights), joined(before.slots, after.slots)
    return SourceRows(rows, weights, slots, ages, before.read_bytes + after.read_bytes)


class Source(Protocol):
    """One saved part of a hashed or pruned table, as a server has it or has saved it."""

    def owned(self, own: OwnedRows) -> SourceRows:
        """Its rows that are among those owned. Raises :class:`~trainer.errors.TornCheckpoint`."""

    def section(self, section: str) -> Array:
        """An array that the table has beside its rows, by name. Raises :class:`~trainer.errors.TornCheckpoint`."""


@dataclass(frozen=True, slots=True)
class WholePart:
    """A saved part of a table that is loaded as a whole.

    Attributes:
        sources: of its rows, one for each server that has them or has saved them.
        own: those of ``sources`` that may have rows of the server that loads.
        rows: the rows that this server owns.
    """

    sources: Sequence[Source]
    own: Sequence[int]
    rows: OwnedRows

    def read(self, part: SavedPart) -> tuple[TableState, int]:
        """All rows that the server owns, ascending, by its numbers; and the bytes that were read."""
        found = [self.sources[k].owned(self.rows) for k in self.own]
        none = SourceRows(np.zeros(0, np.int64), np.zeros((0, part.dim), np.float32),
                          np.zeros((0, part.slot_dim), np.float32), None, 0)  # fmt: skip
        return _joined([none, *found]), sum(one.read_bytes for one in found)


def load_whole_tables(
    rows: HeldRows, parts: Mapping[int, WholePart], server: int, servers: int
) -> Iterator[tuple[int, int, int]]:
    """Load all hashed and pruned tables, inside a load; yields the number of each saved part, its loaded rows and the bytes that were read.

    Args:
        rows: of the server.
        parts: each saved part of these tables, by number.
        server, servers: the place of the server, and the number of servers that load.
    """
    held = rows.held
    for p, table in enumerate(held.tables):
        if table.limits is not None and parts[p].rows.count:
            yield p, *_load_hashed(rows, p, parts[p], server, servers)
    if held.pruning is not None:
        yield from _load_pruned(rows, held.pruning, parts)


def is_whole(held: HeldTables, table: int) -> bool:
    """Whether a table of a server is loaded as a whole."""
    return held.pruning is not None or held.tables[table].limits is not None


def _load_hashed(rows: HeldRows, p: int, part: WholePart, server: int, servers: int) -> tuple[int, int]:
    """Load a hashed table, with the memory of the rows that the server owns; as training loads it from arrays."""
    held, sources = rows.held.tables[p], part.sources
    limits: TableLimits | None = held.limits
    assert limits is not None
    found = [sources[k].owned(part.rows) for k in part.own]
    state, ages = _joined(found), np.concatenate([one.ages for one in found if one.ages is not None])
    ages = ages[np.argsort(np.concatenate([one.rows for one in found]), kind="stable")]
    check_state(held.table, state)
    state, ages, evicted = newest_rows(state, ages, limits.capacity)
    steps, candidates = np.concatenate([one.section(STEPS) for one in sources]), np.zeros(0, np.uint64)
    is_same = len(steps) == servers == len(sources)
    if is_same:
        of_server = sources[server].section(CANDIDATES)
        candidates = of_server if len(of_server) == limits.table(held.table).candidate_places else candidates
    history = loaded_history(int(steps[server] if is_same else steps.max()), ages, candidates, evicted)
    rows.load_history(p, history.kept, 0)
    first = 0
    for window in _windows(rows.saved_parts[p], state):
        rows.load(p, window, ages[first : first + len(window.rows)])
        first += len(window.rows)
    return len(state.rows), sum(one.read_bytes for one in found)


def _load_pruned(
    rows: HeldRows, pruning: HeldPruning, parts: Mapping[int, WholePart]
) -> Iterator[tuple[int, int, int]]:
    """Load pruned tables group by group, with the memory of what the server owns of one; as training loads them from arrays."""
    held, team = rows.held, Team(1)
    numbers = {t: parts[t].sources[0].section(NUMBERS) for group in pruning.groups for t in group.tables}
    for group in pruning.groups:
        own, bytes_of = dict[int, OwnRows](), dict[int, int]()
        for t in group.tables:
            states = dict[str, TableState]()
            for p, part in enumerate(held.saved_parts):
                if part.table == t:
                    states[part.section], bytes_of[p] = parts[p].read(part)
            of_table = states.pop("")
            check_state(held.tables[t].table, of_table)
            history = _history_of(held.tables[t].table, states, numbers[t])
            own[t] = OwnRows(of_table, parts[t].rows.count, states)
        loads = loads_of_server(pruning, len(held.tables), own, LoadedHistory(history), seed=held.seed, team=team)
        for p, state, loaded in loads:
            if loaded is not None:
                rows.load_history(p, loaded.kept, 0)
            for window in _windows(rows.saved_parts[p], state):
                rows.load(p, window)
            yield p, len(state.rows), bytes_of[p]


def _history_of(table: TableSpec, sections: Mapping[str, TableState], numbers: Array) -> KeptHistory:
    """The numbers of a pruned table. Raises :class:`TornCheckpoint` for numbers, or for importance of rows, that it cannot have."""
    found = PrunedHistory.read(table.name, TableSections(dict(sections), {NUMBERS: numbers}))
    assert found is not None, "both of its sections are there"
    found.check(table)
    return kept_numbers(found.gain, found.step, found.rounds)


def _joined(found: Sequence[SourceRows]) -> TableState:
    """The rows of all sources, ascending."""
    rows, weights, slots = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("rows", "weights", "slots")
    )
    by_row = np.argsort(rows, kind="stable")
    return TableState(rows[by_row], weights[by_row], slots[by_row])


def _windows(part: SavedPart, state: TableState) -> Iterator[ChangedRows]:
    step = max(_WINDOW_BYTES // (8 + 4 * (part.dim + part.slot_dim)), 1)
    for first in range(0, len(state.rows), step):
        at = slice(first, first + step)
        yield ChangedRows(state.rows[at], state.weights[at], state.slots[at])
