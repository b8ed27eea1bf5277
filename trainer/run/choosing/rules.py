"""Rules that choose training options by facts about the data, each with its reason. Pure.

Options that are not given are chosen once, at a run's first start, and are then options of the run like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.options.config import DenseScale

Options = Mapping[str, Any]

_STEPS_A_PASS = 128
_LEAST_BATCH, _MOST_BATCH = 64, 1024
_CHECKPOINTS_A_PASS = 20
_LEAST_EPOCH = 10_000


@dataclass(frozen=True, slots=True)
class DataFacts:
    """The facts that the choices depend on.

    Attributes:
        events: events of the whole range.
        sampled: labelled events of the sample.
        positives: events of the sample with label 1; None unless the label is binary.
        scaling: the scales of the dense inputs, from the sample.
        embedded: whether any input is embedded.
        rates: of each binary label of several, the events of the sample with label 1, and with a label.
    """

    events: int
    sampled: int
    positives: int | None
    scaling: Mapping[str, tuple[DenseScale, ...]]
    embedded: bool
    rates: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def rarer(self) -> int:
        """The events of the sample with the rarer label; all of them if the label is not binary."""
        return self.sampled if self.positives is None else min(self.positives, self.sampled - self.positives)


@dataclass(frozen=True)
class Choices:
    """Options and, by name, the reason for each."""

    options: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def chosen_by_rule(facts: DataFacts, given: Options) -> Choices:
    """The options that follow from the facts alone, without those in ``given``."""
    choices = Choices()

    def choose(name: str, value: Any, reason: str) -> None:
        if name not in given:
            choices.options[name] = value
            choices.reasons[name] = reason

    rows = batch_rows_of(facts.events)
    choose("batch_rows", rows, f"{_STEPS_A_PASS} steps a pass or more over {facts.events:,} events, "
           f"from {_LEAST_BATCH} to {_MOST_BATCH}")  # fmt: skip
    if facts.positives is not None:
        rate = (facts.positives + 0.5) / (facts.sampled + 1)
        choose("initial_bias", round(math.log(rate / (1 - rate)), 6), f"the log odds of the label's mean, {rate:.4g}")
    if facts.rates:
        means = {name: (positives + 0.5) / (events + 1) for name, (positives, events) in facts.rates.items()}
        choose("initial_biases", {name: round(math.log(mean / (1 - mean)), 6) for name, mean in means.items()},
               "the log odds of each label's mean, " + ", ".join(f"{name} {mean:.4g}" for name, mean in means.items()))  # fmt: skip
    if facts.scaling:
        logs = sum(kind == "log" for scales in facts.scaling.values() for kind, _, _ in scales)
        numbers = sum(map(len, facts.scaling.values()))
        choose("dense_scaling", dict(facts.scaling),
               f"{numbers} numbers standardised, {logs} of them after a logarithm since they are skewed")  # fmt: skip
    if "partitions_per_epoch" not in given:
        choose("events_per_epoch", events_per_epoch_of(facts.events),
               f"at most {_CHECKPOINTS_A_PASS} checkpoints a pass, none for fewer than {_LEAST_EPOCH:,} events")  # fmt: skip
    if given.get("deep", True):
        choose("activation", "leaky_relu", "every hidden unit has a gradient for every event, so that none stays off")
        if not facts.scaling:
            choose("dense_bias", True, "no input is a number: a DLRM has a trained vector in the place of numbers")
    return choices


def batch_rows_of(events: int) -> int:
    """The largest power of two with enough steps per pass, within its bounds."""
    power = 1 << max(events // _STEPS_A_PASS, 1).bit_length() - 1
    return min(max(power, _LEAST_BATCH), _MOST_BATCH)


def events_per_epoch_of(events: int) -> int:
    """The events of an epoch."""
    return max(_LEAST_EPOCH, -(-events // _CHECKPOINTS_A_PASS))
