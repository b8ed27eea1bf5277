"""The share of a table's lookups that its hottest rows serve, with bounds by a sample. Pure.

The most frequent rows of a sample served more of the sample than they will of other lookups, and the rows that it has not seen served
nothing of it. So each batch is taken out in turn (leave-one-out): an id of it counts as served if its row is among the hottest rows
of all *other* batches, and the mass of rows that one batch has is what no sampled row serves (Good and Turing, 1953). Unseen rows that
are kept as well are taken blindly. This is what a choice by the sample serves, and no choice with more knowledge serves less.
The best choice of rows serves at most what the hottest rows of the sample serve of the sample itself.

Both are true but for the errors of sampling. The first has the variance of Esty (1983), which is Good and Turing's for one lookup a row,
the second that of a share; a batch that has a row several times counts once. The bounds are three standard deviations away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np

from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import NO_SAMPLE, RowSample
from trainer.planning.tables import FeatureLoad, TableFacts
from transforms.arrays import Array

#: The bounds are so many standard deviations from the estimate: 997 of 1,000 samples keep to them.
DEVIATIONS: Final = 3.0
#: What rounding leaves of a row whose only batch was taken out.
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class ServedLookups:
    """The share of the lookups that the hottest rows serve, by their number. Linear between points.

    Attributes:
        rows: float64, ascending, from 0 to the rows of the table.
        expected: what a choice by the sample serves.
        least_rows, least: the lower bound of what the best choice of so many rows serves.
        most_rows, most: what the best choice of so many rows serves of the sample.
        most_error: the error of ``most``, of the interval that a point ends.
        alike_share: the share of other lookups, of features without a sample, whose rows are assumed to be alike.
    """

    rows: Array
    expected: Array
    least_rows: Array
    least: Array
    most_rows: Array
    most: Array
    most_error: Array
    alike_share: float = 0.0

    def bounds(self, hot_rows: float) -> tuple[float, float]:
        """The least and the most share that the best choice of ``hot_rows`` rows serves."""
        if hot_rows <= 0.0:
            return 0.0, 0.0
        alike = min(hot_rows / float(self.rows[-1]), 1.0)  # the hottest rows serve more than as many others
        least = min(max(float(np.interp(hot_rows, self.least_rows, self.least)), alike), 1.0)
        end = min(int(np.searchsorted(self.most_rows, hot_rows)), len(self.most_rows) - 1)
        most = float(np.interp(hot_rows, self.most_rows, self.most)) + float(self.most_error[end])
        most = min(max(most, least), 1.0)
        return self._with_alike(least, alike), self._with_alike(most, alike)

    def classes(self) -> tuple[tuple[float, float], ...]:
        """Rows from the hottest on: the number of rows of a class, and the share of each, which never grows."""
        hull = [(0.0, 0.0)]
        shares = self._with_alike(self.expected, self.rows / self.rows[-1])
        for point in zip(self.rows.tolist()[1:], shares.tolist()[1:], strict=True):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
                hull.pop()
            if point[0] > hull[-1][0]:
                hull.append(point)
        return tuple((other[0] - one[0], _slope(one, other)) for one, other in pairwise(hull))

    def _with_alike(self, share: Any, alike: Any) -> Any:
        return (1.0 - self.alike_share) * share + self.alike_share * alike


def served_lookups(table: TableFacts) -> ServedLookups:
    """What the hottest rows of a table serve, by the samples of its features; exact where frequencies are stated or assumed."""
    sampled = [one for one in table.features if one.sample is not None and one.ids_per_event > 0.0]
    if not sampled:
        return _stated(table.frequencies())
    part = math.fsum(one.ids_per_event for one in sampled) / table.ids_per_event
    return replace(_of_sample(_joined(sampled), table.rows), alike_share=max(1.0 - part, 0.0))


def _stated(frequencies: RowFrequencies) -> ServedLookups:
    """The exact shares of all rows."""
    rows = [1.0] * len(frequencies.head) + [count for count, _ in frequencies.classes]
    each = np.array([share for _, share in (*frequencies.head, *frequencies.classes)])
    order = np.argsort(-each, kind="stable")
    counts = np.array(rows)[order]
    ends = np.minimum(np.concatenate([[0.0], np.cumsum(counts)]), frequencies.rows)
    shares = np.minimum(np.concatenate([[0.0], np.cumsum(counts * each[order])]), 1.0)
    if ends[-1] < frequencies.rows:
        ends, shares = np.append(ends, float(frequencies.rows)), np.append(shares, shares[-1])
    return ServedLookups(ends, shares, ends, shares, ends, shares, np.zeros(len(ends)))


def _joined(loads: Sequence[FeatureLoad]) -> RowSample:
    """The samples of features that share a table as one; each counts by its ids in an event."""
    samples = [
        (one.sample, one.sample.ids / one.ids_per_event) for one in loads if one.sample is not None and one.sample.ids
    ]
    fewest = min((events for _, events in samples), default=0.0)

    def join(joined: RowSample, one: tuple[RowSample, float]) -> RowSample:
        return one[0].merged(joined, fewest / one[1], is_same_time=True)

    return reduce(join, samples, NO_SAMPLE)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Rows, the most frequent first.

    Attributes:
        ids: of each row, float64.
        batch_ids: its ids in one of the batches that hold it, in the mean.
        weights: the rows that it stands for.
        is_light: whether it stands for others.
        total: the ids of all rows.
    """

    ids: Array
    batch_ids: Array
    weights: Array
    is_light: Array
    total: float


