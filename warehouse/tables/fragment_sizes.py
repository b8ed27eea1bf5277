"""The sizes of a table's units of computation, and when they are too small."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.tables.manifests import is_placed_unit, placed_units

#: Events of a fragment below which its fixed costs (catalog rows, files, loading) are more than about a fifth of the whole.
#: By docs/sharing.md, 22 models pay 0.16 CPU seconds per fragment and 14 microseconds per event: a fifth is at 45,000.
SMALL_ROWS = 50_000
#: With fewer fragments, their fixed costs are seconds in all.
_FEW_FRAGMENTS = 24


@dataclass(frozen=True, slots=True)
class FragmentSizes:
    """The number of a table's units of computation, the median of their events, and whether partitions are hours."""

    fragments: int
    median_rows: int
    are_hourly: bool = False

    @property
    def are_small(self) -> bool:
        """Whether merging them pays."""
        return self.fragments >= _FEW_FRAGMENTS and self.median_rows < SMALL_ROWS

    def warning(self, table: str) -> str:
        """What the sizes cost and the next step, in one sentence; empty unless they are small."""
        if not self.are_small:
            return ""
        daily = ', or "partition_by": "day" in the schema of an imported log' if self.are_hourly else ""
        return (
            f"half of the {self.fragments:,} fragments hold at most {self.median_rows:,} events each: below {SMALL_ROWS:,}, "
            f"storing and finding a fragment's memos costs more than a fifth of computing and reading them; next: "
            f"headrace table compact {table}{daily}"
        )


def fragment_sizes(connection: Connection, table: str) -> FragmentSizes:
    """The sizes of the current units of computation of a table."""
    query = select(schema.fragments.c.rows, schema.manifests.c.partition).select_from(placed_units())
    query = query.where(is_placed_unit(), schema.manifests.c.table_name == table)
    found = connection.execute(query).all()
    rows = sorted(row.rows for row in found)
    are_hourly = any("/hour=" in row.partition for row in found)
    return FragmentSizes(len(rows), rows[(len(rows) - 1) // 2] if rows else 0, are_hourly)
