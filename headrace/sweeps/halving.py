"""Successive halving: all trials train a small part of the data, and the better ones go on (Jamieson, Talwalkar: "Non-stochastic best arm identification and
hyperparameter optimization", AISTATS 2016). Pure.

A trial that goes on continues its run with later partitions: nothing is trained twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.errors import InputError

_MOST_RUNGS = 20


@dataclass(frozen=True, slots=True)
class Rung:
    """A part of a sweep.

    Attributes:
        number: from 0.
        trials: so many go through it at most.
        partitions: so many of the first partitions are trained.
    """

    number: int
    trials: int
    partitions: int


def rungs_of(trials: int, partitions: int, rungs: int, factor: int) -> tuple[Rung, ...]:
    """The rungs: each has ``factor`` times the partitions of the one before, the last one all, and so many times fewer trials.

    Rungs that would have the partitions of the next one are left out. Raises :class:`InputError`.
    """
    if not 1 <= rungs <= _MOST_RUNGS or factor < 2:
        raise InputError("a sweep must have rungs, and fewer trials from one to the next", where="--rungs, --factor", value=f"{rungs}, {factor}",
                         allowed=f"1 to {_MOST_RUNGS} rungs, a factor of 2 or more")  # fmt: skip
    if partitions < 1 or trials < 1:
        raise InputError("a sweep must have trials and partitions", value=f"{trials} trials, {partitions} partitions")
    found: list[Rung] = []
    for number in range(rungs):
        part = max(1, round(partitions / factor ** (rungs - 1 - number)))
        if not found or part > found[-1].partitions:
            found.append(Rung(len(found), max(1, math.ceil(trials / factor ** len(found))), part))
    return tuple(found)


def survivors(scores: Mapping[int, float | None], count: int) -> tuple[int, ...]:
    """The trials that go on, by number: the ``count`` of the least scores; of equal ones the first. A trial without a score does not."""
    known = [(score, trial) for trial, score in scores.items() if score is not None and not math.isnan(score)]
    return tuple(sorted(trial for _, trial in sorted(known)[:count]))


def best_of(rungs: Sequence[Mapping[int, float | None]]) -> int | None:
    """The trial of the least score in the last rung that has any; None without."""
    for scores in reversed(rungs):
        if found := survivors(scores, 1):
            return found[0]
    return None