def _of_sample(sample: RowSample, rows: int) -> ServedLookups:
    counted = _counted(sample, rows)
    points = _points(counted)
    if not len(points.ends):
        nothing = np.zeros(0)
        return _bounded(rows, points, nothing, nothing, nothing, last_error=1.0)
    error, most_error = (_nearby(_error(one, counted)) for one in (points.variances, points.share_variances))
    least = np.maximum.accumulate(np.maximum(points.served - error, 0.0))
    # More rows than those of the sample serve all of it.
    last_error = float(most_error[-1]) if points.ends[-1] >= rows else 0.0
    row_error = DEVIATIONS * np.sqrt(points.row_variances)
    return _bounded(rows, points, least, most_error, row_error, last_error=last_error)


def _bounded(
    rows: int, points: _Points, least: Array, most_error: Array, row_error: Array, *, last_error: float
) -> ServedLookups:
    """The curves with both ends: no rows serve nothing, all serve all."""

    def curve(ends: Array, shares: Array, last: float = 1.0) -> tuple[Array, Array]:
        keep = ends < rows
        return np.concatenate([[0.0], ends[keep], [float(rows)]]), np.concatenate([[0.0], shares[keep], [last]])

    fewest, most_rows = np.maximum(points.ends - row_error, 0.0), points.ends + row_error
    return ServedLookups(
        *curve(points.ends, points.served),
        *curve(most_rows, least),
        *curve(fewest, points.of_sample),
        curve(fewest, most_error, last_error)[1],
    )


def _nearby(errors: Array) -> Array:
    """The largest error of a point and of those beside it: between two points it is at most theirs."""
    wide = np.concatenate([errors[:1], errors, errors[-1:]])
    found: Array = np.maximum(np.maximum(wide[:-2], wide[2:]), errors)
    return found


def _counted(sample: RowSample, rows: int) -> _Counted:
    """The rows of a sample, each with the rows that it stands for: none where the heavy ones are all rows of so many ids."""
    least_heavy = _least_heavy(sample)
    weight = float(1 << sample.level)
    known = [(*one, 1.0) for one in sample.heavy if one[1] > least_heavy]
    known += [(*one, 1.0 if one[1] > least_heavy else weight) for one in sample.rows]
    found = np.array(sorted((one for one in known if one[0] < rows), key=lambda one: (-one[1], one[0])), np.float64)
    _, ids, batches, weights = found.reshape(-1, 4).T
    light = weights > 1.0
    if light.any():  # together they have the ids that are left
        weights[light] *= max(sample.ids - ids[~light].sum(), 0.0) / (weights * ids)[light].sum()
    return _Counted(ids, ids / batches, weights, light, max(sample.ids, float(ids @ weights)))


