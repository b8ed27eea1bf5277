"""Compares logged answers with the joined columns of the warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError, TypeMismatch, UnknownColumn
from transforms.joins.columns_read import own_columns
from transforms.joins.definition import column_type
from transforms.joins.evaluation import joined_columns
from transforms.joins.visibility import NO_TIME, micros, seen_range
from transforms.online.joined_table import JoinedTable
from warehouse.joins.exported_states import ModelJoins, model_joins
from warehouse.joins.other_rows import read_other_rows
from warehouse.joins.time_ranges import as_times, timed_fragments
from warehouse.matching.join_checks import time_column
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.warehouse import Warehouse

#: The examples of a column that are shown.
MOST_EXAMPLES = 5
_TIME = "@time"


@dataclass(frozen=True, slots=True)
class SkewExample:
    """An event whose logged value is not the offline one.

    Attributes:
        row: the row of the log, from 0 on.
        at: its time, ISO 8601 in UTC.
        keys: the columns that keys are computed from, with their values.
        logged: the logged value.
        offline: that of the warehouse.
    """

    row: int
    at: str
    keys: Mapping[str, str]
    logged: str
    offline: str


@dataclass(frozen=True, slots=True)
class ColumnSkew:
    """A joined column of a log.

    Attributes:
        column: its name.
        equal: how many events have the same bits, or no value on both sides.
        missing: how many have an offline value, and none in the log.
        extra: how many have a logged value, and none offline.
        different: how many have two values.
        largest_difference: of two numbers of one event; None without numbers that differ.
        examples: of those that are not equal.
    """

    column: str
    equal: int
    missing: int
    extra: int
    different: int
    largest_difference: float | None
    examples: tuple[SkewExample, ...]

    @property
    def is_equal(self) -> bool:
        """Whether each logged value is the offline one."""
        return not self.missing and not self.extra and not self.different


@dataclass(frozen=True, slots=True)
class Skew:
    """A log of answers against the warehouse.

    Attributes:
        model: the name of the model.
        version: its version.
        rows: the events of the log.
        columns: the joined columns that the log has.
        unlogged: those that it does not have.
        versions: the version of each other table.
    """

    model: str
    version: int
    rows: int
    columns: tuple[ColumnSkew, ...]
    unlogged: tuple[str, ...]
    versions: Mapping[str, int]


def logged_skew(warehouse: Warehouse, log: Path, model: str, version: int | None, time: str = "") -> Skew:
    """The skew of a log of Parquet, one file or a folder of them.

    Args:
        warehouse: the warehouse.
        log: events with the columns that keys are computed from, the time of each, and the answers by the names of their joined columns.
        model: the name of the model.
        version: its version; None: the newest.
        time: the column of times; "" for that of the model's table.

    Raises :class:`UnknownColumn` for a log without keys, times or any answer, :class:`TypeMismatch` for other types, and what reading raises.
    """
    with warehouse.catalog.read() as connection:
        joins = model_joins(connection, model, version)
        own_time = time or time_column(get_table(connection, joins.model.table), f"table {joins.model.table}")
        placed = {one.name: current_fragments(connection, one.name, at_version=at) for one, at in joins.tables}
    logged = _read(log, joins, own_time)
    found = {name: one for name, one in joins.definitions.items() if name in logged.column_names}
    columns: dict[str, ColumnSkew] = {}
    for table, _ in joins.tables:
        definitions = {name: one for name, one in table.definitions.items() if name in found}
        if definitions:
            chosen = JoinedTable(table.name, table.time_column, definitions)
            rows = _rows(warehouse, chosen, placed[table.name], micros(logged[_TIME]))
            offline = joined_columns(definitions, logged, _TIME, rows, table.time_column)
            columns.update(
                (name, compared(logged, name, values, _keys(chosen, name))) for name, values in offline.items()
            )
    unlogged = tuple(name for name in joins.definitions if name not in found)
    return Skew(joins.model.name, joins.model.version, logged.num_rows, tuple(columns[name] for name in found), unlogged, {one.name: at for one, at in joins.tables})  # fmt: skip


def compared(logged: pa.Table, column: str, offline: pa.Array, keys: Sequence[str]) -> ColumnSkew:
    """A column of a log, with times in ``@time``, against its offline values."""
    answers = one_array(logged[column])
    has, should = np.asarray(answers.is_valid(), bool), np.asarray(offline.is_valid(), bool)
    differs = has & should & unequal(answers, offline)
    missing, extra = should & ~has, has & ~should
    wrong = missing | extra | differs
    examples = tuple(
        _example(logged, int(row), answers, offline, keys) for row in np.flatnonzero(wrong)[:MOST_EXAMPLES]
    )
    return ColumnSkew(column, int(np.count_nonzero(~wrong)), int(missing.sum()), int(extra.sum()), int(differs.sum()),
                      _largest(answers, offline, differs), examples)  # fmt: skip


def unequal(a: pa.Array, b: pa.Array) -> Array:
    """Whether two values of one type have other bits; each NaN is as any other, and -0.0 is not 0.0. Of a null it says nothing."""
    found: Array
    if pa.types.is_list(a.type) or pa.types.is_large_list(a.type):
        lengths = [np.asarray(pc.fill_null(pc.list_value_length(one), 0)).astype(np.int64) for one in (a, b)]
        found = lengths[0] != lengths[1]
        same = pa.array(~found)
        items = [one.filter(same).flatten() for one in (a, b)]
        event = np.repeat(np.flatnonzero(~found), lengths[0][~found])
        found[event[unequal(*items)]] = True
        return found
    if pa.types.is_floating(a.type):
        numbers = [np.asarray(one.fill_null(0.0)) for one in (a, b)]
        bits = [np.where(np.isnan(one), np.nan, one).view(f"i{one.itemsize}") for one in numbers]
        return np.asarray(bits[0] != bits[1])
    found = ~np.asarray(pc.fill_null(pc.equal(a, b), True), bool)
    return found


def _largest(logged: pa.Array, offline: pa.Array, differs: Array) -> float | None:
    chosen = pa.array(differs)
    a, b = (one.filter(chosen) for one in (logged, offline))
    if pa.types.is_list(a.type):
        same = pc.equal(pc.list_value_length(a), pc.list_value_length(b))
        a, b = (one.filter(same).flatten() for one in (a, b))
    if not len(a) or not (pa.types.is_integer(a.type) or pa.types.is_floating(a.type)):
        return None
    x, y = (np.asarray(one.cast(pa.float64()).fill_null(np.nan)) for one in (a, b))
    with np.errstate(invalid="ignore"):
        gaps = np.abs(x - y)
    return float(np.max(np.where(np.isnan(gaps), np.inf, gaps)))


def _example(logged: pa.Table, row: int, answers: pa.Array, offline: pa.Array, keys: Sequence[str]) -> SkewExample:
    at = logged[_TIME][row].as_py()
    named = {name: str(logged[name][row].as_py()) for name in keys}
    return SkewExample(row, "" if at is None else f"{at.isoformat()}Z", named, repr(answers[row].as_py()), repr(offline[row].as_py()))  # fmt: skip


def _keys(table: JoinedTable, name: str) -> list[str]:
    return [one.name for one in own_columns(table.definitions[name])]


def _rows(warehouse: Warehouse, table: JoinedTable, placed: Sequence[object], times: Array) -> pa.Table:
    """The rows that the events may see."""
    fragments = timed_fragments(warehouse, placed, table.time_column)  # type: ignore[arg-type]
    at = times[times > NO_TIME]
    parts = [table.raw_schema.empty_table()]
    if len(at):
        ranges = [seen_range(one, int(at.min()), int(at.max())) for one in table.definitions.values()]
        parts += [_plain(one) for one in read_other_rows(warehouse, table, fragments, min(low for low, _ in ranges), max(high for _, high in ranges))]  # fmt: skip
    return pa.concat_tables(parts, promote_options="permissive")


def _plain(rows: pa.Table) -> pa.Table:
    for at, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(at, field.name, rows[field.name].cast(field.type.value_type))
    return rows


def _read(log: Path, joins: ModelJoins, time: str) -> pa.Table:
    """The events of a log with their answers in the types of the joined columns."""
    keys = sorted({column.name for one in joins.definitions.values() for column in own_columns(one)})
    try:
        names = pq.read_schema(log).names if log.is_file() else pq.ParquetDataset(log).schema.names
        answers = [name for name in joins.definitions if name in names]
        lacking = [name for name in (*keys, time) if name not in names]
        if lacking or not answers:
            raise UnknownColumn("a log must have the columns of keys, the time, and answers by the names of their joined columns", where=str(log),
                                value=", ".join(lacking) or "no joined column", allowed=", ".join([*keys, time, *joins.definitions]),
                                next_step="log what hr.online(FOLDER).features(...) returns, beside the keys and the time")  # fmt: skip
        table = pq.read_table(log, columns=sorted({*keys, time, *answers}))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            "a log must be a Parquet file, or a folder of them", where=str(log), value=str(error)[:200]
        ) from error
    if not pa.types.is_timestamp(table[time].type):
        raise TypeMismatch(
            "the time of a log must be a column of timestamps",
            where=f"{log}, column {time}",
            value=str(table[time].type),
        )
    table = table.append_column(_TIME, as_times(table[time]))
    for name in answers:
        kind = arrow_type(column_type(joins.definitions[name]))
        try:
            table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
        except pa.ArrowException as error:
            raise TypeMismatch("an answer must have the type of its joined column", where=f"{log}, column {name}", value=str(table[name].type),
                               allowed=str(kind), next_step=str(error)[:200]) from None  # fmt: skip
    return table
