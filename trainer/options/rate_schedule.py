"""The training option ``learning_rate_schedule``: by what share of the learning rates a step trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from trainer.options.checks import check_known, refuse_option

#: How rates fall after the warm-up: not at all, or by a power of what is left, or along half a cosine.
DECAYS = ("none", "polynomial", "cosine")
_MOST_STEPS = 1 << 40


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """The share of the learning rates by optimizer step: a linear warm-up, then a decay. It stays at the last share afterwards.

    Attributes:
        warmup_steps: the first steps, of which step n of W (from 1 on) has n / W of the rates (Goyal et al., arXiv:1706.02677).
        decay: one of :data:`DECAYS`.
        decay_steps: the steps after the warm-up until the last share is reached; 0 without a decay.
        end_share: the last share, in (0, 1]. Optimizers divide by rates, so it is above 0.
        power: of a polynomial decay, 1 for a straight line; MLPerf's DLRM has 2.
    """

    warmup_steps: int = 0
    decay: str = "none"
    decay_steps: int = 0
    end_share: float = 0.01
    power: float = 1.0

    @classmethod
    def read(cls, document: object) -> RateSchedule:
        """The schedule of an object by name, or one that was read. Raises :class:`~trainer.errors.ConfigError`."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            _refuse("", document, "an object of options")
        check_known(
            document, [one.name for one in fields(cls)], where="learning_rate_schedule", of="learning_rate_schedule"
        )
        found = cls(**{name: _read_member(name, document[name]) for name in document})
        if (found.decay == "none") != (found.decay_steps == 0):
            _refuse("decay_steps", found.decay_steps, "above 0 with a decay, and left out without one")
        if found.decay == "none" and not found.warmup_steps:
            _refuse("warmup_steps", found.warmup_steps, "above 0 without a decay")
        return found

    def to_document(self) -> dict[str, Any]:
        """The options that differ from the defaults, as a JSON object."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    def share(self, step: int) -> float:
        """The share of the rates in ``step``, counted from 0 on over the whole run: in (0, 1]."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay == "none":
            return 1.0
        left = 1.0 - min((step - self.warmup_steps) / self.decay_steps, 1.0)
        shape = left**self.power if self.decay == "polynomial" else 0.5 * (1.0 - math.cos(math.pi * left))
        return self.end_share + (1.0 - self.end_share) * shape


def _read_member(name: str, value: Any) -> Any:
    if name in ("warmup_steps", "decay_steps"):
        if type(value) is not int or not 0 <= value <= _MOST_STEPS:
            _refuse(name, value, f"an integer in [0, {_MOST_STEPS:,}]")
        return value
    if name == "decay":
        if value not in DECAYS:
            _refuse(name, value, f"one of {', '.join(DECAYS)}")
        return value
    most = 1.0 if name == "end_share" else 16.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        _refuse(name, value, f"a number in (0, {most:g}]")
    return float(value)


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    where = f"learning_rate_schedule.{name}" if name else "learning_rate_schedule"
    refuse_option(where, value, allowed, "docs/training-inside.md")
