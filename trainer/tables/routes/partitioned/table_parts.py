"""The parts of tables by a partition plan: a part is one slice of columns of a table, whose rows are on the cores of the slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables.engine import ChangedRows, RowSection, TableSections, TableState
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec
from trainer.tables.stores.dense.snapshot import RANGE_BYTES, rows_of_range
from transforms.arrays import Array

CYCLIC, BLOCKS, REPLICATED = 0, 1, 2


class PartLayout(NamedTuple):
    """The parts of all tables, table after table, as kernels see them; int64.

    Attributes:
        table: the table of each part.
        column: its first column in the table.
        dims: its columns.
        kind: how its rows are spread: ``CYCLIC``, ``BLOCKS`` or ``REPLICATED``.
        first_core: where the cores of each part begin in ``cores``, and where the last ones end.
        cores: the cores of all parts.
        row_ends: of each core of a part in blocks, the row after its last; 0 for others.
    """

    table: Array
    column: Array
    dims: Array
    kind: Array
    first_core: Array
    cores: Array
    row_ends: Array


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """One slice of columns of a table.

    Attributes:
        name: distinct among the parts of an engine.
        t: the position of the table among those of the engine.
        table: the table.
        slice_: the columns, and the cores of the rows.
        is_replicated: whether each of these cores has all rows.
        slots: which of the table's slot values belong to these columns, in the part's order.
    """

    name: str
    t: int
    table: TableSpec
    slice_: Slice
    is_replicated: bool
    slots: Array

    @property
    def columns(self) -> slice:
        """Its columns in the table."""
        return slice(self.slice_.first_column, self.slice_.first_column + self.slice_.columns)

    @property
    def is_sliced(self) -> bool:
        """Whether these are not all columns of the table."""
        return self.slice_.columns < self.table.dim

    def gives(self, core: int) -> bool:
        """Whether ``core`` gives rows of this part to a state: of a replicated part the first core alone."""
        if self.is_replicated:
            return core == self.slice_.cores[0]
        return self.row_count(core) > 0

    def is_saved_by(self, core: int) -> bool:
        """Whether ``core`` saves its rows, of which it may have none: of a replicated part the first core alone."""
        return core in (self.slice_.cores[:1] if self.is_replicated else self.slice_.cores)

    def reader(self, core: int) -> int:
        """The core that ``core`` asks for rows of this replicated part."""
        cores = self.slice_.cores
        return core if core in cores else cores[core % len(cores)]

    def shard(self, core: int) -> tuple[TableSpec, TableOrigin]:
        """The rows of this part on ``core`` as a table of its own, and where they come from; one row, never read, where it has none."""
        stride, first, rows = self._rows_on(core)
        own = replace(self.table, name=self.name, vocabulary_size=max(rows, 1), dim=self.slice_.columns,
                      initializer=self.table.effective_initializer)  # fmt: skip
        return own, TableOrigin(self.table.name, stride, first, self.slice_.first_column)

    def _rows_on(self, core: int) -> tuple[int, int, int]:
        """Row r on ``core`` is row ``stride * r + first`` of the table: (stride, first, number of rows)."""
        rows, one = self.table.vocabulary_size, self.slice_
        if core not in one.cores:
            return 1, 0, 0
        place = one.cores.index(core)
        if self.is_replicated:
            return 1, 0, rows
        if one.row_ends:
            return 1, one.row_ends[place - 1] if place else 0, one.rows_of(place, rows)
        return len(one.cores), place, one.rows_of(place, rows)

    def row_count(self, core: int) -> int:
        """The rows on ``core``."""
        return self._rows_on(core)[2]

    def own_rows(self, core: int, rows: Array) -> tuple[Array, Array]:
        """Which ``rows`` of the table are on ``core``, as a mask, and their numbers there."""
        stride, first, count = self._rows_on(core)
        own = (rows - first) // stride
        mine = (own >= 0) & (own < count) & (own * stride + first == rows)
        return mine, own[mine]

    def own_state(self, core: int, whole: TableState) -> TableState:
        """The rows and columns of ``core`` from the state of the table, with its numbers of rows."""
        mine, rows = self.own_rows(core, whole.rows)
        if not self.is_sliced:
            return TableState(rows, whole.weights[mine], whole.slots[mine])
        return TableState(rows, whole.weights[mine, self.columns], whole.slots[mine][:, self.slots])

    def whole_rows(self, core: int, own: Array) -> Array:
        """The numbers in the table of rows on ``core``."""
        stride, first, _ = self._rows_on(core)
        rows: Array = own * stride + first
        return rows

    def window_rows(self, row_floats: int, range_bytes: int) -> int:
        """The rows of the table of which a core has at most ``range_bytes``, for rows of so many floats."""
        spread = 1 if self.is_replicated or self.slice_.row_ends else len(self.slice_.cores)
        return spread * rows_of_range(row_floats, range_bytes)

    def own_range(self, core: int, first_row: int, stop_row: int) -> tuple[int, int]:
        """Where the rows of the table from ``first_row`` to ``stop_row`` begin and end on ``core``."""
        stride, first, count = self._rows_on(core)
        begin, end = (min(max(-(-(row - first) // stride), 0), count) for row in (first_row, stop_row))
        return begin, end

    def whole_section(self, core: int, own: RowSection) -> RowSection:
        """A section of the rows on ``core``, with their numbers in the table."""

        def read(first: int, stop: int) -> TableState:
            begin, end = self.own_range(core, first, stop)
            if begin == end:  # a server takes the range [0, 0) as the end of a part
                return own.none()
            found = own.read(begin, end)
            return replace(found, rows=self.whole_rows(core, found.rows))

        step = self.window_rows(own.dim + own.slot_dim, RANGE_BYTES)
        return replace(own, rows=self.table.vocabulary_size, step=step, read=read)


class TableParts:
    """The parts of ``tables`` on ``cores`` cores by a plan; None: every table's rows spread cyclically over all cores.

    The plan may have more tables. Raises :class:`ConfigError` for a plan that is not one of these tables and cores, and for slices of
    a table whose optimizer needs whole rows.
    """

    def __init__(self, tables: Sequence[TableSpec], cores: int, plan: PartitionPlan | None) -> None:
        if plan is None:
            plan = cyclic_plan([(table.name, table.vocabulary_size, table.dim) for table in tables], cores)
        if plan.cores != cores:
            raise ConfigError("a plan must have as many cores as the engine", value=plan.cores, allowed=str(cores))
        self.tables, self.cores, self.stacks = tuple(tables), cores, plan.stacks
        self.parts = _parts_of(tables, plan)
        self.has_replicas = any(part.is_replicated for part in self.parts)
        self.layout = _layout(self.parts)
        self.first_part = np.searchsorted(self.layout.table, np.arange(len(tables) + 1))

    def of_table(self, t: int) -> range:
        """The positions of the parts of a table."""
        return range(int(self.first_part[t]), int(self.first_part[t + 1]))

    def join(self, t: int, states: Sequence[Sequence[TableState | ChangedRows]]) -> TableState:
        """The rows of a table, ascending; ``states``: for each of its parts those that cores gave."""
        found = [_join_rows(one) for one in states]
        if len(found) == 1:
            return found[0]
        table, rows = self.tables[t], found[0].rows
        weights = np.empty((len(rows), table.dim), np.float32)
        slots = np.empty((len(rows), slot_width(table.optimizer, table.dim)), np.float32)
        for p, one in zip(self.of_table(t), found, strict=True):
            part = self.parts[p]
            weights[:, part.columns] = one.weights
            slots[:, part.slots] = one.slots
        return TableState(rows, weights, slots)

    def slice_number(self, p: int) -> int | None:
        """The number of a part among the slices of its table; None for a part with all columns."""
        parts = self.of_table(self.parts[p].t)
        return p - parts.start if len(parts) > 1 else None

    def readers(self, core: int) -> Array:
        """For each part the core that ``core`` asks for its rows if it is replicated, else -1."""
        return np.array([part.reader(core) if part.is_replicated else -1 for part in self.parts], np.int64)

    def check_whole_rows(self) -> None:
        """Raise :class:`ConfigError` if the columns of a table are on different cores."""
        for part in self.parts:
            if part.is_sliced:
                raise ConfigError("the rows that one core saves must be whole", where=f"table {part.table.name}",
                                  value=f"slices of {part.slice_.columns} columns", allowed="a plan without slices of columns",
                                  next_step="save the tables of all cores together")  # fmt: skip


def join_sections(found: Sequence[TableSections]) -> TableSections:
    """The sections of a table of which some cores have rows: their rows ascending; those that are alike on all of them are taken from the first one."""
    names = {name for one in found for name in one.by_rows}
    by_rows = {name: _join_rows([one.by_rows[name] for one in found if name in one.by_rows]) for name in sorted(names)}
    return TableSections(by_rows, next((one.arrays for one in found if one.arrays), {}))


def join_row_sections(found: Sequence[Mapping[str, RowSection]]) -> dict[str, RowSection]:
    """The sections by rows of a table of which each core has some, range by range of the whole table."""
    return {name: _join_section([one[name] for one in found]) for name in found[0]}


def _join_section(found: Sequence[RowSection]) -> RowSection:
    def read(first: int, stop: int) -> TableState:
        return _join_rows([one.read(first, stop) for one in found])

    return replace(found[0], count=sum(one.count for one in found), step=min(one.step for one in found), read=read)


def _join_rows(parts: Sequence[TableState | ChangedRows]) -> TableState:
    """The rows of all cores, ascending."""
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    weights, slots = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("weights", "slots"))
    return TableState(rows[order], weights, slots)


def _parts_of(tables: Sequence[TableSpec], plan: PartitionPlan) -> tuple[TablePart, ...]:
    plans = [_plan_of(table, plan) for table in tables]
    found = [(t, table, of, one) for t, (table, of) in enumerate(zip(tables, plans, strict=True)) for one in of.slices]
    are_tables = len(found) == len(tables)
    return tuple(
        TablePart(table.name if are_tables else f"{table.name} (part {p})", t, table, one, of.is_replicated,
                  _slot_columns(table, one))
        for p, (t, table, of, one) in enumerate(found)
    )  # fmt: skip


def _plan_of(table: TableSpec, plan: PartitionPlan) -> TablePlan:
    found = plan.of_table(table.name)
    if (found.rows, found.columns) != (table.vocabulary_size, table.dim):
        raise ConfigError("a planned table must be as large as the engine's", where=f"table {table.name}",
                          value=f"{found.rows} rows of {found.columns} columns",
                          allowed=f"{table.vocabulary_size} rows of {table.dim} columns", next_step="make the plan again")  # fmt: skip
    if len(found.slices) > 1 and any(slot.is_row_wise for slot in table.optimizer.slots):
        raise ConfigError("the columns of a table with a row-wise optimizer must be on one core", where=f"table {table.name}",
                          value=f"{len(found.slices)} slices, {type(table.optimizer).__name__}", allowed="1 slice",
                          next_step="spread its rows instead, or take an optimizer with a slot for each column")  # fmt: skip
    return found


def _slot_columns(table: TableSpec, one: Slice) -> Array:
    """The columns of a slice's slot values among the slot values of the table's row: slot after slot."""
    found, start = [np.zeros(0, np.int64)], 0
    for slot in table.optimizer.slots:
        if slot.is_row_wise:
            found.append(np.array([start]))
            start += 1
        else:
            found.append(start + one.first_column + np.arange(one.columns))
            start += table.dim
    return np.concatenate(found)


def _layout(parts: Sequence[TablePart]) -> PartLayout:
    slices = [part.slice_ for part in parts]
    return PartLayout(
        table=np.array([part.t for part in parts], np.int64),
        column=np.array([one.first_column for one in slices], np.int64),
        dims=np.array([one.columns for one in slices], np.int64),
        kind=np.array([_kind(part) for part in parts], np.int64),
        first_core=np.array(list(accumulate((len(one.cores) for one in slices), initial=0)), np.int64),
        cores=np.array([core for one in slices for core in one.cores], np.int64),
        row_ends=np.array([end for one in slices for end in one.row_ends or (0,) * len(one.cores)], np.int64),
    )


def _kind(part: TablePart) -> int:
    if part.is_replicated:
        return REPLICATED
    return BLOCKS if part.slice_.row_ends else CYCLIC
