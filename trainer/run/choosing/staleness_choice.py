"""Choose the staleness of a run by how late updates would be for the rows of its data. Pure.

Persia (Lian et al., KDD 2022, arXiv:2111.05897, section 4) bounds the loss of asynchrony by the staleness times alpha, the share of the events that
have the most frequent row. One row says little on logs where it is in every batch (a country, a weekday), so what is bounded here is a mean over all
looked-up ids: the updates of its own row that an id misses, which is what :class:`~trainer.run.weights.row_delay.RowDelay` then measures in training.
Alpha is shown beside it, by events, since by batches it is 100 % of most logs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.run.weights.row_delay import count_among, events_of_most_frequent, ids_of
from trainer.tables.batches import IdBatch

#: The bound of ``"staleness": "auto"``: `benchmarks/staleness.py --quality` shows what it costs, and what more of it does.
DEFAULT_BOUND = 1.0
#: More steps overlap hardly more work (`benchmarks/stale_hosts.py`), and each holds two batches in memory.
MOST_CHOSEN = 8
#: The newest batches whose lookups are measured.
_MEASURED = 8
_NAME = "missed_row_updates"


def staleness_bound(given: object) -> float | None:
    """The bound of an option ``staleness`` that is to be chosen; None for a number, which is used as it is.

    Raises :class:`ConfigError` for an object that is no bound.
    """
    if given == "auto":
        return DEFAULT_BOUND
    if not isinstance(given, Mapping):
        return None
    bound: Any = given.get(_NAME)
    if given.keys() != {_NAME} or type(bound) not in (int, float) or not 0 <= bound < math.inf:
        raise ConfigError("staleness must be a number of steps, or a bound by which it is chosen", where="staleness", value=dict(given),
                          allowed=f'0 to 64, "auto" or {{"{_NAME}": a number >= 0}}')  # fmt: skip
    return float(bound)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late updates would be for the rows of some batches.

    Attributes:
        missed: by staleness, from 0 on: the updates of its own row that a looked-up id would miss, the mean over all ids.
        alpha: the share of the events, of those with ids, that have the most frequent row.
    """

    missed: tuple[float, ...]
    alpha: float


def measure_lateness(tables: Sequence[str], batches: Sequence[IdBatch], most: int) -> Lateness:
    """The lateness of the newest of consecutive ``batches``, up to a staleness of ``most`` or of as many as are before them.

    ``tables``: the table of each feature; features that share one share its rows.
    """
    measured = min(_MEASURED, max(len(batches) - most, 1))
    longest = max(min(most, len(batches) - measured), 0)
    window = batches[len(batches) - measured - longest :]
    ids, missed = 0, np.zeros(longest + 1)
    for table in dict.fromkeys(tables):
        features = [f for f, one in enumerate(tables) if one == table]
        all_ids = [ids_of(one, features) for one in window]
        rows = [np.unique(one) for one in all_ids]
        for n in range(longest, len(window)):
            ids += len(all_ids[n])
            missed[1:] += [count_among(all_ids[n], rows[n - lag]) for lag in range(1, longest + 1)]
    events, frequent = events_of_most_frequent(tables, window)
    return Lateness(tuple((np.cumsum(missed) / max(ids, 1)).tolist()), frequent / max(events, 1))


def choose_staleness(lateness: Lateness, bound: float, most: int) -> tuple[int, str]:
    """The largest staleness, up to ``most``, whose missed updates are at most ``bound``, and the reason."""
    chosen = max(number for number, missed in enumerate(lateness.missed) if missed <= bound)
    found = f"an id misses {lateness.missed[chosen]:.2f} updates of its own row on average, of at most {bound:g} by the bound {_NAME}"
    if chosen + 1 < len(lateness.missed):
        found += f" ({lateness.missed[chosen + 1]:.2f} with {chosen + 1})"
    elif chosen < most:
        found += ", and the sample has no more batches"
    return (
        chosen,
        f"{found}; the most frequent row is in {lateness.alpha:.1%} of the events, which this bound does not use",
    )
