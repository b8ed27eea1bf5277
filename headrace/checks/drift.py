"""Compares an input's values in two ranges of time, and with what is expected of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.checks.id_sketch import new_share
from headrace.terminal.units import percent_text

if TYPE_CHECKING:
    from headrace.checks.column_sketch import ColumnSketch
    from headrace.checks.number_sketch import NumberSketch
    from transforms.analysis.expectation import Expect

#: The parts of equal size into which the numbers of the range before are divided for the population stability index.
_PARTS = 10
#: A difference counts if no equal ranges differ by as much in about 1,000 comparisons: in standard errors, and for the Kolmogorov-Smirnov distance.
_ERRORS = 3.0
_KS_FACTOR = 1.95


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of all inputs, where a model's author expects no others.

    Attributes:
        psi: the greatest population stability index; 0.2 and more is commonly a change that needs a look.
        ks: the greatest Kolmogorov-Smirnov distance.
        empty_change: the greatest change of the share of empty events.
    """

    psi: float = 0.2
    ks: float = 0.1
    empty_change: float = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure above its limit. ``is_expected``: the limit is of the model's author."""

    figure: str
    value: float
    limit: float
    text: str
    is_expected: bool = False


@dataclass(frozen=True, slots=True)
class Drift:
    """An input in two ranges.

    Attributes:
        psi: the population stability index of its numbers, else of its ids; None without values in one of the ranges.
        ks: the greatest Kolmogorov-Smirnov distance of its numbers and its lengths; None without.
        new_share: the share of values whose id the range before does not have; None without ids.
        new_share_error: its standard error.
        findings: what is above its limit.
    """

    before: ColumnSketch
    now: ColumnSketch
    psi: float | None
    ks: float | None
    new_share: float | None
    new_share_error: float
    findings: tuple[Finding, ...]


def drift_of(
    before: ColumnSketch, now: ColumnSketch, expect: Expect | None = None, limits: Limits | None = None
) -> Drift:
    """Compare two ranges of an input. A figure is a finding if it is above its limit and no chance explains it."""
    limits = limits or Limits()
    psi, psi_noise = _psi(before, now)
    ks, ks_noise = _ks(before, now)
    new = None if before.ids is None or now.ids is None else new_share(before.ids, now.ids)
    share, error = (None, 0.0) if new is None else new
    findings = [
        *_empty_findings(before, now, expect, limits),
        *_above(
            "psi", "population stability index", psi, psi_noise, limits.psi, None if expect is None else expect.psi
        ),
        *_above("ks", "Kolmogorov-Smirnov distance", ks, ks_noise, limits.ks, None if expect is None else expect.ks),
        *_new_findings(share, error, expect),
        *_value_findings(now.numbers, expect),
    ]
    return Drift(before, now, psi, ks, share, error, tuple(findings))


def stability_index(before: Sequence[float], now: Sequence[float]) -> tuple[float, float]:
    """The population stability index of counts by class, without what chance adds to it; and what chance adds at most.

    With few values the index of equal distributions is about (classes - 1)(1/n + 1/m), with a standard deviation of √(2 (classes - 1)) times the second
    factor: the first is taken off, and the second says how much is noise.
    """
    old, new = np.asarray(before, np.float64), np.asarray(now, np.float64)
    used = (old + new) > 0
    old, new = old[used], new[used]
    classes = len(old)
    p, q = ((one + 0.5) / (one.sum() + 0.5 * classes) for one in (old, new))
    index = float(np.sum((q - p) * np.log(q / p)))
    scale = 1 / old.sum() + 1 / new.sum()
    return max(index - float((classes - 1) * scale), 0.0), _ERRORS * math.sqrt(2 * (classes - 1)) * float(scale)


def distance(before: NumberSketch, now: NumberSketch) -> tuple[float, float]:
    """The Kolmogorov-Smirnov distance at the ends of bins, and what chance reaches."""
    places = np.unique(np.concatenate([np.asarray(before.bins, np.int64), np.asarray(now.bins, np.int64)]))
    upto = [np.cumsum(_counts_at(one, places)) for one in (before, now)]
    found = float(np.max(np.abs(upto[0] / upto[0][-1] - upto[1] / upto[1][-1])))
    return found, chance_distance(before.values, now.values)


