"""Samples a table's events evenly and deterministically over its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warehouse.tables.manifests import PlacedFragment
    from warehouse.warehouse import Warehouse

#: Gives columns of fragments that are not stored, each with one array a fragment.
Joined: TypeAlias = "Callable[[Sequence[PlacedFragment]], Mapping[str, Sequence[pa.Array]]]"

#: The most fragments that are read; one is in memory at a time.
FRAGMENTS_MAX = 24


def evenly(count: int, wanted: int) -> list[int]:
    """``wanted`` evenly spaced positions of ``count``, or all, the first included."""
    return [place * count // wanted for place in range(wanted)] if wanted < count else list(range(count))


def sample_rows(
    warehouse: Warehouse,
    fragments: Sequence[PlacedFragment],
    columns: Sequence[str],
    rows: int,
    joined: Joined | None = None,
) -> tuple[pa.Table, int]:
    """Raw columns of about ``rows`` events that are not deleted, evenly from evenly spaced fragments.

    ``joined``: gives further columns of fragments, each with one array a fragment. Also returns the number of partitions.
    """
    from warehouse.tables.overlays import live_mask
    from warehouse.tables.raw import read_raw

    chosen = [fragments[at] for at in evenly(len(fragments), min(FRAGMENTS_MAX, max(rows, 1)))]
    parts: list[pa.Table] = []
    left = rows
    more = joined(chosen) if joined is not None else {}
    for number, placed in enumerate(chosen):
        fragment = placed.fragment
        table = read_raw(warehouse.storage, fragment, columns, verify=False)
        for name, values in more.items():
            table = table.append_column(name, values[number])
        live = live_mask(warehouse.storage, fragment)
        table = table if live is None else table.filter(live)
        share = -(-left // (len(chosen) - number))
        part = table.take(np.array(evenly(table.num_rows, share), np.int64))
        left -= part.num_rows
        # Files may hold text in other physical forms, such as with a dictionary.
        parts.append(part.cast(parts[0].schema) if parts else part)
    return pa.concat_tables(parts).combine_chunks(), len({placed.partition for placed in chosen})
