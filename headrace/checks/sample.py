"""Samples a table's events evenly and deterministically over its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from warehouse.tables.manifests import PlacedFragment
    from warehouse.warehouse import Warehouse

#: The most fragments that are read; one is in memory at a time.
FRAGMENTS_MAX = 24


def evenly(count: int, wanted: int) -> list[int]:
    """``wanted`` evenly spaced positions of ``count``, or all, the first included."""
    return [place * count // wanted for place in range(wanted)] if wanted < count else list(range(count))


def sample_rows(
    warehouse: Warehouse, fragments: Sequence[PlacedFragment], columns: Sequence[str], rows: int
) -> tuple[pa.Table, int]:
    """Raw columns of about ``rows`` events that are not deleted, evenly from evenly spaced fragments.

    Also returns the number of partitions.
    """
    from warehouse.tables.overlays import live_mask
    from warehouse.tables.raw import read_raw

    chosen = [fragments[at] for at in evenly(len(fragments), min(FRAGMENTS_MAX, max(rows, 1)))]
    parts: list[pa.Table] = []
    left = rows
    for number, placed in enumerate(chosen):
        fragment = placed.fragment
        table = read_raw(warehouse.storage, fragment, columns, verify=False)
        live = live_mask(warehouse.storage, fragment)
        table = table if live is None else table.filter(live)
        share = -(-left // (len(chosen) - number))
        part = table.take(np.array(evenly(table.num_rows, share), np.int64))
        left -= part.num_rows
        # Files may hold text in other physical forms, such as with a dictionary.
        parts.append(part.cast(parts[0].schema) if parts else part)
    return pa.concat_tables(parts).combine_chunks(), len({placed.partition for placed in chosen})
