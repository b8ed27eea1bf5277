"""How often the rows of a feature are looked up: the most frequent rows one by one, the others in classes. Immutable; no I/O."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.errors import ConfigError
from transforms.arrays import Array

#: The most rows whose share is kept for each.
HEAD_ROWS: Final = 256
#: The most classes of other rows.
MOST_CLASSES: Final = 128
#: Shares and rows are sums of floating-point numbers.
_TOLERANCE: Final = 1e-6
#: Ranks of a power law whose shares are summed one by one.
_EXACT_RANKS: Final = 4096


@dataclass(frozen=True, slots=True)
class RowFrequencies:
    """The share of a feature's ids that each row has. Raises :class:`ConfigError` for shares that no ids can have.

    Attributes:
        rows: the rows of the table.
        head: the most frequent rows, each with its share of the ids, the most frequent first.
        classes: other rows of about equal frequency: the number of distinct rows, and the share of the ids of *each* of them.
    """

    rows: int
    head: tuple[tuple[int, float], ...] = ()
    classes: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError("row frequencies must have a table with rows", value=self.rows, allowed=">= 1")
        if len(self.head) > HEAD_ROWS or len(self.classes) > MOST_CLASSES:
            raise ConfigError("row frequencies must have few entries", value=(len(self.head), len(self.classes)),
                              allowed=f"{HEAD_ROWS} rows and {MOST_CLASSES} classes")  # fmt: skip
        ids = [row for row, _ in self.head]
        if len(set(ids)) != len(ids) or not all(0 <= row < self.rows for row in ids):
            raise ConfigError(
                "frequent rows must be distinct rows of the table", value=ids[:8], allowed=f"[0, {self.rows})"
            )
        shares = [share for _, share in (*self.head, *self.classes)]
        if not all(0.0 < share <= 1.0 + _TOLERANCE for share in shares):
            raise ConfigError("the share of a row must be above 0 and at most 1", value=min(shares), allowed="(0, 1]")
        if not all(0.0 < count < math.inf for count, _ in self.classes):
            raise ConfigError("a class must have rows", value=[count for count, _ in self.classes][:8], allowed="> 0")
        if self.distinct_rows > self.rows * (1.0 + _TOLERANCE):
            raise ConfigError("row frequencies must count at most the rows of the table", value=self.distinct_rows,
                              allowed=f"at most {self.rows} rows")  # fmt: skip
        if self.total_share > 1.0 + _TOLERANCE:
            raise ConfigError("the shares of all rows must be at most 1", value=self.total_share)

    @property
    def distinct_rows(self) -> float:
        """The number of rows that have ids."""
        return len(self.head) + math.fsum(count for count, _ in self.classes)

    @property
    def total_share(self) -> float:
        """The sum of the shares of all rows: 1, or 0 of a feature without ids."""
        return math.fsum(share for _, share in self.head) + math.fsum(count * share for count, share in self.classes)

    def distinct(self, ids: float) -> float:
        """The expected number of distinct rows among ``ids`` ids that are drawn independently."""
        counts, shares = self._as_arrays()
        expected = float(counts @ _drawn(shares, ids))
        return min(expected, max(ids, 0.0), float(self.rows))

    def share_of_hottest(self, rows: float) -> float:
        """The share of the ids that the ``rows`` most frequent rows have."""
        counts, shares = self._as_arrays()
        order = np.argsort(-shares, kind="stable")
        before = np.concatenate([[0.0], np.cumsum(counts[order])[:-1]])
        return float(np.clip(rows - before, 0.0, counts[order]) @ shares[order])

    def merged(self, other: RowFrequencies, own_weight: float, other_weight: float) -> RowFrequencies:
        """The mean of both, by these weights; the table is ``other``'s.

        Rows of the two tails are taken to be the same rows, in the same order of frequency. A row that is in one head only has, in
        the other, the share of the most frequent rows of its tail, unless its own is smaller.
        """
        if min(own_weight, other_weight) < 0.0 or not 0.0 < own_weight + other_weight < math.inf:
            raise ConfigError("weights must be at least 0, and not both 0", value=(own_weight, other_weight))
        part = other_weight / (own_weight + other_weight)
        if not part or not self.distinct_rows:
            return RowFrequencies(other.rows, other.head, other.classes) if not self.distinct_rows else self
        if part == 1.0 or not other.distinct_rows:
            return other if other.distinct_rows else self
        heads = dict(self.head), dict(other.head)
        tails = _Tail(self.classes), _Tail(other.classes)
        joined: dict[int, float] = {}
        for row in sorted(heads[0] | heads[1], key=lambda row: -max(head.get(row, 0.0) for head in heads)):
            known = max(head.get(row, 0.0) for head in heads)
            shares = [head[row] if row in head else tail.take(known) for head, tail in zip(heads, tails, strict=True)]
            joined[row] = (1.0 - part) * shares[0] + part * shares[1]
        tail = _mean_tail(tails[0].classes(), tails[1].classes(), part)
        return _built(other.rows, joined, tail)

    @staticmethod
    def of_counts(rows: int, counts: Mapping[int, int]) -> RowFrequencies:
        """The frequencies in a sample with ``counts`` ids of each row; see :meth:`of_sample`."""
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        rest: dict[int, float] = {}
        for _, count in ordered[HEAD_ROWS:]:
            rest[count] = rest.get(count, 0.0) + 1.0
        return RowFrequencies.of_sample(rows, dict(ordered[:HEAD_ROWS]), rest, sum(counts.values()))

    @staticmethod
    def of_sample(rows: int, head: Mapping[int, int], rest: Mapping[int, float], ids: int) -> RowFrequencies:
        """The frequencies in a sample of ``ids`` ids.

        A class of ``rest`` stands for the rows that it has and for those of that share that the sample has missed: together as many
        as Chao's lower bound (1984). So the distinct rows of a few ids are close, and those of more ids than the sample's too few.

        Args:
            head: the ids of each of the most frequent rows.
            rest: the number of other rows, possibly estimated, that have so many ids.
        """
        if ids <= 0 or not (head or rest):
            return RowFrequencies(rows)
        known = math.fsum(count / ids for count in head.values())
        tail = _with_missed_rows(rest, ids, max(rows - len(head), 0))
        return _built(rows, {row: count / ids for row, count in head.items()}, _fitted(tail, known, rows - len(head)))

    @staticmethod
    def power_law(rows: int, exponent: float) -> RowFrequencies:
        """Row r has a share proportional to (r + 1) ** -``exponent``."""
        if rows < 1 or not 0.0 <= exponent <= 64.0:
            raise ConfigError(
                "a power law must have rows and an exponent", value=(rows, exponent), allowed=">= 1, in [0, 64]"
            )
        total = _power_sum(0, rows, exponent)
        head = tuple((row, (row + 1.0) ** -exponent / total) for row in range(min(rows, HEAD_ROWS)))
        classes, first = [], len(head)
        while first < rows:
            stop = min(2 * first, rows)
            classes.append((float(stop - first), _power_sum(first, stop, exponent) / total / (stop - first)))
            first = stop
        kept = tuple(item for item in head if item[1] > 0.0)
        return RowFrequencies(rows, kept, tuple(item for item in classes if item[1] > 0.0))

    def _as_arrays(self) -> tuple[Array, Array]:
        counts = np.array([1.0] * len(self.head) + [count for count, _ in self.classes])
        return counts, np.array([share for _, share in (*self.head, *self.classes)])


class _Tail:
    """The classes of a tail, from which single rows are taken, the most frequent first."""

    def __init__(self, classes: Iterable[tuple[float, float]]) -> None:
        self._classes = sorted(classes, key=lambda item: item[1])

    def take(self, known: float) -> float:
        """Take a row away; its share, at most ``known``. 0 if none is left."""
        if not self._classes:
            return 0.0
        count, share = self._classes.pop()
        if count > 1.0:
            self._classes.append((count - 1.0, share))
        elif self._classes and count < 1.0:  # the rest of an estimated class goes on as part of the next
            share *= count
        if share <= known:
            return share
        self._classes.append((1.0, share - known))
        self._classes.sort(key=lambda item: item[1])
        return known

    def classes(self) -> list[tuple[float, float]]:
        """The rows that are left, the most frequent first."""
        return self._classes[::-1]


def _drawn(shares: Array, ids: float) -> Array:
    """The probability that a row of each share is among ``ids`` ids."""
    if ids <= 0.0:
        return np.zeros(len(shares))
    with np.errstate(divide="ignore"):  # a share of 1: the logarithm of 0
        found: Array = -np.expm1(ids * np.log1p(-np.minimum(shares, 1.0)))
    return found


def _mean_tail(
    own: list[tuple[float, float]], other: list[tuple[float, float]], part: float
) -> list[tuple[float, float]]:
    """The mean of two tails, rank by rank."""
    ends = [np.cumsum([count for count, _ in tail]) for tail in (own, other)]
    cuts = np.unique(np.concatenate([[0.0], *ends]))
    found = []
    for first, stop in itertools.pairwise(cuts.tolist()):
        shares = [_share_at((first + stop) / 2.0, tail, end) for tail, end in zip((own, other), ends, strict=True)]
        found.append((stop - first, (1.0 - part) * shares[0] + part * shares[1]))
    return [item for item in found if item[0] > 0.0 and item[1] > 0.0]


def _share_at(rank: float, tail: list[tuple[float, float]], ends: Array) -> float:
    place = int(np.searchsorted(ends, rank, side="right"))
    return tail[place][1] if place < len(tail) else 0.0


def _built(rows: int, shares: Mapping[int, float], tail: Iterable[tuple[float, float]]) -> RowFrequencies:
    """Frequencies with the most frequent of ``shares`` as head; all other rows in classes, by the power of two of their share."""
    ordered = sorted(((row, share) for row, share in shares.items() if share > 0.0 and row < rows), key=lambda item: (-item[1], item[0]))  # fmt: skip
    octaves: dict[int, tuple[float, float]] = {}
    for count, share in (*((1.0, share) for _, share in ordered[HEAD_ROWS:]), *tail):
        octave = max(math.frexp(share)[1], -MOST_CLASSES + 2)
        known, mass = octaves.get(octave, (0.0, 0.0))
        octaves[octave] = (known + count, mass + count * share)
    classes = [(count, mass / count) for _, (count, mass) in sorted(octaves.items(), reverse=True)]
    head = tuple(ordered[:HEAD_ROWS])
    return RowFrequencies(rows, head, tuple(_fitted(classes, math.fsum(share for _, share in head), rows - len(head))))


def _fitted(tail: list[tuple[float, float]], known: float, most_rows: float) -> list[tuple[float, float]]:
    """A tail that is at most ``most_rows`` rows and, with the ``known`` share, at most all ids: estimates may exceed both a little."""
    numbers, mass = math.fsum(count for count, _ in tail), math.fsum(count * share for count, share in tail)
    if not tail or most_rows < 1.0 or known >= 1.0:
        return []
    fewer = min(1.0, most_rows / numbers)
    factor = min(1.0, (1.0 - known) / mass) / fewer
    return [(count * fewer, min(share * factor, 1.0)) for count, share in tail]


def _with_missed_rows(rest: Mapping[int, float], ids: int, most_rows: float) -> list[tuple[float, float]]:
    """The classes of the rows that a sample of ``ids`` ids has or has missed."""
    once, twice = rest.get(1, 0.0), rest.get(2, 0.0)
    chao = once * once / (2.0 * twice) if twice > 0.0 else once * max(once - 1.0, 0.0) / 2.0
    found, missed = [], 0.0
    for count, number in rest.items():
        if count > 1:
            drawn = _poisson_mean(count)
            found.append((number * count / drawn, drawn / ids))
            missed += number * (count / drawn - 1.0)
    if once > 0.0:
        free = most_rows - missed - math.fsum(rest.values())
        all_rows = once + max(min(chao - missed, free), 0.0)
        found.append((all_rows, once / ids / all_rows))
    return found


def _poisson_mean(count: float) -> float:
    """The mean of a Poisson variable that is ``count`` in the mean where it is not 0."""
    mean = float(count)
    for _ in range(64):
        before, mean = mean, -count * math.expm1(-mean)
        if mean == before:
            break
    return mean


def _power_sum(first: int, stop: int, exponent: float) -> float:
    """The sum of (r + 1) ** -exponent for r from ``first`` up to ``stop``; the error is below 1e-9 of it."""
    exact_stop = min(stop, max(first, _EXACT_RANKS))
    exact = float(np.sum((np.arange(first, exact_stop, dtype=np.float64) + 1.0) ** -exponent))
    if exact_stop == stop:
        return exact
    low, high = exact_stop + 0.5, stop + 0.5  # the midpoint rule, with the first term of its error
    if abs(exponent - 1.0) < 1e-9:
        area = math.log(high / low)
    else:
        area = (high ** (1.0 - exponent) - low ** (1.0 - exponent)) / (1.0 - exponent)
    slopes = -exponent * (high ** (-exponent - 1.0) - low ** (-exponent - 1.0))
    return float(exact + area - slopes / 24.0)
