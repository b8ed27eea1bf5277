"""A monotone map of a binary label's logits, fitted to predictions of unseen events. Pure, float64, deterministic.

``platt``: the probability is ``sigmoid(slope * logit + intercept)`` (Platt, 1999), fitted by Newton's method to targets that are
smoothed as Lin, Lin and Weng (2007) do. ``isotonic``: the pool-adjacent-violators fit, as a line through the middle of each pool, in
log odds. A map keeps the order of logits, so it changes the calibration and the loss and hardly the AUC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from trainer.errors import BadLabel, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.model.heads import Head
from trainer.model.metrics import sigmoid
from trainer.model.task_heads import AnyHead
from trainer.options.config import CALIBRATIONS
from trainer.options.document_field import DocumentField
from transforms.arrays import Array
from transforms.derived_documents import Form

Points = tuple[tuple[float, float], ...]

#: Fewer events of the rarer label than this do not tell a rate at several logits.
LEAST_RARER = 50
MOST_POINTS = 64
TABLE_ROWS = MOST_POINTS + 1

#: A map is at least this steep where it is fitted, so that it keeps the order of predictions that do not tell labels apart.
_LEAST_SLOPE = 2.0**-10
_MOST_STEPS = 100
#: Of both labels, so that the standard error of a pool's log odds is at most 0.45.
_LEAST_OF_POOL = 10


@dataclass(frozen=True, slots=True)
class Calibration:
    """A piecewise linear map of logits; see :meth:`apply`.

    Attributes:
        kind: one of :data:`trainer.options.config.CALIBRATIONS`; ``none`` changes no logit.
        events: the events that it was fitted to.
        rarer: those of the rarer label. Below :data:`LEAST_RARER` nothing is fitted, and the kind is ``none``.
        points: logits with their images, both ascending; none if the kind is ``none``.
        slope_below, slope_above: of the map outside the points.
    """

    kind: str = "none"
    events: int = 0
    rarer: int = 0
    points: Points = ()
    slope_below: float = 1.0
    slope_above: float = 1.0

    def apply(self, logits: Array) -> Array:
        """The calibrated logits, float64 of the shape of ``logits``."""
        x = np.asarray(logits, np.float64)
        if not self.points:
            return x
        starts, images, slopes = self.segments()
        at = np.searchsorted(starts, x, side="right")
        # Below the first point the line is the one through it; all others go through the point before the logit.
        base = np.maximum(at - 1, 0)
        return np.asarray(images[base] + slopes[at] * (x - starts[base]))

    def segments(self) -> tuple[Array, Array, Array]:
        """The points' logits and images, and the slopes before, between and after them, float64 [n], [n], [n + 1]."""
        starts, images = np.array(self.points, np.float64).reshape(-1, 2).T
        between = np.diff(images) / np.diff(starts)
        return starts, images, np.array([self.slope_below, *between.tolist(), self.slope_above])

    def table(self) -> Array:
        """The map as float64 [:data:`TABLE_ROWS`, 3], whose shape is that of every map: logits, images and slopes.

        Row k has a point, and the slope before it; the last row has the slope after the points. Logits beyond the points are infinite.
        """
        found = np.zeros((TABLE_ROWS, 3))
        found[:, 0] = np.inf
        own = self if self.points else Calibration(points=((0.0, 0.0),))
        starts, images, slopes = own.segments()
        found[: len(starts), 0], found[: len(starts), 1], found[: len(slopes), 2] = starts, images, slopes
        return found

    def text(self) -> str:
        """One line."""
        fitted = f"fitted to {self.events:,} held-out events"
        if self.kind == "platt":
            return f"platt: {self.slope_above:.3f} x logit {self.points[0][1]:+.3f}, {fitted}"
        if self.kind == "isotonic":
            return f"isotonic: {len(self.points)} points, {fitted}"
        return f"none: {self.rarer:,} of {self.events:,} held-out events have the rarer label, and {LEAST_RARER} are needed"

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {
            "kind": self.kind,
            "events": self.events,
            "rarer": self.rarer,
            "points": [list(point) for point in self.points],
            "slopes": [self.slope_below, self.slope_above],
        }

    @classmethod
    def read(cls, field: DocumentField) -> Calibration:
        """The map at ``field``. Raises :class:`TornCheckpoint` for one that is not monotone, or not of its kind."""
        kind, events = field.at("kind").text(), field.at("events").count()
        rarer = field.at("rarer").count(most=events)
        points = tuple(_pair(item) for item in field.at("points").items())
        below, above = _pair(field.at("slopes"))
        limits = {"none": (0, 0), "platt": (1, 1), "isotonic": (1, MOST_POINTS)}
        least, most = limits.get(kind, (1, 0))
        x, y = np.array(points, np.float64).reshape(-1, 2).T
        with np.errstate(over="ignore"):
            steps = np.diff(x), np.diff(y)
        is_monotone = below > 0 and above > 0 and all((one > 0).all() and np.isfinite(one).all() for one in steps)
        if not (least <= len(points) <= most and is_monotone):
            raise TornCheckpoint("a calibration must be an ascending map of its kind", where=field.place,
                                 value=f"{kind} of {len(points)} points", allowed=f"{', '.join(CALIBRATIONS)}; at most {MOST_POINTS} points")  # fmt: skip
        return cls(kind, events, rarer, points, below, above)


