"""The loop that lists what an update has changed in an index: places of its ids, and lines of candidates."""

from __future__ import annotations

from trainer.tables.stores.hashed.candidates import line_of
from trainer.tables.stores.hashed.decisions import Decisions
from trainer.tables.stores.hashed.index_layout import IndexLayout
from transforms.arrays import Array
from transforms.kernels.compiled import compiled


@compiled
def list_changes(
    decided: Decisions, layout: IndexLayout, places: Array, place_ends: Array, lines: Array, line_ends: Array
) -> None:  # fmt: skip
    """Write the places of all ids that have one, and the lines of those that had none before, table after table, and where those of each table end."""
    placed = counted = 0
    for t in range(len(decided.starts) - 1):
        of_table = layout.lines[t]
        for k in range(decided.starts[t], decided.starts[t + 1]):
            if decided.places[k] >= 0:
                places[placed] = decided.places[k]
                placed += 1
            if of_table and (decided.places[k] < 0 or decided.is_new[k]):
                lines[counted] = line_of(layout.keys[t], decided.ids[k], of_table)
                counted += 1
        place_ends[t], line_ends[t] = placed, counted
