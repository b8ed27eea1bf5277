"""A sample of the rows of all hosts of a job, which says when a round begins: all hosts draw the same rows, and each sends those that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from trainer.planning.pruning_rounds import DrawnRows, crossing_share
from trainer.tables.stores.pruned.job_places import JobPlaces
from transforms.arrays import Array
from transforms.errors import DataError

#: The rows of a table from which its percentile is estimated.
_PERCENTILE_ROWS = 2048
#: What a host sends: how many rows of each table, then the columns of :class:`_Sampled`.
_KINDS = [np.dtype(one) for one in (np.int64, np.float32, np.uint8, np.int64)]


def scale_rows(rows: int, draw: np.random.Generator) -> Array:
    """The rows of a table, of so many, whose importance gives an estimate of its percentile."""
    return np.arange(rows) if rows <= _PERCENTILE_ROWS else draw.integers(0, rows, _PERCENTILE_ROWS)


def scale_of_sample(importance: Array) -> float:
    """What the importance of a table is multiplied by, from that of some of its rows."""
    values = importance[importance > 0]
    return 1.0 / float(np.quantile(values, 0.95)) if len(values) else 0.0


class JobSample:
    """Sampled rows of groups of a job.

    Args:
        job: the hosts, and their tables.
        read: the importance of rows of a table of this host, and whether they have places.
    """

    def __init__(self, job: JobPlaces, read: Callable[[int, Array], tuple[Array, Array]]) -> None:
        self._job, self._read = job, read
        self._position = {own: t for t, own in enumerate(job.tables.own) if job.tables.counts[t]}
        self._groups: list[int] = []
        self._own: list[_Sampled] = []
        self._compared: list[_Sampled] = []

    def add(self, group: int, table: int, drawn: DrawnRows, compared: Array | None) -> None:
        """Read what this host has of the rows of a table of the job; ``compared``: by which rows its scale is estimated, None: it has none."""
        self._groups.append(group)
        self._own.append(self._of_host(table, drawn))
        if compared is not None:
            self._compared.append(self._of_host(table, DrawnRows(compared, np.ones(len(compared), np.int64))))

    def _of_host(self, table: int, drawn: DrawnRows) -> _Sampled:
        t = self._position.get(table)
        if t is None:
            return _Sampled(np.zeros(0, np.float32), np.zeros(0, np.uint8), np.zeros(0, np.int64))
        mine, rows = self._job.tables.own_rows(t, drawn.rows)
        importance, is_kept = self._read(t, rows)
        return _Sampled(importance, is_kept.astype(np.uint8), drawn.times[mine])

    def crossing_shares(self) -> list[float]:
        """The share of the rows with places that have crossed, of each group, in the order in which they were added. All hosts call it at once."""
        every = self._exchange([*self._own, *self._compared])
        count = len(self._own)
        scales = [scale_of_sample(one.importance) for one in every[count:]] or [1.0] * count
        found: dict[int, list[_Sampled]] = {}
        for group, one, scale in zip(self._groups, every, scales, strict=False):
            found.setdefault(group, []).append(one._replace(importance=one.importance * np.float32(scale)))
        joined = map(_joined, found.values())
        return [crossing_share(one.importance, one.is_kept != 0, one.times) for one in joined]

    def _exchange(self, own: Sequence[_Sampled]) -> list[_Sampled]:
        """The rows of all hosts, of each table. Raises :class:`DataError` for arrays that do not fit together."""
        counts = np.array([len(one.times) for one in own], np.int64)
        of_hosts = [_divided(one, len(own), rank) for rank, one in enumerate(self._job.gather([counts, *_joined(own)]))]
        return [_joined(one) for one in zip(*of_hosts, strict=True)]


class _Sampled(NamedTuple):
    """Rows of a sample: their importance, 1 for those with places, and how often each was drawn."""

    importance: Array
    is_kept: Array
    times: Array


def _joined(parts: Sequence[_Sampled]) -> _Sampled:
    return _Sampled(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _divided(message: Sequence[Array], tables: int, rank: int) -> list[_Sampled]:
    if [one.dtype for one in message] != _KINDS or len(message[0]) != tables or (message[0] < 0).any():
        raise _does_not_fit(message, tables, rank)
    counts, *columns = message
    if any(one.shape != (int(counts.sum()),) for one in columns):
        raise _does_not_fit(message, tables, rank)
    cuts = np.cumsum(counts)[:-1]
    return [_Sampled(*one) for one in zip(*(np.split(column, cuts) for column in columns), strict=True)]


def _does_not_fit(message: Sequence[Array], tables: int, rank: int) -> DataError:
    found = ", ".join(f"{one.dtype} {one.shape}" for one in message)
    return DataError("sampled rows must have their importance, places and numbers", where=f"host {rank}", value=found,
                     allowed=f"int64 ({tables},), then float32, uint8 and int64 of all rows")  # fmt: skip
