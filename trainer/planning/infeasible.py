"""Why tables do not fit on a topology, and the smallest change that makes them fit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.errors import ConfigError
from trainer.planning.plan import MOST_CORES
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology

_GIB = 1 << 30


def refuse(tables: Sequence[TableFacts], topology: PlanTopology) -> ConfigError:
    """The error for tables that do not fit: what is too large, how much is missing, and what is enough."""
    largest = max(tables, key=lambda table: least_core_bytes(table, topology.cores))
    needed = least_core_bytes(largest, topology.cores)
    if needed > topology.memory_bytes:
        return ConfigError(
            "a core's memory must hold its share of each table",
            where=f"table {largest.name} on {topology.name}",
            value=f"{needed_text(needed, topology.memory_bytes)} on a core, with its rows spread over all {topology.cores}",
            allowed=f"<= {size_text(topology.memory_bytes)}",
            next_step=_next_step(tables, topology),
        )
    whole = needed_text(_core_bytes(tables, topology.cores), topology.memory_bytes)
    return ConfigError(
        "a core's memory must hold its share of all tables with their slots",
        where=topology.name,
        value=f"{whole} on a core, with all rows spread over all {topology.cores}",
        allowed=f"<= {size_text(topology.memory_bytes)}",
        next_step=_next_step(tables, topology),
    )


def least_core_bytes(table: TableFacts, cores: int) -> int:
    """The bytes of the largest shard if the rows of a table are spread over all cores."""
    return -(-table.rows // cores) * table.row_bytes


def _core_bytes(tables: Sequence[TableFacts], cores: int) -> int:
    """The bytes of the fullest core with the rows of all tables spread over all cores: so much memory is always enough."""
    return sum(least_core_bytes(table, cores) for table in tables)


def _next_step(tables: Sequence[TableFacts], topology: PlanTopology) -> str:
    """The fewest cores, or the least memory of a core, that are enough."""
    changes = [f"give each core {size_text(_core_bytes(tables, topology.cores))}"]
    low, high = topology.cores, MOST_CORES
    if _core_bytes(tables, high) <= topology.memory_bytes:
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _core_bytes(tables, middle) <= topology.memory_bytes else (middle + 1, high)
        changes.insert(0, f"take {low} cores")
    largest = max(tables, key=lambda table: table.table_bytes)
    return f"{', or '.join(changes)}; the largest table is {largest.name} with {size_text(largest.table_bytes)}"


def needed_text(needed_bytes: int, limit_bytes: int) -> str:
    """A size above a limit; with what is too much where both would look alike."""
    text = size_text(needed_bytes)
    alike = text == size_text(limit_bytes)
    return f"{text}, {needed_bytes - limit_bytes:,} bytes too much," if alike else text


def size_text(size_bytes: int) -> str:
    """A size for errors: GiB, rounded up so that the stated size is enough."""
    if size_bytes < _GIB // 100:
        return f"{size_bytes} bytes"
    return f"{-(-size_bytes * 100 // _GIB) / 100:.2f} GiB"
