"""Pruned tables that are spread over servers: the places of each server, and what each loads and saves beside its rows.

A server has as large a share of the places of a group as of its rows, and rounds of its own. So no update waits for other servers than those of
its rows, and what a server that is killed goes on with depends on its own memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan
from trainer.planning.row_groups import RowGroup, renumbered
from trainer.tables.engine import NO_SNAPSHOT_SECTIONS, PartedSection, RowSection, SnapshotSections, TableState
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.pruned_groups import groups_on
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.stacked_plan import width_order, with_stacks
from trainer.tables.routes.servers.table_documents import HeldPruning, held_pruning
from trainer.tables.spec import TableSpec
from trainer.tables.stores.dense.snapshot import RANGE_BYTES
from trainer.tables.stores.hashed.saved_history import LoadedHistory
from trainer.tables.stores.pruned.history import (
    IMPORTANCE,
    LEFT,
    NUMBER_WORDS,
    NUMBERS,
    PrunedHistory,
    kept_numbers,
    numbers_array,
    read_histories,
    read_numbers,
)
from trainer.tables.stores.pruned.rows import groups_of
from trainer.tables.stores.pruned.saved_rows import most_important
from transforms.arrays import Array

#: What a server loads: the number of one of its saved parts, the rows, and what a table has beside them.
Loads: TypeAlias = Iterator[tuple[int, TableState, LoadedHistory | None]]


def server_groups(
    tables: Sequence[TableSpec], servers: int, plan: PartitionPlan | None, options: PruningOptions, hashed: Collection[str] = ()
) -> tuple[RowGroup, ...]:  # fmt: skip
    """The groups that the first of some servers has of the ``tables`` that are not ``hashed``, in the order of messages.

    Raises :class:`~trainer.errors.ConfigError` for a group of which a server with rows would have no place, and for slices and copies of tables.
    """
    order = width_order(tables)
    stacked = [tables[t] for t in order]
    parts = TableParts(stacked, servers, with_stacks(plan, stacked, servers))
    return groups_on(parts, renumbered(groups_of(tables, options, hashed), order), 0)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """What a server owns of a saved pruned table, by the server's numbers of rows.

    Attributes:
        rows: the rows that had places.
        count: all rows that the server owns.
        sections: what the table has by rows beside them, by name.
    """

    rows: TableState
    count: int
    sections: Mapping[str, TableState]


def loads_of_server(
    pruning: HeldPruning, parts: int, own: Mapping[int, OwnRows], history: LoadedHistory, *, seed: int, team: Team
) -> Loads:
    """What a server loads of the pruned tables of some of its groups: as many rows as it has places, the most important ones.

    Args:
        pruning: how the tables of the server are pruned.
        parts: the tables of the server, hashed ones included.
        own: what it owns of each table of these groups, by position.
        history: the numbers of all tables.
        seed: of the tables.
        team: threads.
    """
    none = TableState(np.zeros(0, np.int64), np.zeros((0, 1), np.float32), np.zeros((0, 0), np.float32))
    important = {p: one.sections.get(IMPORTANCE, none) for p, one in own.items()}
    pruned = sorted(t for group in pruning.groups for t in group.tables)
    kept = {p: own[p].rows for p in pruned if p in own}
    for group in pruning.groups:
        if not own.keys() & group.tables:
            continue
        every = [_spread(own[t].count, important[t]) for t in group.tables]
        states = [own[t].rows for t in group.tables]
        chosen = most_important(group, states, every, pruning.options, seed=seed, step=history.kept.step, team=team)
        kept.update(zip(group.tables, chosen, strict=True))
    yield from ((p, one, history) for p, one in kept.items())
    yield from ((parts + k, important[p], None) for k, p in enumerate(pruned) if p in own)
    if pruning.options.reset == "restored":
        for k, p in enumerate(pruned):
            if p in own and LEFT in own[p].sections:
                yield parts + len(pruned) + k, own[p].sections[LEFT], None


def _spread(rows: int, important: TableState) -> Array:
    """The importance of all of a server's rows of a table."""
    found = np.zeros(rows, np.float32)
    found[important.rows] = important.weights[:, 0]
    return found


class PrunedServers:
    """Pruned tables on all servers.

    Args:
        parts: of the tables, in the order of messages.
        groups: of the tables in that order, with the places of all servers.
        options: how rows are chosen.
        seed: of the tables.
        team: threads.

    Attributes:
        held: how the tables of each server are pruned.
        names: of the tables of each group, which share its places.

    Raises :class:`ConfigError` for a group of which a server with rows would have no place, and for slices and copies of tables.
    """

    def __init__(
        self, parts: TableParts, groups: Sequence[RowGroup], options: PruningOptions, *, seed: int, team: Team
    ) -> None:
        self._parts, self._seed, self._team = parts, seed, team
        self.names = tuple(tuple(parts.tables[t].name for t in one.tables) for one in groups)
        self.held: list[HeldPruning | None] = [
            held_pruning(options, groups_on(parts, groups, server)) for server in range(parts.cores)
        ]

    def loads(self, state: Mapping[str, TableState]) -> Callable[[int], Loads]:
        """What each server loads of a checked state of all tables, or of those of some groups. Raises :class:`~trainer.errors.TornCheckpoint` for other sections than those of pruned tables."""
        histories = read_histories(self._parts.tables, state)
        known = list(histories.values())
        gain, step = (known[0].gain, known[0].step) if known else (1.0, 0)
        history = LoadedHistory(kept_numbers(gain, step, max((one.rounds for one in known), default=0)))
        return lambda server: self._of_server(server, state, histories, history)

    def _of_server(
        self, server: int, state: Mapping[str, TableState], histories: Mapping[int, PrunedHistory], history: LoadedHistory
    ) -> Loads:  # fmt: skip
        parts, sections = self._parts.parts, {t: one.sections().by_rows for t, one in histories.items()}
        held = self.held[server]
        assert held is not None
        own = {
            p: OwnRows(
                parts[p].own_state(server, state[name]),
                parts[p].row_count(server),
                {section: parts[p].own_state(server, one) for section, one in sections.get(p, {}).items()},
            )
            for group in held.groups
            for p in group.tables
            if (name := parts[p].table.name) in state
        }
        return loads_of_server(held, len(parts), own, history, seed=self._seed, team=self._team)


def pruned_sections(remote: RemoteTables, t: int, counts: Sequence[int]) -> SnapshotSections:
    """What a pruned table had on a server beside its rows at the moment of the snapshot, to be read later; of another table nothing.

    ``counts``: the rows of each saved part.
    """
    found = {
        part.section: RowSection(
            counts[number], part.dim, part.slot_dim, part.rows, remote.rows_in(number, RANGE_BYTES), partial(_read_part, remote, number)
        )
        for number, part in enumerate(remote.saved_parts)
        if part.table == t and part.section
    }  # fmt: skip
    if not found:
        return NO_SNAPSHOT_SECTIONS
    return SnapshotSections(found, arrays={NUMBERS: PartedSection("float64", (3,), _read_numbers(remote, t))})


def _read_part(remote: RemoteTables, number: int, first: int, stop: int) -> TableState:
    """Some rows of one of the parts of a snapshot."""
    found = remote.read_snapshot(number, first, stop)
    return TableState(found.rows, found.weights, found.slots)


def _read_numbers(remote: RemoteTables, t: int) -> Iterator[Array]:
    yield numbers_array(*read_numbers(next(remote.read_history(t, NUMBER_WORDS))))