#: A map in a document.
StoredCalibration = Annotated[Calibration, Form(Calibration.read, Calibration.to_document)]


def fit(kind: str, labels: Array, logits: Array) -> Calibration:
    """Fit a map of ``kind`` to labels of 0 and 1 and the logits that predict them, [events].

    With fewer than :data:`LEAST_RARER` events of the rarer label nothing is fitted: the result's kind is ``none``. Equal arguments give
    equal bits. Raises :class:`ConfigError` for an unknown kind, :class:`BadLabel` for other labels, :class:`NonFiniteLoss` for logits
    that are not finite.
    """
    if kind not in CALIBRATIONS:
        raise ConfigError(
            "calibration must be a known kind", where="calibration", value=kind, allowed=", ".join(CALIBRATIONS)
        )
    values, x = np.asarray(labels), np.asarray(logits, np.float64)
    positive = values == 1
    if not (positive | (values == 0)).all():
        raise BadLabel(
            "the labels of a calibration must be 0 or 1", value=values[~(positive | (values == 0))][0].item()
        )
    if not np.isfinite(x).all():
        raise NonFiniteLoss("the logits of a calibration must be finite", value=x[~np.isfinite(x)][0].item())
    events, positives = len(x), int(positive.sum())
    rarer = min(positives, events - positives)
    if kind == "none" or rarer < LEAST_RARER:
        return Calibration("none", events, rarer)
    if kind == "platt":
        slope, intercept = _platt(positive, x)
        return Calibration(kind, events, rarer, ((0.0, intercept),), slope, slope)
    return _isotonic(positive, x, rarer)


def fit_labels(kind: str, head: AnyHead, labels: Array, logits: Array) -> dict[str, Calibration]:
    """Fit a map for each binary label of a model, by name, to the events that have it. Raises as :func:`fit`.

    ``labels``: [rows], or of several labels [rows, tasks] with NaN where there is none; ``logits``: [rows] or [rows, outputs].
    """
    if isinstance(head, Head):
        return {"": fit(kind, labels, logits)} if head.task == "binary" else {}
    known = ~np.isnan(labels)
    return {
        name: fit(kind, labels[known[:, t], t], head.logits_of(name, logits)[known[:, t]])
        for t, (name, one) in enumerate(head.each)
        if one.task == "binary"
    }


def calibrated(head: AnyHead, calibrations: Mapping[str, Calibration], logits: Array) -> Array:
    """Logits of a model with the maps of its labels applied, of the shape of ``logits``; float64 if there are any."""
    if not calibrations:
        return logits
    if isinstance(head, Head):
        return calibrations[""].apply(logits)
    found = np.array(logits, np.float64)
    for name, one in calibrations.items():
        columns = head.columns[name]
        found[:, columns] = one.apply(found[:, columns])
    return found


def pool_adjacent_violators(values: Array, weights: Array) -> tuple[Array, Array]:
    """The closest ascending sequence to ``values`` by weighted squares, as strictly ascending pools.

    Returns the mean of each pool, float64, and the position of its first value, int64 (Ayer et al., 1955).
    """
    means: list[float] = []
    totals: list[float] = []
    starts: list[int] = []
    for position, (value, weight) in enumerate(zip(values.tolist(), weights.tolist(), strict=True)):
        mean, total, start = value, weight, position
        while means and means[-1] >= mean:
            before = totals.pop()
            mean = (means.pop() * before + mean * total) / (before + total)
            total, start = total + before, starts.pop()
        means.append(mean)
        totals.append(total)
        starts.append(start)
    return np.array(means, np.float64), np.array(starts, np.int64)


