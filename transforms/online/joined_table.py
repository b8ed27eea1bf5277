"""Another table as online answers need it: which columns of a row are read, and what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of, valid_of
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, InputError
from transforms.execution.plan import Plan, compile_plan
from transforms.graphs.graph import Node, raw_columns
from transforms.joins.definition import JoinDefinition
from transforms.joins.parts import Parts, parts_of
from transforms.joins.visibility import NO_TIME
from transforms.online.row_block import KNOWN, TIME, RowBlock, block_of

_TIMES = pa.timestamp("us")


@dataclass(frozen=True)
class JoinedTable:
    """Another table, and the columns that are joined from it.

    Attributes:
        name: of the table.
        time_column: the column of the times of its rows.
        definitions: of the joined columns, by name; at least one.
    """

    name: str
    time_column: str
    definitions: Mapping[str, JoinDefinition]

    @cached_property
    def parts(self) -> dict[str, Parts]:
        """The expressions of each definition."""
        return {name: parts_of(one) for name, one in self.definitions.items()}

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The expressions over rows, by identity."""
        found = {node.identity: node for one in self.parts.values() for node in one.over_rows}
        return {identity: found[identity] for identity in sorted(found)}

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of computed rows: the time, the times of ``known_at``, and the value of each expression."""
        known = [pa.field(KNOWN + name, _TIMES) for name in self.known_columns]
        values = [pa.field(identity, arrow_type(node.type)) for identity, node in self.nodes.items()]
        return pa.schema([pa.field(TIME, _TIMES), *known, *values])

    @cached_property
    def known_columns(self) -> tuple[str, ...]:
        """The columns of the times at which rows become known."""
        return tuple(sorted({one.known_at for one in self.definitions.values()} - {""}))

    @cached_property
    def value_columns(self) -> dict[str, pa.DataType]:
        """The columns that expressions read, with the types that they declare; beside the time and ``known_at``."""
        return {one.name: arrow_type(one.type) for node in self.nodes.values() for one in raw_columns(node)}

    @property
    def raw_schema(self) -> pa.Schema:
        """The columns of rows as :meth:`computed` reads them."""
        times = dict.fromkeys((self.time_column, *self.known_columns), _TIMES)
        return pa.schema(list({**times, **self.value_columns, self.time_column: _TIMES}.items()))

    @cached_property
    def _plan(self) -> Plan:
        return compile_plan(self.nodes)

    def computed(self, rows: pa.Table) -> RowBlock:
        """What is computed of rows, those that a joined column uses.

        Raises :class:`~transforms.errors.UnknownColumn` for a column that is not there, :class:`InputError` for a column of times that has none,
        and what :meth:`~transforms.execution.plan.Plan.run` raises.
        """
        found = self._plan.run(rows)
        for failure in found.failures.values():
            raise DataError("an expression of a join must not fail", where=f"table {self.name}", value=str(failure))
        times = {TIME: self.time_column, **{KNOWN + name: name for name in self.known_columns}}
        columns = {place: exact_times(_column(rows, name, self.name), name, self.name) for place, name in times.items()}
        columns |= {identity: found.columns[identity] for identity in self.nodes}
        return self.used(block_of(pa.table(columns, schema=self.schema)))

    def used(self, block: RowBlock, columns: Sequence[str] | None = None) -> RowBlock:
        """The rows that joined columns use; ``columns``: their names, None for all."""
        chosen = {self._use[name]: name for name in (self.definitions if columns is None else columns)}
        kept = np.logical_or.reduce([used_rows(self.definitions[name], self.parts[name], block) for name in chosen.values()])  # fmt: skip
        return block if kept.all() else block.take(np.flatnonzero(kept))

    @cached_property
    def _use(self) -> dict[str, tuple[str, ...]]:
        """By joined column, what decides which rows it uses; equal ones use the same."""
        return {
            name: (*(one.identity for one in (*parts.other, *(part for part in (parts.where, parts.value) if part is not None))), str(parts.where is None), self.definitions[name].known_at)
            for name, parts in self.parts.items()
        }  # fmt: skip

    def table_of(self, block: RowBlock) -> pa.Table:
        """The rows as a table of :attr:`schema`."""
        times = {TIME: block.time, **{KNOWN + name: block.known[name] for name in self.known_columns}}
        columns = [*(pa.array(one, mask=one == NO_TIME).cast(_TIMES) for one in times.values()), *(block.columns[identity] for identity in self.nodes)]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=self.schema)

    def no_rows(self) -> RowBlock:
        """No rows, with all columns."""
        return block_of(self.schema.empty_table())


def used_rows(definition: JoinDefinition, parts: Parts, block: RowBlock) -> Array:
    """True for rows that a definition may use: with a key, a time, and a value, and for which its condition holds."""
    used = block.time > NO_TIME
    for part in (*parts.other, *(one for one in (parts.value,) if one is not None)):
        if block.columns[part.identity].null_count:
            used &= valid_of(block.columns[part.identity])
    if parts.where is not None:
        used &= numpy_of(pc.fill_null(block.columns[parts.where.identity], False))
    if definition.known_at:
        used &= block.known[definition.known_at] > NO_TIME
    return used


def exact_times(values: pa.ChunkedArray, name: str, table: str) -> pa.ChunkedArray:
    """Times in microseconds without a zone; finer ones are rounded down. Raises :class:`InputError` for other values."""
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(_TIMES)
    if not pa.types.is_timestamp(kind):
        raise InputError("a time must be a column of timestamps", where=f"table {table}, column {name}", value=str(kind), allowed="timestamp or date")  # fmt: skip
    if kind.tz is not None:
        values = values.cast(pa.timestamp(kind.unit))
    if kind.unit == "ns":
        values = pc.floor_temporal(values, unit="microsecond")
    try:
        return values.cast(_TIMES)
    except pa.ArrowInvalid as error:
        raise InputError("a time must fit microseconds since 1970 in 64 bits", where=f"table {table}, column {name}", value=str(error)) from None  # fmt: skip


def _column(rows: pa.Table, name: str, table: str) -> pa.ChunkedArray:
    if name not in rows.column_names:
        raise InputError("rows must have a column of times", where=f"table {table}", value=name, allowed=", ".join(rows.column_names))  # fmt: skip
    return rows[name]
