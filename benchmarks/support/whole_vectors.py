"""The sum of vectors that all hosts send whole to all: what buckets are compared with, in benchmarks and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.tables.routes.exchange import Exchange

Array = np.ndarray[Any, np.dtype[Any]]


def all_gather(exchange: Exchange, arrays: Sequence[Array]) -> list[Sequence[Array]]:
    """The arrays of every host, by rank."""
    return exchange.all_to_all([arrays] * exchange.hosts)


def summed(exchange: Exchange, vector: Array) -> Array:
    """The sum of every host's float32 ``vector``, added in the order of ranks: equal on all hosts, bit for bit."""
    first, *rest = (arrays[0] for arrays in all_gather(exchange, [vector]))
    total: Array = np.array(first, np.float32)
    for other in rest:
        total += other
    return total
