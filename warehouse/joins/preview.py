"""Joined columns of some fragments as they would be now, without publishing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from transforms.joins.definition import JoinDefinition
from warehouse.joins.computation import computed_columns
from warehouse.joins.time_ranges import timed_fragments
from warehouse.joins.views import Views
from warehouse.matching.join_checks import check_joins, time_column
from warehouse.models.joined_columns import JoinedRecord
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse


def previewed_columns(
    warehouse: Warehouse, table: Table, joins: Mapping[str, JoinDefinition], fragments: Sequence[PlacedFragment]
) -> dict[str, list[pa.Array]]:
    """The values of joined columns over fragments of a table: for each column one array a fragment, as ``headrace work`` would compute them now.

    Raises what :func:`~warehouse.matching.join_checks.check_joins` raises, and the errors of reading.
    """
    by_table: defaultdict[str, list[JoinedRecord]] = defaultdict(list)
    for name, one in joins.items():
        by_table[one.table].append(JoinedRecord(table.name, name, one, 0.0))
    own_time = time_column(table, f"table {table.name}") if by_table else ""
    own = timed_fragments(warehouse, fragments, own_time) if by_table else ()
    found: dict[str, list[pa.Array]] = {}
    for name, records in by_table.items():
        with warehouse.catalog.read() as connection:
            check_joins(connection, "", table, {one.column: one.definition for one in records})
            other, others = get_table(connection, name), current_fragments(connection, name)
        other_time = time_column(other, f"table {name}")
        views = Views(own_time, timed_fragments(warehouse, others, other_time), other_time)
        found |= computed_columns(warehouse.storage, (table, other), views, own, records)
    return found