def _least_heavy(sample: RowSample) -> float:
    """The ids above which all rows are known one by one.

    The heavy rows of merged samples may lack some. The chosen rows tell how many there should be: the least number of ids is taken
    above which there are as many, but for the error of the choice.
    """
    weight = float(1 << sample.level)
    heavy, chosen = (np.sort([ids for _, ids, _ in rows]) for rows in (sample.heavy, sample.rows))
    for least in np.unique(heavy).tolist():
        listed, of_choice = (len(ids) - int(np.searchsorted(ids, least, side="right")) for ids in (heavy, chosen))
        if listed >= (weight - 1.0) * of_choice - 2.0 * math.sqrt(weight * (weight - 1.0) * of_choice):
            return float(least)
    return math.inf


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """By each count of ids, descending: rows with at least so many.

    Attributes:
        ends, row_variances: their number, with its variance.
        served, variances: the share of the ids of other batches that they have, and its variance in ids.
        of_sample, share_variances: the share of all ids of the sample.
    """

    ends: Array
    row_variances: Array
    served: Array
    variances: Array
    of_sample: Array
    share_variances: Array


def _points(counted: _Counted) -> _Points:
    ids, batch_ids, weights, total = counted.ids, counted.batch_ids, counted.weights, counted.total
    counts = np.unique(ids)[::-1]
    left = ids - batch_ids
    mass, batch_mass = weights * ids, weights * ids * batch_ids
    found = np.zeros((6, len(counts)))
    for k, count in enumerate(counts.tolist()):
        below = counts[k + 1] if k + 1 < len(counts) else 0.0  # what is above it is among the hottest
        is_served = left > below + _NOTHING
        is_next = is_served & (left <= below + batch_ids + _NOTHING)
        is_hot = ids >= count
        share = mass[is_hot].sum() / total
        found[:, k] = (
            weights[is_hot].sum(),
            _thinning(counted, is_hot, np.ones(len(ids))),
            mass[is_served].sum() / total,
            batch_mass[~is_served].sum() + (mass * left)[is_next].sum() + _of_mass(counted, is_served),
            share,
            (1.0 - share) ** 2 * batch_mass[is_hot].sum()
            + share**2 * batch_mass[~is_hot].sum()
            + _of_mass(counted, is_hot),
        )
    return _Points(*found)


def _of_mass(counted: _Counted, is_part: Array) -> float:
    """The variance of the ids of a part of the light rows, of which all together are known."""
    mass = (counted.weights * counted.ids)[counted.is_light]
    part = mass[is_part[counted.is_light]].sum() / mass.sum() if len(mass) and mass.any() else 0.0
    return _thinning(counted, np.ones(len(is_part), np.bool_), counted.ids * (is_part - part))


def _thinning(counted: _Counted, is_part: Array, values: Array) -> float:
    """The variance of the sum of ``values`` over a part of all rows that comes from light rows standing for others."""
    weights = counted.weights[counted.is_light & is_part]
    return float((weights * np.maximum(weights - 1.0, 0.0) * values[counted.is_light & is_part] ** 2).sum())


def _error(variances: Array, counted: _Counted) -> Array:
    """So many standard deviations, as a share of the ids; as Wilson's interval, it is above 0 where nothing has varied yet."""
    ids = float((counted.weights * counted.ids).sum())
    of_batch = float((counted.weights * counted.ids * counted.batch_ids).sum()) / ids if ids else 1.0
    slack = DEVIATIONS * of_batch / 2.0
    found: Array = DEVIATIONS * (slack + np.sqrt(variances + slack * slack)) / max(counted.total, 1.0)
    return found


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0]) if other[0] > one[0] else math.inf
