"""Computes joined columns from the events of a table and the rows of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from transforms.arrays import Array
from transforms.columns.nans import with_one_nan
from transforms.errors import DataError, InputError, UnknownColumn, nearest
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node
from transforms.joins.aggregates import aggregated, sharing_order
from transforms.joins.definition import JoinDefinition
from transforms.joins.histories import Events, Histories, Rows
from transforms.joins.parts import parts_of
from transforms.joins.visibility import micros


def joined_column(
    definition: JoinDefinition, events: pa.Table, event_time: str, rows: pa.Table, row_time: str
) -> pa.Array:
    """One joined column, as :func:`joined_columns` has it."""
    return joined_columns({"": definition}, events, event_time, rows, row_time)[""]


def joined_columns(
    definitions: Mapping[str, JoinDefinition],
    events: pa.Table,
    event_time: str,
    rows: pa.Table,
    row_time: str,
    *,
    threads: int = 1,
) -> dict[str, pa.Array]:
    """The joined columns of these events by name, row i for event i, in the Arrow layout of their types.

    A function of the set of rows and of each event alone: neither the order of rows, nor other events, nor ``threads`` change a bit.

    Args:
        definitions: of columns that are joined from one table.
        events: their raw columns with the times ``event_time``, timestamps.
        event_time: the column of the times of events.
        rows: those of the other table, with their times ``row_time``. Rows that no event sees may be left out.
        row_time: the column of the times of rows.
        threads: the most threads that compute.

    Raises :class:`InputError` for definitions of several tables, :class:`~transforms.errors.UnknownColumn` for a column of times that is not there,
    :class:`DataError` for an operator that fails, and what :meth:`~transforms.execution.plan.Plan.run` raises.
    """
    tables = sorted({one.table for one in definitions.values()})
    if len(tables) > 1:
        raise InputError("joined columns that are computed together must read one table", value=", ".join(tables))
    if not tables:
        return {}
    parts = {name: parts_of(one) for name, one in definitions.items()}
    own = _computed((node for one in parts.values() for node in one.own), events)
    other = _computed((node for one in parts.values() for node in one.over_rows), rows)
    known = {one.known_at: _times(rows, one.known_at) for one in definitions.values() if one.known_at}
    made = Histories(Events(_times(events, event_time), own), Rows(_times(rows, row_time), other, known), threads)
    ordered = sorted(definitions, key=lambda name: sharing_order(definitions[name], parts[name]))
    found = {name: with_one_nan(aggregated(definitions[name], parts[name], made)) for name in ordered}
    return {name: found[name] for name in definitions}


def _computed(nodes: Iterable[Node], table: pa.Table) -> dict[str, pa.Array]:
    """Components over a table, by identity."""
    found = compile_plan({node.identity: node for node in nodes}).run(table)
    for failure in found.failures.values():
        raise DataError("an expression of a join must not fail", value=str(failure))
    return found.columns


def _times(table: pa.Table, column: str) -> Array:
    if column not in table.column_names:
        raise UnknownColumn(
            "the times of a join must be a column of its table",
            value=column,
            allowed=nearest(column, table.column_names),
        )
    return micros(table[column])
