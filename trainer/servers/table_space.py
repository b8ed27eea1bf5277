"""The space that tables take in the memory folder of a parameter server, and the error for a folder that has less."""

from __future__ import annotations

from pathlib import Path

from trainer.tables.kernels.memory import free_bytes, no_room
from trainer.tables.kernels.table_bytes import row_bytes
from trainer.tables.routes.servers.table_documents import HeldPruning, HeldTable, HeldTables
from trainer.tables.stores.hashed.options import CANDIDATE_BYTES, WAYS, bytes_per_row

#: The bytes by which a snapshot marks a row, and by which it keeps a row of a hashed table: its id, place and age.
_MARK_BYTES, _KEPT_BYTES = 1, 24
#: The bytes of the address and importance of a row of a pruned table, and of those of a place: its number, its importance, and its row in a snapshot.
_ROW_BYTES, _PLACE_BYTES = 8, 24
#: The largest tables are listed.
_LISTED = 3


def table_space(held: HeldTable) -> int:
    """The bytes of a table's rows, of their index, and of what a snapshot of all of them needs before rows change."""
    if held.limits is None:
        return held.table.vocabulary_size * (row_bytes(held.table) + _MARK_BYTES)
    hashed = held.limits.table(held.table)
    candidates = 2 * hashed.candidate_lines * WAYS * CANDIDATE_BYTES
    return hashed.places * (bytes_per_row(hashed) + _MARK_BYTES + _KEPT_BYTES) + candidates


def pruned_space(pruning: HeldPruning, held: HeldTables) -> dict[str, int]:
    """The bytes of each pruned table: addresses and importance of its rows, and its share of the places of its group."""
    rooms = {}
    for group in pruning.groups:
        rows = sum(held.tables[t].table.vocabulary_size for t in group.tables)
        for t in group.tables:
            table = held.tables[t].table
            left = row_bytes(table) if pruning.options.reset == "restored" else 0
            of_places = (
                (group.rows + 1) * (row_bytes(table) + _MARK_BYTES + _PLACE_BYTES) * table.vocabulary_size // rows
            )
            rooms[table.name] = table.vocabulary_size * (_ROW_BYTES + left) + of_places
    return rooms


def space_by_table(held: HeldTables) -> dict[str, int]:
    """The bytes of each table of any kind, by its name."""
    rooms = {one.table.name: table_space(one) for one in held.tables}
    return rooms if held.pruning is None else rooms | pruned_space(held.pruning, held)


def check_room(folder: Path, held: HeldTables) -> None:
    """Raise :class:`~trainer.errors.MemoryFull` for tables for which the memory folder has no space, before it is filled."""
    rooms = space_by_table(held)
    needed_bytes, free = sum(rooms.values()), free_bytes(folder)
    if free is None or needed_bytes <= free:
        return
    largest = sorted(held.tables, key=lambda one: -rooms[one.table.name])
    texts = [f"table {one.table.name}, {one.most_rows:,} rows of {one.table.dim} columns, {rooms[one.table.name]:,} bytes"
             for one in largest[:_LISTED]]  # fmt: skip
    more = f"; and {len(largest) - _LISTED} more" if len(largest) > _LISTED else ""
    raise no_room(folder, "; ".join(texts) + more, needed_bytes)
