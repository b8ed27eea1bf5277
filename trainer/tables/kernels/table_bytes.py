"""The memory that tables need, and the error for tables that are too large for a machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer.errors import ConfigError
from trainer.tables.optimizers import slot_width
from trainer.tables.spec import TableSpec

_LISTED = 3


def machine_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def row_bytes(table: TableSpec) -> int:
    """The bytes of a row: its weights, its slots and its state."""
    return 4 * (table.dim + slot_width(table.optimizer, table.dim)) + 1


def does_not_fit(tables: Sequence[TableSpec], memory_bytes: int) -> ConfigError:
    """The error for tables that the system reserves no memory for on a machine with ``memory_bytes``."""
    sizes = {table.name: table.vocabulary_size * row_bytes(table) for table in tables}
    total = sum(sizes.values())
    largest = sorted(tables, key=lambda table: -sizes[table.name])
    listed = "; ".join(
        f"table {one.name}: {one.vocabulary_size:,} rows of {row_bytes(one):,} bytes, {_gb(sizes[one.name])}"
        for one in largest[:_LISTED]
    )
    more = f"; and {len(tables) - _LISTED} more" if len(tables) > _LISTED else ""
    return ConfigError(
        "the embedding tables must fit in memory",
        where=listed + more,
        value=f"{_gb(total)} with every row in use, {_gb(max(total - memory_bytes, 0))} more than there is",
        allowed=f"{_gb(memory_bytes)} on this machine: {_fitting(largest, sizes, memory_bytes)}",
        next_step="hash into fewer buckets, make dim smaller, spread the rows over more hosts, "
        "or keep a table of few used rows hashed: docs/parameter-servers.md",
    )


def _fitting(largest: Sequence[TableSpec], sizes: dict[str, int], memory_bytes: int) -> str:
    """What would fit: the largest table with fewer rows, or fewer rows in all tables if the others are too large already."""
    first, total = largest[0], sum(sizes.values())
    left = memory_bytes - (total - sizes[first.name])
    if left >= sizes[first.name]:
        return "the system refuses to reserve so much, whatever is free"
    if left > row_bytes(first):
        beside = " beside the others" if len(largest) > 1 else ""
        return f"{left // row_bytes(first):,} rows of table {first.name}{beside}"
    return f"{memory_bytes / total:.1%} of the rows of each table"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
