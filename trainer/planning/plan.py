"""A partition plan: which core has each column and each row of every embedding table. Immutable; no I/O.

A table is cut into slices of columns, and the rows of a slice are spread over its cores. A slice of all columns on one core is the
paper's table partition, slices on one core each its column partition, and one slice on several cores its row partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from trainer.errors import ConfigError
from transforms.derived_documents import Form, Named, whole
from transforms.documents import Part

#: The most cores of a plan.
MOST_CORES = 16_384


def _read_cores(part: Part) -> tuple[int, ...]:
    """The cores of a list of runs, each as its first core and their number."""
    cores: list[int] = []
    for run in part.items():
        first, number = (one.integer(0, MOST_CORES) for one in run.items(least=2, most=2))
        if len(cores) + number > MOST_CORES:
            raise run.refused(f"a core range [first, count], with at most {MOST_CORES} cores in all ranges")
        cores.extend(range(first, first + number))
    return tuple(cores)


def _runs(cores: Sequence[int]) -> list[list[int]]:
    """Ascending runs of consecutive cores, each as its first one and their number."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([core, 1])
    return runs


_Columns = Annotated[int, whole(most=1 << 20)]
_Rows = Annotated[int, whole(most=(1 << 63) - 1)]
_Cores = Annotated[tuple[int, ...], Form(_read_cores, _runs)]


@dataclass(frozen=True, slots=True)
class Slice:
    """Some columns of a table, and the cores of their rows.

    Attributes:
        first_column, columns: the columns.
        cores: the cores that share the rows, distinct.
        row_ends: of a block partition, for each of ``cores`` the row after its last; empty for a cyclic one, in which row r is on
            ``cores[r % len(cores)]``.
    """

    first_column: _Columns
    columns: _Columns
    cores: _Cores
    row_ends: tuple[_Rows, ...] = ()

    def rows_of(self, place: int, rows: int) -> int:
        """The rows on ``cores[place]`` of a table with ``rows`` rows."""
        if self.row_ends:
            return self.row_ends[place] - (self.row_ends[place - 1] if place else 0)
        return max(-(-(rows - place) // len(self.cores)), 0)


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a table on one core.

    Attributes:
        table: the name of the table.
        slice_: the slice.
        place: the core's place among those of the slice.
        rows: its rows.
    """

    table: str
    slice_: Slice
    place: int
    rows: int

    @property
    def core(self) -> int:
        """The core."""
        return self.slice_.cores[self.place]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The placement of a table.

    Attributes:
        name, rows, columns: the table.
        slices: its columns in order; of a replicated table one slice, with a copy of all rows on each of its cores.
        is_replicated: whether each core holds all rows.
    """

    name: str
    rows: _Rows
    columns: _Columns
    slices: tuple[Slice, ...]
    is_replicated: Annotated[bool, Named("replicated")] = False

    @property
    def partition(self) -> str:
        """The kind of partition: replicated, table, column, row, or column and row."""
        if self.is_replicated:
            return "replicated"
        splits_rows = any(len(one.cores) > 1 for one in self.slices)
        if len(self.slices) > 1:
            return "column and row" if splits_rows else "column"
        return "row" if splits_rows else "table"

    def shards(self) -> Iterator[Shard]:
        """The parts of the table, slice after slice."""
        for one in self.slices:
            for place in range(len(one.cores)):
                yield Shard(self.name, one, place, self.rows if self.is_replicated else one.rows_of(place, self.rows))


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The placement of all tables. Raises :class:`ConfigError` for a plan that leaves out a row or a column, or has one twice.

    Attributes:
        cores: the number of cores, which are counted from 0.
        tables: the tables.
        stacks: names of tables whose rows a request and its answer keep together; each table is in one stack.
    """

    cores: int
    tables: tuple[TablePlan, ...]
    stacks: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= MOST_CORES:
            raise ConfigError(
                "the number of cores of a plan must be in range", value=self.cores, allowed=f"1 to {MOST_CORES}"
            )
        names = [table.name for table in self.tables]
        if len(set(names)) != len(names):
            raise ConfigError("the tables of a plan must have different names", value=_repeated(names))
        for table in self.tables:
            _check_table(table, self.cores)
        stacked = [name for stack in self.stacks for name in stack]
        if stacked and sorted(stacked) != sorted(names):
            raise ConfigError(
                "each table of a plan must be in one stack", value=_repeated(stacked) or set(names) ^ set(stacked)
            )

    @property
    def has_whole_rows(self) -> bool:
        """Whether each row is on one core, with all its columns."""
        return not any(one.is_replicated or len(one.slices) > 1 for one in self.tables)

    def of_table(self, name: str) -> TablePlan:
        """The plan of a table. Raises :class:`ConfigError` for an unknown one."""
        for table in self.tables:
            if table.name == name:
                return table
        raise ConfigError(
            "a plan must have the table", value=name, allowed=", ".join(one.name for one in self.tables)[:200]
        )

    def shards(self) -> Iterator[Shard]:
        """The parts of all tables, table after table."""
        for table in self.tables:
            yield from table.shards()


def cyclic_plan(tables: Sequence[tuple[str, int, int]], cores: int) -> PartitionPlan:
    """Every table's rows spread cyclically over all cores; ``tables``: the name, rows and columns of each."""
    everywhere = tuple(range(cores))
    return PartitionPlan(
        cores, tuple(TablePlan(name, rows, columns, (Slice(0, columns, everywhere),)) for name, rows, columns in tables)
    )


def _check_table(table: TablePlan, cores: int) -> None:
    where = f"table {table.name}"
    if not table.name or table.rows < 1 or table.columns < 1:
        raise ConfigError(
            "a planned table must have a name, rows and columns", where=where, value=(table.rows, table.columns)
        )
    column = 0
    for one in table.slices:
        if one.first_column != column or one.columns < 1:
            raise ConfigError("the slices of a table must follow each other", where=where, value=f"columns from {one.first_column}",
                              allowed=f"from {column}")  # fmt: skip
        column += one.columns
        if not one.cores or len(set(one.cores)) != len(one.cores) or not all(0 <= core < cores for core in one.cores):
            raise ConfigError("a slice must have distinct cores of the plan", where=where, value=one.cores[:8],
                              allowed=f"0 to {cores - 1}")  # fmt: skip
        if one.row_ends and not _are_ends(one.row_ends, len(one.cores), table.rows):
            raise ConfigError("the blocks of a slice must cover all rows, in order", where=where, value=one.row_ends[:8],
                              allowed=f"{len(one.cores)} ascending ends, the last {table.rows}")  # fmt: skip
    if column != table.columns:
        raise ConfigError(
            "the slices of a table must hold all its columns", where=where, value=column, allowed=str(table.columns)
        )
    if table.is_replicated and (len(table.slices) != 1 or table.slices[0].row_ends):
        raise ConfigError("a replicated table must have one slice of all columns and rows", where=where)


def _are_ends(ends: tuple[int, ...], places: int, rows: int) -> bool:
    ascending = all(first <= second for first, second in zip((0, *ends), ends, strict=False))
    return len(ends) == places and ends[-1] == rows and ascending


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
