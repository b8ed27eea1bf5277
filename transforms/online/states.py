"""The states of joined columns in memory: rows are pushed, and the columns of an event of this moment are asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, overload

import pyarrow as pa

from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, InputError, NotFound
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node, RawColumn, raw_columns
from transforms.joins.definition import JoinDefinition
from transforms.online.joined_table import JoinedTable
from transforms.online.kernel_rows import TILE_SIZES, KernelRows, TileSizes
from transforms.online.key_parts import Part
from transforms.online.keyed_rows import Key, KeyedRows, key_values
from transforms.online.needed_rows import needed_rows
from transforms.online.one_event import Column, OneEvent
from transforms.online.pushed_rows import GivenRows, given_table, micros_of_moment, plain_values
from transforms.online.row_block import RowBlock


class _Columns(NamedTuple):
    """Joined columns whose rows have one key, and whose events have one: answered together.

    Attributes:
        rows: those of the other table by key.
        own: the expressions of the key over an event.
        columns: names, definitions and their expressions.
        of_one: answers for one event.
        plain: the columns of the event that are the key, None if it is computed from some.
    """

    rows: KeyedRows
    own: tuple[Node, ...]
    columns: tuple[Column, ...]
    of_one: OneEvent
    plain: tuple[str, ...] | None

    def answer(self, key: Key | None, at: int) -> dict[str, object]:
        """The columns of an event with a key."""
        return self.of_one.answer(self.rows.of(key), at)

    def plain_key(self, values: Mapping[str, object]) -> Key | None:
        """The key of an event; None if a part of it is null."""
        assert self.plain is not None
        key = tuple(values[name] for name in self.plain)
        return None if None in key else key


class OnlineStates:
    """The joined columns of some definitions.

    Rows may be pushed by any thread, one at a time, while others ask. An answer at ``now`` is that of an event with the time ``now`` in a log whose tables
    have the rows of these states, to the last bit.

    Args:
        tables: the other tables with their definitions.
        rows: their rows, by the name of the table.
        since_micros: answers are for moments from this one on.
        lateness: how much earlier than the newest moment another one may be. Rows that no event since then can see are removed.
        clock: the time of day, in epoch seconds: rows of a later time do not make older ones leave.
        sizes: of the parts of histories whose states are kept.
    """

    def __init__(
        self,
        tables: Sequence[JoinedTable],
        rows: Mapping[str, RowBlock],
        *,
        since_micros: int,
        lateness: timedelta = timedelta(hours=1),
        clock: Callable[[], float] = time.time,
        sizes: TileSizes = TILE_SIZES,
    ) -> None:
        if not isinstance(lateness, timedelta) or lateness < timedelta(0):
            raise InputError("lateness must be a timedelta of at least 0", value=lateness)
        self._tables = {one.name: one for one in tables}
        self._rows: dict[str, list[tuple[KeyedRows, list[str]]]] = {}
        self._columns: list[_Columns] = []
        self._lateness, self._clock = lateness // timedelta(microseconds=1), clock
        self._newest = self._first = since_micros
        for table in tables:
            self._take(table, rows[table.name], sizes)
        self._adding = threading.Lock()
        self._names = list(self.columns)
        own = {node.identity: node for one in self._columns for node in one.own}
        self._plan = compile_plan(own)
        self._are_plain = all(one.plain is not None for one in self._columns)
        self._keys = {column.name: arrow_type(column.type) for node in own.values() for column in raw_columns(node)}

    def _take(self, table: JoinedTable, rows: RowBlock, sizes: TileSizes) -> None:
        by_key: dict[tuple[str, ...], dict[tuple[str, ...], list[Column]]] = {}
        for name, parts in table.parts.items():
            other, own = (tuple(one.identity for one in side) for side in (parts.other, parts.own))
            by_key.setdefault(other, {}).setdefault(own, []).append((name, table.definitions[name], parts))
        for key, by_own in by_key.items():
            names = [column[0] for columns in by_own.values() for column in columns]
            answers = [OneEvent(columns) for columns in by_own.values()]
            keyed = KeyedRows(key, table.used(rows, names), partial(_prepare, answers), sizes)
            self._rows.setdefault(table.name, []).append((keyed, names))
            for columns, of_one in zip(by_own.values(), answers, strict=True):
                own_nodes = columns[0][2].own
                self._columns.append(_Columns(keyed, own_nodes, tuple(columns), of_one, _plain(own_nodes)))

    @property
    def columns(self) -> dict[str, JoinDefinition]:
        """The joined columns, by name."""
        return {name: one for table in self._tables.values() for name, one in table.definitions.items()}

    @property
    def keys(self) -> dict[str, pa.DataType]:
        """The columns of an event that answers need, with their types."""
        return dict(self._keys)

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables whose rows can be pushed."""
        return tuple(self._tables)

    def rows_of(self, table: str) -> int:
        """How many rows are held of a table; a row counts once for each key by which it is held."""
        self.table(table)
        return sum(len(keyed.rows().time) for keyed, _ in self._rows[table])

    def tile_bytes_of(self, table: str) -> int:
        """The memory that states of parts of a table's histories take beside its rows."""
        self.table(table)
        return sum(keyed.tile_bytes for keyed, _ in self._rows[table])

    def push(self, table: str, rows: GivenRows) -> None:
        """Add rows of a table: one, several, or a table of Arrow.

        Raises :class:`~transforms.errors.NotFound` for a table that no joined column reads, :class:`InputError` for a column that is not there or a value
        of another type. Then no row is added.
        """
        self.push_computed(table, self.computed(table, rows))

    def computed(self, table: str, rows: GivenRows) -> RowBlock:
        """What is computed of rows of a table. Raises as :meth:`push`."""
        joined = self.table(table)
        types = {field.name: field.type for field in joined.raw_schema}
        return joined.computed(given_table(rows, types, f"push to table {table}"))

    def push_computed(self, table: str, block: RowBlock) -> None:
        """As :meth:`push`, of what :meth:`computed` has made."""
        joined = self.table(table)
        if not len(block.time):
            return
        parts = [(keyed, joined.used(block, names)) for keyed, names in self._rows[table]]
        with self._adding:
            for keyed, own in parts:
                keyed.add(own)
            self._see(int(block.time.max()))
            for keyed, names in self._rows[table]:
                if keyed.is_merge_due:
                    self._remove_unseen(joined, keyed, names)

    def remove_unseen(self) -> None:
        """Remove the rows that no event can see any more; pushing does so now and then."""
        with self._adding:
            for name, each in self._rows.items():
                for keyed, names in each:
                    self._remove_unseen(self._tables[name], keyed, names)

    def _remove_unseen(self, table: JoinedTable, keyed: KeyedRows, names: list[str]) -> None:
        self._first = max(self._first, self._newest - self._lateness)
        first = self._first
        keyed.keep(lambda rows: needed_rows(table, rows, first, names))

    def needed(self, table: str, rows: RowBlock) -> RowBlock:
        """The rows of a table that events may still see."""
        return needed_rows(self.table(table), rows, max(self._first, self._newest - self._lateness))

    def _see(self, moment_micros: int) -> None:
        """Note a moment; one ahead of the clock counts as now."""
        self._newest = max(self._newest, min(moment_micros, int(self._clock() * 1e6)))

    def _check_moment(self, micros: int, now: datetime) -> None:
        if micros < self._first:
            raise InputError("a moment must not be earlier than the rows that are kept", where="now", value=str(now),
                             allowed=f"from {datetime.fromtimestamp(self._first / 1e6, now.tzinfo)} on", next_step="give a longer lateness")  # fmt: skip

    @overload
    def features(self, keys: Mapping[str, object], now: datetime) -> dict[str, object]: ...

    @overload
    def features(self, keys: pa.Table | pa.RecordBatch, now: datetime) -> pa.Table: ...

    def features(self, keys: Mapping[str, object] | pa.Table | pa.RecordBatch, now: datetime) -> dict[str, object] | pa.Table:  # fmt: skip
        """The joined columns of an event with these keys at ``now``, by name; of a table of keys one row each.

        Args:
            keys: the columns of the event that keys are computed from.
            now: the time of the event; without a zone it is UTC.

        Raises :class:`InputError` for a key that is not there or of another type, and for a moment whose rows may have been removed.
        """
        micros = micros_of_moment(now, "now")
        self._check_moment(micros, now)
        if isinstance(keys, Mapping):
            found = self._of_one(keys, micros)
        else:
            found = self._of_several(given_table(keys, self._keys, "keys"), micros)
        self._see(micros)
        self._check_moment(micros, now)  # rows may have been removed meanwhile
        ordered = {name: found[name] for name in self._names}
        return ordered if isinstance(keys, Mapping) else pa.table(ordered)

    def _of_one(self, keys: Mapping[str, object], at: int) -> dict[str, object]:
        """The columns of one event."""
        found: dict[str, object] = {}
        values = plain_values(keys, self._keys) if self._are_plain else None
        if values is not None:
            for one in self._columns:
                found |= one.answer(one.plain_key(values), at)
            return found
        own = self._computed(given_table(keys, self._keys, "keys"))
        for one in self._columns:
            (key,) = key_values([own[node.identity] for node in one.own])
            found |= one.answer(key, at)
        return found

    def _of_several(self, events: pa.Table, at: int) -> dict[str, object]:
        """The columns of events of one moment: each key is answered once."""
        own = self._computed(events)
        found: dict[str, object] = {}
        for one in self._columns:
            keys = key_values([own[node.identity] for node in one.own])
            answers = {key: one.answer(key, at) for key in dict.fromkeys(keys)}
            for name, _, parts in one.columns:
                found[name] = pa.array([answers[key][name] for key in keys], parts.kind)
        return found

    def _computed(self, events: pa.Table) -> dict[str, pa.Array]:
        """The keys of events by identity."""
        found = self._plan.run(events)
        for failure in found.failures.values():
            raise DataError("an expression of a join must not fail", where="keys", value=str(failure))
        return dict(found.columns)

    def table(self, table: str) -> JoinedTable:
        """A table by its name. Raises :class:`~transforms.errors.NotFound` for one that no joined column reads."""
        if table not in self._tables:
            raise NotFound("a table must be one that joined columns read", value=table, allowed=", ".join(self._tables))
        return self._tables[table]


def _prepare(answers: Sequence[OneEvent], rows: KernelRows) -> None:
    """Load the kernels, and make the views and states that answers read."""
    for one in answers:
        one.answer((Part(rows, 0, 0, 0, 0),), 0)


def _plain(own: tuple[Node, ...]) -> tuple[str, ...] | None:
    """The names of expressions that are raw columns; None if one of them is not."""
    names = tuple(node.name for node in own if isinstance(node, RawColumn))
    return names if len(names) == len(own) else None
