"""The arrays of a host's shards of embedding tables, as its part of a commit names them."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.checkpoints.commit_manifest import TABLE_COLUMNS, array_name, table_of
from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.errors import TornCheckpoint
from trainer.run.weights.saved_tables import check_sections, parted_table, saved_sections, section_arrays, table_arrays
from trainer.tables.engine import NO_SECTIONS, TableState
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from transforms.arrays import Array


def shard_arrays(kind: str, tables: ShardedTables) -> dict[str, Array]:
    """The arrays of all parts on this core, by name; copies of replicated parts that it does not save are empty."""
    arrays: dict[str, Array] = {}
    for p in tables.held_parts:
        state = tables.part_state(p)
        arrays.update(zip(_names(kind, tables, p), (state.rows, state.weights, state.slots), strict=True))
        arrays.update(section_arrays(kind, tables.parts.parts[p].table.name, state.sections))
    return arrays


def parted_shards(kind: str, tables: ShardedTables, most_bytes: int) -> list[PartedArrays]:
    """The arrays of the parts that this core saves, as they are now, to be read while training goes on.

    The first core of a table saves the sections that are alike on all of its cores.
    """
    snapshot = tables.begin_part_snapshot(most_bytes=most_bytes)
    found = []
    for p in tables.saved_parts:
        part, count = tables.parts.parts[p], snapshot.counts[p]
        columns, number = part.slice_.columns, tables.parts.slice_number(p)
        kinds = table_arrays(kind, part.table.name, count, columns, len(part.slots), number)
        found += parted_table(snapshot, p, kinds, kind, part.table.name, with_others=_saves_shared(tables, p))
    return found


def shard_states(arrays: Mapping[str, Array], kind: str, tables: ShardedTables) -> dict[int, TableState]:
    """The states of the parts on this core; the inverse of :func:`shard_arrays`. Raises :class:`TornCheckpoint`."""
    names = {p: _names(kind, tables, p) for p in tables.held_parts}
    expected = {name for own in names.values() for name in own}
    found = {name for name in arrays if (of := table_of(name)) is not None and of[0] == kind}
    if found != expected:
        raise TornCheckpoint("the saved shards of a host must be those of its tables", where=kind,
                             value=sorted(found - expected)[:4] or "not all", allowed=str(sorted(expected - found)[:4] or "these"))  # fmt: skip
    sections, states = saved_sections(arrays, kind), {}
    for p, own in names.items():
        (rows, weights, slots), table = (arrays[name] for name in own), tables.parts.parts[p].table.name
        states[p] = TableState(rows, weights, slots, sections.get(table, NO_SECTIONS))
        check_sections(table, states[p], tables.section_names(p))
    return states


def _saves_shared(tables: ShardedTables, p: int) -> bool:
    """Whether this core saves what is alike on all cores of a part's table."""
    return tables.rank == tables.parts.parts[p].slice_.cores[0] and tables.parts.slice_number(p) in (None, 0)


def _names(kind: str, tables: ShardedTables, p: int) -> list[str]:
    table, number = tables.parts.parts[p].table.name, tables.parts.slice_number(p)
    return [array_name(kind, column, table, number) for column in TABLE_COLUMNS]
