"""Embedding tables of a commit whose rows never left the range of their first values: the network has learned nothing in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.checkpoints.read import open_commit
from trainer.checkpoints.run_files import RunFiles

#: First values are drawn from a normal that is truncated at so many deviations.
_TRUNCATED = 2.0
#: Rounding of float32.
_SLACK = 1 + 1e-5
_KIND = "embedding"


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The tables of the network with trained rows, and those that did not move, by name."""

    tables: int
    unmoved: tuple[str, ...]


def table_health(files: RunFiles, commit: str, initial_stddev: float) -> TableHealth:
    """The health of the tables of a commit. A table is read until a value outside the first range is found.

    Raises :class:`TornCheckpoint` for a damaged commit.
    """
    stored = open_commit(files, commit)
    limit = _TRUNCATED * initial_stddev * _SLACK
    trained, unmoved = 0, []
    for kind, table in stored.tables:
        if kind != _KIND:
            continue
        has_rows, has_moved = False, False
        for one in stored.slices(kind, table):
            for shard in one.shards:
                weights = shard.weights.array(files)
                has_rows = has_rows or weights.size > 0
                has_moved = has_moved or bool(weights.size and np.abs(weights).max() > limit)
            if has_moved:
                break
        trained += has_rows
        if has_rows and not has_moved:
            unmoved.append(table)
    return TableHealth(trained, tuple(unmoved))