def _platt(positive: Array, x: Array) -> tuple[float, float]:
    """Slope and intercept by Newton's method; a slope below the least one is that, with its own best intercept."""
    positives = int(positive.sum())
    high, low = (positives + 1) / (positives + 2), 1 / (len(x) - positives + 2)
    targets = np.where(positive, high, low)
    center, scale = float(x.mean()), float(x.std()) or 1.0
    z = (x - center) / scale
    rate = float(targets.mean())
    start = math.log(rate / (1 - rate))
    slope, offset = _newton(np.stack([z, np.ones_like(z)], axis=1), targets, np.array([0.0, start]), np.zeros_like(z))
    if slope / scale < _LEAST_SLOPE:
        slope = _LEAST_SLOPE * scale
        (offset,) = _newton(np.ones((len(z), 1)), targets, np.array([start]), slope * z)
    return float(slope / scale), float(offset - slope / scale * center)


def _newton(columns: Array, targets: Array, start: Array, offsets: Array) -> Array:
    """The coefficients of the least cross entropy, by damped Newton steps: the loss is convex and falls in each."""

    def loss(found: Array) -> float:
        logits = columns @ found + offsets
        return float(np.mean(np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))))

    found, now = start, loss(start)
    for _ in range(_MOST_STEPS):
        p = sigmoid(columns @ found + offsets)
        gradient = columns.T @ (p - targets) / len(targets)
        curvature = (columns * (p * (1 - p))[:, None]).T @ columns / len(targets) + 1e-12 * np.eye(len(found))
        step = np.linalg.solve(curvature, gradient)
        share = 1.0
        while share > 1e-10 and not loss(found - share * step) < now:
            share /= 2
        if share <= 1e-10:
            break
        found = found - share * step
        before, now = now, loss(found)
        if before - now < 1e-15:
            break
    return found


def _isotonic(positive: Array, x: Array, rarer: int) -> Calibration:
    """Pools of equal rate, each shrunk towards the overall rate by the weight of one event, so that no rate is 0 or 1."""
    logits, group = np.unique(x, return_inverse=True)
    counts = np.bincount(group).astype(np.float64)
    hits = np.bincount(group, weights=positive.astype(np.float64))
    _, starts = pool_adjacent_violators(hits / counts, counts)
    sums = np.stack([np.add.reduceat(one, starts) for one in (counts, hits, logits * counts)])
    sums = _fewer_pools(sums)
    rate = float(positive.mean())
    shrunk, firsts = pool_adjacent_violators((sums[1] + rate) / (sums[0] + 1), sums[0] + 1)
    totals = np.add.reduceat(sums, firsts, axis=1)
    points = _ascending(totals[2] / totals[0], np.log(shrunk) - np.log1p(-shrunk))
    below, above = _end_slopes(points)
    return Calibration("isotonic", len(x), rarer, points, below, above)


def _fewer_pools(sums: Array) -> Array:
    """At most :data:`MOST_POINTS` pools [events, positives, logits], each with :data:`_LEAST_OF_POOL` events of both labels.

    Neighbours are merged that cost the least likelihood; pools with too few events first, whose rates are noise.
    """
    while sums.shape[1] > 1:
        fewest = np.minimum(sums[1], sums[0] - sums[1])
        is_small = fewest < _LEAST_OF_POOL
        if sums.shape[1] <= MOST_POINTS and not is_small.any():
            break
        merged = sums[:, :-1] + sums[:, 1:]
        own = _likelihood(sums)
        costs = own[:-1] + own[1:] - _likelihood(merged)
        if is_small.any():
            costs = np.where(is_small[:-1] | is_small[1:], costs, np.inf)
        at = int(np.argmin(costs))
        sums = np.concatenate([sums[:, :at], merged[:, at : at + 1], sums[:, at + 2 :]], axis=1)
    return sums


def _likelihood(sums: Array) -> Array:
    """The log likelihood of each pool by its own rate."""
    events, hits = sums[0], sums[1]
    misses = events - hits
    return np.asarray(hits * np.log(np.maximum(hits, 1) / events) + misses * np.log(np.maximum(misses, 1) / events))


def _ascending(x: Array, y: Array) -> Points:
    """The points, without those that rounding leaves level with the one before."""
    points = [(float(x[0]), float(y[0]))]
    for one in zip(x[1:].tolist(), y[1:].tolist(), strict=True):
        if one[0] > points[-1][0] and one[1] > points[-1][1]:
            points.append(one)
    return tuple(points)


def _end_slopes(points: Points) -> tuple[float, float]:
    """The slopes outside the points: those of the first and the last line, at most 1, since no event tells more."""
    if len(points) == 1:
        return _LEAST_SLOPE, _LEAST_SLOPE
    ends = (points[:2], points[-2:])
    below, above = (min((b[1] - a[1]) / (b[0] - a[0]), 1.0) for a, b in ends)
    return below, above


def _pair(field: DocumentField) -> tuple[float, float]:
    items = field.items()
    if len(items) != 2:
        raise field.refused("a list of two numbers", value=f"a list of {len(items)}")
    return items[0].number(), items[1].number()
