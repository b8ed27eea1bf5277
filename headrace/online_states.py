"""Joined columns for serving: the states that ``headrace export states`` wrote, and what was pushed since."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import overload

import pyarrow as pa

from transforms.joins.definition import JoinDefinition
from transforms.joins.text import definition_text
from transforms.online.pushed_rows import GivenRows
from transforms.online.row_block import RowBlock, block_of, joined_blocks
from transforms.online.states import OnlineStates
from warehouse.states.exact_rows import row_difference
from warehouse.states.folder import States, link_names, read_states

#: Pushed rows that no event sees are removed after so many, or as many as there were.
_FEWEST_REMOVED = 10_000


class Online:
    """The joined columns of a model for events of this moment; :func:`online` makes it.

    Any thread may ask and push. An answer is that of an event with these keys at ``now`` in a log whose tables have the exported and the pushed rows,
    to the last bit; a row is seen when ``available_after`` and ``known_at`` say so.
    """

    def __init__(self, folder: Path, lateness: timedelta, clock: Callable[[], float]) -> None:
        self._folder, self._lateness, self._clock = folder, lateness, clock
        self._changing = threading.Lock()
        self._pushed: dict[str, _Pushed] = {}
        self._exported = read_states(folder)
        self._states = self._made(self._exported)

    def _made(self, exported: States) -> OnlineStates:
        rows = {name: block_of(table) for name, table in exported.rows.items()}
        return OnlineStates(exported.link.joined_tables(), rows, since_micros=exported.link.since_micros, lateness=self._lateness, clock=self._clock)  # fmt: skip

    @property
    def columns(self) -> dict[str, JoinDefinition]:
        """The joined columns, by name."""
        return self._states.columns

    @property
    def joins(self) -> dict[str, str]:
        """How each joined column is made, in one line."""
        return {name: definition_text(one) for name, one in self.columns.items()}

    @property
    def keys(self) -> dict[str, pa.DataType]:
        """The columns of an event that answers need, with their types."""
        return self._states.keys

    @property
    def versions(self) -> dict[str, int]:
        """The version of each other table whose rows were exported: rows that came later are to be pushed."""
        return {one.name: one.version for one in self._exported.link.tables}

    def push(self, table: str, rows: GivenRows) -> None:
        """Add rows of another table: one as a mapping, several in a list, or a pyarrow table. Other columns of a row are left out.

        Raises :class:`~transforms.errors.NotFound` for a table that no joined column reads, and :class:`~transforms.errors.InputError` for a column that
        is not there or a value of another type; then no row is added.
        """
        with self._changing:
            block = self._states.computed(table, rows)
            self._states.push_computed(table, block)
            self._pushed.setdefault(table, _Pushed()).add(block, lambda rows: self._states.needed(table, rows))

    @overload
    def features(self, keys: Mapping[str, object], now: datetime) -> dict[str, object]: ...

    @overload
    def features(self, keys: pa.Table | pa.RecordBatch, now: datetime) -> pa.Table: ...

    def features(self, keys: Mapping[str, object] | pa.Table | pa.RecordBatch, now: datetime) -> dict[str, object] | pa.Table:  # fmt: skip
        """The joined columns of an event at ``now``, by name; for a table of keys a table, row by row.

        Args:
            keys: a value for each of :attr:`keys`.
            now: the time of the event; without a zone it is UTC.

        Raises :class:`~transforms.errors.InputError` for a key that is not there or of another type, and for a moment whose rows may be gone.
        """
        return self._states.features(keys, now)

    def refresh(self) -> bool:
        """Take new links of the folder; whether there were any. A pushed row that is in the export now counts once.

        Answers are given meanwhile, from the rows of before.
        """
        with self._changing:
            if link_names(self._folder)[-1:] == [self._exported.link.name]:
                return False
            exported = read_states(self._folder)
            states = self._made(exported)
            for name, pushed in self._pushed.items():
                if name in states.table_names:
                    kept = _not_exported(states, name, pushed.blocks, self._exported, exported)
                    states.push_computed(name, kept)
                    self._pushed[name] = _Pushed([kept], len(kept.time))
            self._exported, self._states = exported, states
            return True


@dataclass
class _Pushed:
    """The rows of a table that were pushed, as far as events may still see them.

    Attributes:
        blocks: the rows.
        kept: how many there were when those that no event sees were last removed.
        added: how many have come since.
    """

    blocks: list[RowBlock] = field(default_factory=list)
    kept: int = 0
    added: int = 0

    def add(self, block: RowBlock, needed: Callable[[RowBlock], RowBlock]) -> None:
        """Add rows; now and then those that are not needed are removed."""
        self.blocks.append(block)
        self.added += len(block.time)
        if self.added >= max(self.kept, _FEWEST_REMOVED):
            self.blocks = [needed(joined_blocks(self.blocks))]
            self.kept, self.added = len(self.blocks[0].time), 0


def _not_exported(states: OnlineStates, name: str, pushed: list[RowBlock], before: States, after: States) -> RowBlock:
    """The pushed rows that are not among those that the export has added; each added one is one pushed row."""
    rows = joined_blocks([states.table(name).no_rows(), *pushed])
    if name not in before.rows or before.rows[name].schema != after.rows[name].schema:
        return rows
    added = after.rows[name].take(pa.array(row_difference(before.rows[name], after.rows[name])[1]))
    return rows.take(row_difference(states.table(name).table_of(rows), added)[0])


def online(folder: str | Path, *, lateness: timedelta = timedelta(hours=1), clock: Callable[[], float] = time.time) -> Online:  # fmt: skip
    """The joined columns of a model for serving, from the folder of ``headrace export states``.

    Args:
        folder: the folder of the links.
        lateness: how much earlier than the newest moment a moment may be that is asked for; rows that are older than that and every window are removed.
        clock: the time of day in epoch seconds.

    >>> found = online(states)
    >>> list(found.joins.values())
    ['table(log).by(user_id).count(window=1h)']
    >>> found.push("log", {"user_id": 7, "time": datetime(2026, 4, 1, 12)})
    >>> list(found.features({"user_id": 7}, datetime(2026, 4, 1, 12, 30)).values())
    [1]

    Raises :class:`~transforms.errors.NotFound` for a folder without states, and :class:`~transforms.errors.DataError` for damaged ones.
    """
    return Online(Path(folder), lateness, clock)
