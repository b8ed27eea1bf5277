"""Reads the rows of a table that is joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from transforms.online.joined_table import JoinedTable
from warehouse.joins.time_ranges import as_times
from warehouse.joins.views import TimedFragment
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw
from warehouse.warehouse import Warehouse


def read_other_rows(
    warehouse: Warehouse, table: JoinedTable, fragments: Iterable[TimedFragment], first: int, last: int
) -> Iterator[pa.Table]:
    """The rows that are not deleted of each fragment with times from ``first`` to ``last``, in microseconds: what joined columns read."""
    columns = sorted({*table.value_columns, *table.known_columns, table.time_column})
    for one in sorted(fragments, key=lambda one: (one.placed.start, one.placed.partition, one.placed.position)):
        if one.first_micros is None or one.last_micros is None or one.last_micros < first or one.first_micros > last:
            continue
        rows = read_raw(warehouse.storage, one.placed.fragment, columns)
        live = live_mask(warehouse.storage, one.placed.fragment)
        kept = rows if live is None else rows.filter(live)
        at = kept.column_names.index(table.time_column)
        yield kept.set_column(at, table.time_column, as_times(kept[table.time_column]))
