"""Which tables are stacked: those whose rows are equally wide when they are padded, and that are trained alike. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

#: Rows of a stack are padded to a multiple of so many columns; slices of columns are cut at such multiples, too.
PADDED_COLUMNS: Final = 8


def padded_units(columns: int) -> int:
    """The width of a padded row, in units of :data:`PADDED_COLUMNS`."""
    return -(-columns // PADDED_COLUMNS)


def stacked(tables: Sequence[tuple[int, Hashable]]) -> tuple[tuple[int, ...], ...]:
    """The positions of the tables of each stack, in the order of their first one.

    ``tables``: of each its columns, and a key that is equal for tables that are trained alike.
    """
    groups: dict[tuple[int, Hashable], list[int]] = {}
    for t, (columns, key) in enumerate(tables):
        groups.setdefault((padded_units(columns), key), []).append(t)
    return tuple(map(tuple, groups.values()))
