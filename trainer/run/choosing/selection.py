"""The selection among the candidates of a trial by their losses on slices of time. Pure.

Each slice is validated by models that are trained on the events before it. Differences between candidates are paired by event. Their
error is the larger of two standard errors: over events, and over the means of slices, so that a gain on one slice that is lost on the
next is none. Of the simplest family that has candidates within one such error of the best, the best one is taken (Breiman et al., 1984,
the one-standard-error rule, for families: a slower rate is not simpler).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.run.choosing.candidates import Candidate
from transforms.arrays import Array

#: The least events of the rarer label in the validated slices; metrics of fewer are noise.
LEAST_EVIDENCE = 3
#: A candidate that is behind the best by so many errors, and by this share of the base rate's loss, is not tried on further slices.
_HOPELESS_ERRORS, _HOPELESS_SHARE = 3.0, 0.01


@dataclass(frozen=True, eq=False)
class Trial:
    """The losses of a candidate.

    Attributes:
        losses: of each validated slice, after each pass, the loss of each event (nats, or squared deviations), float64.
        logits: likewise, the predictions.
    """

    candidate: Candidate
    losses: tuple[tuple[Array, ...], ...]
    logits: tuple[tuple[Array, ...], ...] = ()

    @property
    def slices(self) -> int:
        """The number of validated slices."""
        return len(self.losses)

    @property
    def passes(self) -> int:
        """The number of passes with the lowest loss over all slices."""
        most = min(map(len, self.losses))
        means = [float(np.concatenate([one[p] for one in self.losses]).mean()) for p in range(most)]
        return 1 + int(np.argmin(means))

    @property
    def best(self) -> tuple[Array, ...]:
        """The losses of each slice after :attr:`passes`."""
        return tuple(one[self.passes - 1] for one in self.losses)

    @property
    def mean(self) -> float:
        """The mean of :attr:`best` over all events."""
        return float(np.concatenate(self.best).mean())


@dataclass(frozen=True, slots=True)
class Difference:
    """How much lower the losses of one side are than those of another on the same events, with its standard error."""

    gain: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain is larger than its error."""
        return self.gain > self.error


def difference(worse: Sequence[Array], better: Sequence[Array]) -> Difference:
    """The paired difference of the losses of two sides, slice by slice."""
    parts = [a - b for a, b in zip(worse, better, strict=True)]
    whole = np.concatenate(parts)
    if len(whole) < 2:
        return Difference(0.0, math.inf)
    by_event = float(whole.std(ddof=1)) / math.sqrt(len(whole))
    means = np.array([part.mean() for part in parts if len(part)])
    by_slice = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return Difference(float(whole.mean()), max(by_event, by_slice))


def still_possible(trials: Sequence[Trial], base: Sequence[Array]) -> list[Trial]:
    """The trials, in order, that may still win: the first one, and those that are not far behind the best."""
    best = min(trials, key=lambda one: one.mean)
    least = _HOPELESS_SHARE * float(np.concatenate(base).mean())
    kept = []
    for k, one in enumerate(trials):
        behind = difference(one.best, best.best)
        if k == 0 or behind.gain <= max(_HOPELESS_ERRORS * behind.error, least):
            kept.append(one)
    return kept


def simplest_of(trials: Sequence[Trial]) -> Trial:
    """The best trial of the first family with one within one error of the lowest losses; ``trials`` are in the order of simplicity."""
    best = min(trials, key=lambda one: one.mean)
    near = [one for one in trials if one is best or not difference(one.best, best.best).is_clear]
    return min((one for one in near if one.candidate.family == near[0].candidate.family), key=lambda one: one.mean)


def is_better_than_base(trial: Trial, base: Sequence[Array], rarer: float) -> bool:
    """Whether a trial is clearly better than the base rate; ``rarer``: the validated events of the rarer label."""
    return rarer >= LEAST_EVIDENCE and difference(base, trial.best).is_clear


def gentle_of(trials: Sequence[Trial], base: Sequence[Array]) -> Trial:
    """The trial that is taken where none is clearly better than the base rate: of a linear model, else the first one.

    It is the best linear model, if its loss is below the base rate's.
    """
    linear = [one for one in trials if one.candidate.is_linear]
    if not linear:
        return trials[0]
    found = min(linear, key=lambda one: one.mean)
    return found if difference(base, found.best).gain > 0 else trials[0]