def chance_distance(before: int, now: int) -> float:
    """The Kolmogorov-Smirnov distance that chance reaches between so many values: a smaller change cannot be seen. Both are above 0."""
    return _KS_FACTOR * math.sqrt(1 / before + 1 / now)


def _psi(before: ColumnSketch, now: ColumnSketch) -> tuple[float | None, float]:
    old, new = before.numbers, now.numbers
    if old is not None and new is not None and old.values and new.values:
        places = np.unique(np.concatenate([np.asarray(old.bins, np.int64), np.asarray(new.bins, np.int64)]))
        counts = [_counts_at(one, places) for one in (old, new)]
        middle = (np.cumsum(counts[0]) - counts[0] / 2) / counts[0].sum()
        part = np.minimum((middle * _PARTS).astype(np.int64), _PARTS - 1)
        return stability_index(*(np.bincount(part, one, _PARTS).tolist() for one in counts))
    if before.ids is not None and now.ids is not None and before.ids.values and now.ids.values:
        return stability_index(before.ids.classes, now.ids.classes)
    return None, 0.0


def _ks(before: ColumnSketch, now: ColumnSketch) -> tuple[float | None, float]:
    found = [
        distance(old, new)
        for old, new in ((before.numbers, now.numbers), (before.lengths, now.lengths))
        if old is not None and new is not None and old.values and new.values
    ]
    return max(found, default=(None, 0.0))


def _counts_at(sketch: NumberSketch, places: np.ndarray) -> np.ndarray:
    counts = np.zeros(len(places))
    counts[np.searchsorted(places, sketch.bins)] = sketch.counts
    return counts


def _above(
    figure: str, name: str, value: float | None, noise: float, common: float, expected: float | None
) -> list[Finding]:
    limit = common if expected is None else expected
    if value is None or value <= max(limit, noise):
        return []
    return [Finding(figure, value, limit, f"{name} {value:.3g} is above {limit:g}", expected is not None)]


def _empty_findings(before: ColumnSketch, now: ColumnSketch, expect: Expect | None, limits: Limits) -> list[Finding]:
    old, new = before.empty_share, now.empty_share
    if new is None:
        return []
    if expect is not None and expect.empty_share is not None:
        limit = expect.empty_share
        return (
            [
                Finding(
                    "empty_share",
                    new,
                    limit,
                    f"{percent_text(new)} of events are empty, above {percent_text(limit)}",
                    True,
                )
            ]
            if new > limit
            else []
        )
    if old is None:
        return []
    pooled = (before.empty + now.empty) / (before.rows + now.rows)
    noise = _ERRORS * math.sqrt(pooled * (1 - pooled) * (1 / before.rows + 1 / now.rows))
    if abs(new - old) <= max(limits.empty_change, noise):
        return []
    return [Finding("empty_share", new, old, f"{percent_text(new)} of events are empty, {percent_text(old)} before")]


def _new_findings(share: float | None, error: float, expect: Expect | None) -> list[Finding]:
    if share is None or expect is None or expect.new_share is None or share - _ERRORS * error <= expect.new_share:
        return []
    limit = expect.new_share
    return [
        Finding(
            "new_share",
            share,
            limit,
            f"{percent_text(share)} of values have ids that the range before does not have, above {percent_text(limit)}",
            True,
        )
    ]


def _value_findings(numbers: NumberSketch | None, expect: Expect | None) -> list[Finding]:
    if expect is None or expect.values is None:
        return []
    if numbers is None:
        return [Finding("values", 0.0, 0.0, "values are expected to be numbers, and are ids or text", True)]
    found = []
    if numbers.not_finite:
        found.append(
            Finding(
                "values", float(numbers.not_finite), 0.0, f"{numbers.not_finite:,} values are NaN or infinite", True
            )
        )
    if numbers.values and numbers.least < expect.values.least:
        found.append(
            Finding(
                "values",
                numbers.least,
                expect.values.least,
                f"the least value is {numbers.least:g}, expected {expect.values}",
                True,
            )
        )
    if numbers.values and numbers.most > expect.values.most:
        found.append(
            Finding(
                "values",
                numbers.most,
                expect.values.most,
                f"the greatest value is {numbers.most:g}, expected {expect.values}",
                True,
            )
        )
    return found
