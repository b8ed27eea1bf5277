"""Rows that are looked up on servers, and that no update changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trainer.embedding.partitioned.requests import RowsByOwner
from trainer.embedding.partitioned.table_parts import TableParts

_NONE = -1


class FixedRows:
    """One row of each of some tables; ``rows``: by the table's name."""

    def __init__(self, parts: TableParts, rows: Mapping[str, int]) -> None:
        self._numbers = np.full((parts.cores, len(parts.parts)), _NONE, np.int64)
        for p, part in enumerate(parts.parts):
            if part.table.name in rows:
                for owner in range(parts.cores):
                    _, own = part.own_rows(owner, np.array([rows[part.table.name]]))
                    if len(own):
                        self._numbers[owner, p] = own[0]

    def left_out(self, found: RowsByOwner) -> RowsByOwner:
        """The other ones of these rows."""
        counts = found.counts.ravel()
        kept = found.rows != np.repeat(self._numbers.ravel(), counts)
        ends = np.cumsum(counts)
        left = np.concatenate([[0], np.cumsum(~kept)])
        counts = (counts - (left[ends] - left[ends - counts])).reshape(found.counts.shape)
        return replace(
            found, rows=found.rows[kept], places=found.places[kept], counts=counts, ends=np.cumsum(counts.sum(axis=1))
        )
