"""The values that a sweep tries for each training option, and the trials that it draws of them. Pure."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.errors import InputError

#: A range whose ends differ by at least this factor is drawn on a logarithmic scale.
_LOG_FACTOR = 10.0
_MOST_VALUES = 1000
#: Rounds of draws until there are enough different trials.
_MOST_DRAWS = 20
_RANGE = re.compile(r"([^.,]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\.\.(.+)")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

Trial = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Some values of an option."""

    name: str
    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at a share in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from ``least`` to ``most`` of an option; whole numbers if both are."""

    name: str
    least: float
    most: float

    def at(self, share: float) -> float:
        """The number at a share in [0, 1) of the range, on a logarithmic scale if its ends are positive and differ by ten times or more."""
        if self.least > 0 and self.most / self.least >= _LOG_FACTOR:
            found = self.least * math.pow(self.most / self.least, share)
        else:
            found = self.least + (self.most - self.least) * share
        if isinstance(self.least, int) and isinstance(self.most, int):
            return min(max(round(found), self.least), self.most)
        return min(max(float(f"{found:.4g}"), self.least), self.most)


def parse_option(text: str) -> Choice | Range:
    """``batch_rows=64,256,1024`` as values, ``dense_learning_rate=1e-4..1e-2`` as a range. Values are JSON, or else text. Raises :class:`InputError`."""
    name, separator, values = text.partition("=")
    if not separator or not _NAME.fullmatch(name) or not values:
        raise InputError("an option of a sweep must be NAME=VALUE,VALUE or NAME=LEAST..MOST", where="--option", value=text[:200],
                         allowed="batch_rows=64,256 or dense_learning_rate=1e-4..1e-2")  # fmt: skip
    found = _RANGE.fullmatch(values)
    if found is not None:
        return _range(name, found[1], found[2], text)
    each = tuple(_value(one) for one in _parts(values))
    if len(each) > _MOST_VALUES or len({json.dumps(one, sort_keys=True) for one in each}) < len(each):
        raise InputError(
            "the values of an option must be different, and at most 1,000", where=f"--option {name}", value=text[:200]
        )
    return Choice(name, each)


def trials_of(space: Sequence[Choice | Range], count: int, seed: int) -> tuple[Trial, ...]:
    """At most ``count`` different trials: all combinations if these are no more, else ones that are drawn from ``seed``.

    Drawn trials are a Latin hypercube: each option's values, or parts of its range, occur equally often.
    """
    if all(isinstance(one, Choice) for one in space):
        choices = [one for one in space if isinstance(one, Choice)]
        if math.prod(len(one.values) for one in choices) <= count:
            names = [one.name for one in choices]
            return tuple(
                dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in choices))
            )
    source, found = random.Random(seed), dict[str, Trial]()
    for _ in range(_MOST_DRAWS):
        shares = [_spread(count, source) for _ in space]
        for place in range(count):
            trial = {one.name: one.at(share[place]) for one, share in zip(space, shares, strict=True)}
            found.setdefault(json.dumps(trial, sort_keys=True), trial)
        if len(found) >= count:
            break
    return tuple(found.values())[:count]


def _spread(count: int, source: random.Random) -> list[float]:
    """One number in each of ``count`` equal parts of [0, 1), in random order."""
    found = [(place + source.random()) / count for place in range(count)]
    source.shuffle(found)
    return found


def check_space(space: Sequence[Choice | Range]) -> None:
    """Raise :class:`InputError` for no option, and for one that is named twice."""
    names = [one.name for one in space]
    if not names:
        raise InputError(
            "a sweep must vary an option", where="--option", next_step="--option dense_learning_rate=1e-4..1e-2"
        )
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise InputError("an option must be named once", where="--option", value=", ".join(twice))


def _range(name: str, least: str, most: str, text: str) -> Range:
    ends = [_value(one) for one in (least, most)]
    if (
        not all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in ends)
        or not ends[0] < ends[1]
    ):
        raise InputError(
            "a range must be two numbers in order",
            where=f"--option {name}",
            value=text[:200],
            allowed="such as 1e-4..1e-2",
        )
    return Range(name, ends[0], ends[1])


def _parts(values: str) -> list[str]:
    """The values between commas that are not inside brackets or quotes."""
    if values[:1] in "[{":
        return [values]
    return values.split(",")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
