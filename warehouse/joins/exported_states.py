"""Exports what online answers need of a model's joined columns: the rows of other tables that events from a moment on may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from transforms.errors import InputError
from transforms.joins.column_names import is_joined
from transforms.joins.definition import JoinDefinition
from transforms.joins.visibility import seen_range
from transforms.online.joined_table import JoinedTable
from transforms.online.needed_rows import needed_rows
from transforms.online.pushed_rows import micros_of_moment
from transforms.online.row_block import joined_blocks
from warehouse.joins.other_rows import read_other_rows
from warehouse.joins.time_ranges import timed_fragments
from warehouse.joins.views import TimedFragment
from warehouse.matching.join_checks import time_column
from warehouse.models.joined_columns import joined_columns
from warehouse.models.models import ModelRecord, get_model, stored_inputs
from warehouse.states.exact_rows import row_difference
from warehouse.states.folder import States, TableChange, link_names, locked_folder, read_states, write_link
from warehouse.states.link import DELTA, FULL, FileDigest, LinkTable, StatesLink, joined_tables
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.warehouse import Warehouse

#: A full link takes the place of a delta after so many links.
MOST_LINKS = 32
_LAST = (1 << 63) - 1
_NOTHING = FileDigest(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class ModelJoins:
    """The joined columns of a version of a model.

    Attributes:
        model: the model.
        definitions: by column name.
        tables: the other tables, with their versions, by name.
    """

    model: ModelRecord
    definitions: Mapping[str, JoinDefinition]
    tables: tuple[tuple[JoinedTable, int], ...]


@dataclass(frozen=True, slots=True)
class ExportedStates:
    """What an export has done.

    Attributes:
        link: the newest link.
        is_new: whether this export wrote it; otherwise nothing has changed.
        rows_read: how many rows the other tables have.
    """

    link: StatesLink
    is_new: bool
    rows_read: int


def model_joins(connection: Connection, name: str, version: int | None = None) -> ModelJoins:
    """The joined columns of a model, and their tables. Raises :class:`InputError` for a model without one."""
    model = get_model(connection, name, version)
    read = {column for one in stored_inputs(connection, model.id) for column in one.columns if is_joined(column)}
    found = {one.column: one.definition for one in joined_columns(connection, model.table) if one.column in read}
    if not found:
        raise InputError("a model must have joined columns", where=f"model {model.name}", value="none of its inputs reads one",
                         next_step="hr.table(NAME).by(KEY).count() is one: docs/joins.md")  # fmt: skip
    tables = {one.table: get_table(connection, one.table) for one in found.values()}
    times = {name: time_column(one, f"table {name}") for name, one in tables.items()}
    joined = joined_tables(tuple(found[column] for column in sorted(found)), times)
    return ModelJoins(model, found, tuple((one, tables[one.name].version) for one in joined))


def export_states(
    warehouse: Warehouse,
    model: str,
    version: int | None,
    folder: Path,
    *,
    since: datetime | None = None,
    full: bool = False,
) -> ExportedStates:
    """Add a link to the states of a model: a delta, or a full link where there is none, or the joined columns are others.

    Args:
        warehouse: the warehouse.
        model: the name of the model.
        version: its version; None: the newest.
        folder: of the links.
        since: answers are for events from this moment on; by default from the newest row of the tables on, or from now on, if that is earlier.
        full: write a full link.

    Raises :class:`~transforms.errors.Busy` for a folder that another process writes to, and what reading raises.
    """
    with warehouse.catalog.read() as connection:
        joins = model_joins(connection, model, version)
        placed = {one.name: current_fragments(connection, one.name, at_version=at) for one, at in joins.tables}
    timed = {one.name: timed_fragments(warehouse, placed[one.name], one.time_column) for one, _ in joins.tables}
    micros = _since(warehouse, timed) if since is None else micros_of_moment(since, "--since")
    rows = {one.name: _rows(warehouse, one, timed[one.name], micros) for one, _ in joins.tables}
    count = sum(one.fragment.live_rows for each in placed.values() for one in each)
    with locked_folder(folder):
        before = read_states(folder) if link_names(folder) and not full else None
        return _added(folder, joins, micros, rows, before, count)


def _since(warehouse: Warehouse, timed: Mapping[str, tuple[TimedFragment, ...]]) -> int:
    newest = [one.last_micros for each in timed.values() for one in each if one.last_micros is not None]
    return min(max(newest, default=0), int(warehouse.clock() * 1e6))


def _rows(
    warehouse: Warehouse, table: JoinedTable, fragments: tuple[TimedFragment, ...], since_micros: int
) -> pa.Table:
    low = min(seen_range(one, since_micros, since_micros)[0] for one in table.definitions.values())
    blocks = [table.no_rows()]
    for rows in read_other_rows(warehouse, table, fragments, low, _LAST):
        blocks.append(needed_rows(table, table.computed(rows), since_micros))
    return table.table_of(needed_rows(table, joined_blocks(blocks), since_micros))


def _added(
    folder: Path, joins: ModelJoins, since_micros: int, rows: Mapping[str, pa.Table], before: States | None, count: int
) -> ExportedStates:
    definitions = tuple(joins.definitions[name] for name in sorted(joins.definitions))
    is_delta = (
        before is not None and before.links < MOST_LINKS and before.link.definitions == definitions
        and before.link.since_micros <= since_micros and before.link.model == joins.model.name
        and [one.time_column for one in before.link.tables] == [one.time_column for one, _ in joins.tables]
    )  # fmt: skip
    changes = {}
    for table, version in joins.tables:
        new = rows[table.name]
        if is_delta and before is not None:
            removed, added = row_difference(before.rows[table.name], new)
            changes[table.name] = TableChange(version, new.take(pa.array(added)), removed)
        else:
            changes[table.name] = TableChange(version, new, np.empty(0, np.int64))
    if is_delta and before is not None and _is_same(before, joins, since_micros, changes):
        return ExportedStates(before.link, False, count)
    number, previous = _next(folder, before)
    tables = tuple(LinkTable(one.name, version, one.time_column, 0, 0, rows[one.name].num_rows, _NOTHING, _NOTHING) for one, version in joins.tables)  # fmt: skip
    link = StatesLink(number, DELTA if is_delta else FULL, previous, joins.model.name, joins.model.version, since_micros, definitions, tables)  # fmt: skip
    return ExportedStates(write_link(folder, link, changes), True, count)


def _is_same(before: States, joins: ModelJoins, since_micros: int, changes: Mapping[str, TableChange]) -> bool:
    versions = tuple(one.version for one in before.link.tables)
    return (
        not any(one.added.num_rows or len(one.removed) for one in changes.values())
        and before.link.since_micros == since_micros
        and versions == tuple(version for _, version in joins.tables)
    )


def _next(folder: Path, before: States | None) -> tuple[int, str]:
    """The number of the next link, and the hash of the one before it; a full link need not follow a readable one."""
    if before is not None:
        return before.link.number + 1, before.hash
    names = link_names(folder)
    return (int(names[-1].partition("-")[0]) + 1 if names else 0), ""
