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
            value=f"{size_text(needed)} on a core, with its rows spread over all {topology.cores}",
            allowed=f"<= {size_text(topology.memory_bytes)}",
            next_step=_next_step(tables, topology),
        )
    total = sum(table.table_bytes for table in tables)
    return ConfigError(
        "the memory of all cores must hold all tables with their slots",
        where=topology.name,
        value=f"{size_text(total)}, {size_text(max(total - topology.cores * topology.memory_bytes, 0))} too much",
        allowed=f"<= {size_text(topology.cores * topology.memory_bytes)}: {topology.cores} cores of {size_text(topology.memory_bytes)}",
        next_step=_next_step(tables, topology),
    )


def least_core_bytes(table: TableFacts, cores: int) -> int:
    """The bytes of the largest shard if the rows of a table are spread over all cores."""
    return -(-table.rows // cores) * table.row_bytes


def fits(tables: Sequence[TableFacts], cores: int, memory_bytes: int) -> bool:
    """Whether all tables fit with their rows spread over all cores, the most even plan for memory."""
    return sum(least_core_bytes(table, cores) for table in tables) <= memory_bytes


def _next_step(tables: Sequence[TableFacts], topology: PlanTopology) -> str:
    """The fewest cores, or the least memory of a core, that are enough."""
    memory = sum(least_core_bytes(table, topology.cores) for table in tables)
    changes = [f"give each core {size_text(memory)}"]
    low, high = topology.cores, MOST_CORES
    if fits(tables, high, topology.memory_bytes):
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(tables, middle, topology.memory_bytes) else (middle + 1, high)
        changes.insert(0, f"take {low} cores")
    largest = max(tables, key=lambda table: table.table_bytes)
    return f"{', or '.join(changes)}; the largest table is {largest.name} with {size_text(largest.table_bytes)}"


def size_text(size_bytes: int) -> str:
    """A size for errors: GiB, rounded up so that the stated size is enough."""
    if size_bytes < _GIB // 100:
        return f"{size_bytes} bytes"
    return f"{-(-size_bytes * 100 // _GIB) / 100:.2f} GiB"
