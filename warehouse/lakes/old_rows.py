"""Rows of the table whose files the lake removed: where they are, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from transforms.arrays import Ints
from warehouse.storage.storage import Storage
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.raw import read_raw


@dataclass(frozen=True, slots=True)
class PartRows:
    """Some rows of one part, in order, and the part's fragments, in the order of its file."""

    part: int
    rows: Ints
    fragments: tuple[PlacedFragment, ...]

    @property
    def partition(self) -> str:
        """The partition of all of them."""
        return self.fragments[0].partition


@dataclass(frozen=True)
class OldRows:
    """Rows of several parts, concatenated.

    Attributes:
        part: the part of each row.
        row: its row in the part.
        fragment: the index of its fragment in ``fragments``.
        event: its row in the fragment.
        fragments: the fragments of the parts.
    """

    part: Ints
    row: Ints
    fragment: Ints
    event: Ints
    fragments: tuple[PlacedFragment, ...]

    def values(self, storage: Storage, schema: pa.Schema) -> pa.Table:
        """The current values of the columns of ``schema``, row by row."""
        pieces = []
        for index in np.unique(self.fragment):
            chosen = self.event[self.fragment == index]
            raw = read_raw(storage, self.fragments[index].fragment, schema.names)
            pieces.append(raw.take(pa.array(chosen)).cast(schema))
        return pa.concat_tables(pieces) if pieces else schema.empty_table()


def old_rows(parts: Sequence[PartRows]) -> OldRows:
    """The rows of all parts, part by part; the rows of a fragment are adjacent."""
    fragments = tuple(placed for one in parts for placed in one.fragments)
    part, row, fragment, event = list[Ints](), list[Ints](), list[Ints](), list[Ints]()
    first_fragment = 0
    for one in parts:
        firsts = np.array([*accumulate((placed.fragment.rows for placed in one.fragments), initial=0)])
        index = np.searchsorted(firsts, one.rows, side="right") - 1
        part.append(np.full(len(one.rows), one.part, np.int64))
        row.append(one.rows)
        fragment.append(index + first_fragment)
        event.append(one.rows - firsts[index])
        first_fragment += len(one.fragments)
    return OldRows(_joined(part), _joined(row), _joined(fragment), _joined(event), fragments)


def _joined(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays).astype(np.int64) if arrays else np.zeros(0, np.int64)


def fragments_of_files(current: Iterable[PlacedFragment]) -> Mapping[str, tuple[PlacedFragment, ...]]:
    """The fragments of each file, in the order of its rows."""
    found: dict[str, list[PlacedFragment]] = {}
    for placed in current:
        found.setdefault(placed.fragment.path, []).append(placed)
    return {path: tuple(sorted(placed, key=lambda one: one.fragment.row_groups)) for path, placed in found.items()}
