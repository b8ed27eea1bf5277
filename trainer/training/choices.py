"""Rules that choose training options by facts about the data, each with its reason. Pure.

Options that are not given are chosen once, at a run's first start, and are then options of the run like any other. Some
follow from the number of events. For the others a trial compares candidates, from the gentlest to the boldest: they train
on the older part of a sample and are validated on its newer part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.config import DenseScale

Array = np.ndarray[Any, np.dtype[Any]]
Options = Mapping[str, Any]

#: The most events of the sample, the newest of the range.
SAMPLE_EVENTS = 100_000
#: The newest share of the sample, on which candidates are validated.
VALIDATED_SHARE = 0.25

_STEPS_A_PASS = 128
_LEAST_BATCH, _MOST_BATCH = 64, 1024
_CHECKPOINTS_A_PASS = 20
_LEAST_EPOCH = 10_000
_TRIAL_EVENTS = 100_000
_MOST_PASSES = 4
#: The network is chosen only if none of these options is given, since they are about a certain one.
_OF_NETWORKS = ("deep", "network", "bottom_mlp", "top_mlp", "dropout", "cross_layers", "cross_rank", "cross_structure",
                "tower_modules")  # fmt: skip
#: The least events of the rarer label in the validated part; metrics of fewer are noise.
_LEAST_EVIDENCE = 3


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


@dataclass(frozen=True)
class Choices:
    """Options and, by name, the reason for each."""

    options: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Options of one candidate of a trial, and its name for reasons."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """A candidate's loss on each validated event (in nats, or squared deviations) after its best pass, float64."""

    candidate: Candidate
    passes: int
    losses: Array


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
    return choices


def batch_rows_of(events: int) -> int:
    """The largest power of two with enough steps per pass, within its bounds."""
    power = 1 << max(events // _STEPS_A_PASS, 1).bit_length() - 1
    return min(max(power, _LEAST_BATCH), _MOST_BATCH)


def events_per_epoch_of(events: int) -> int:
    """The events of an epoch."""
    return max(_LEAST_EPOCH, -(-events // _CHECKPOINTS_A_PASS))


def most_passes(facts: DataFacts) -> int:
    """The most passes of a trial: many for a small log, one for a large log."""
    return min(max(_TRIAL_EVENTS // max(facts.sampled, 1), 1), _MOST_PASSES)


def candidates_of(facts: DataFacts, given: Options) -> tuple[Candidate, ...]:
    """The candidates of a trial, from the gentlest to the boldest; options in ``given`` are the same in all of them."""
    drafts = (
        ("a cautious linear model", False, "dlrm", 0.01, 0.01, 0.001),
        ("a linear model", False, "dlrm", 0.05, 0.01, 0.003),
        ("linear part and cross layers", True, "dcn", 0.02, 0.01, 0.003),
        ("linear part and MLPs", True, "dlrm", 0.05, 0.01, 0.003),
        ("linear part and quick MLPs", True, "dlrm", 0.02, 0.01, 0.01),
        ("linear part and bold MLPs", True, "dlrm", 0.1, 0.03, 0.003),
        ("linear part, quick and bold MLPs", True, "dlrm", 0.05, 0.03, 0.01),
    )
    is_free = not any(option in given for option in _OF_NETWORKS)
    found: dict[str, Candidate] = {}
    for name, deep, network, linear_rate, embedding_rate, dense_rate in drafts:
        if network == "dcn" and not is_free and given.get("network") != "dcn":
            continue
        options = {
            "deep": deep,
            "linear": True,
            "network": network,
            "linear_learning_rate": linear_rate,
            "embedding_learning_rate": embedding_rate,
            "dense_learning_rate": dense_rate,
        }
        merged = {**options, **{key: given[key] for key in options if key in given}}
        effective = {key: value for key, value in merged.items() if _matters(key, merged)}
        if merged["deep"] or merged["linear"]:
            found.setdefault(repr(sorted(effective.items())), Candidate(name, effective))
    return tuple(found.values())


def _matters(option: str, options: Options) -> bool:
    """Whether an option has an effect, given the others."""
    if option == "linear_learning_rate":
        return bool(options["linear"])
    if option in ("embedding_learning_rate", "network"):
        return bool(options["deep"])
    return True


def untried(candidate: Candidate, given: Options) -> Choices:
    """The options of the only candidate."""
    options = {name: value for name, value in candidate.options.items() if name not in given}
    return Choices(options, dict.fromkeys(options, f"{candidate.name}: there is nothing to compare it with"))


def decide(facts: DataFacts, trials: Sequence[Trial], base_losses: Array, given: Options) -> Choices:
    """The candidate of the lowest loss, or the gentlest if none is clearly better than the rate alone.

    ``base_losses`` are those of the rate (the mean) on the same events. A candidate is clearly better if its mean loss is
    lower by more than the standard error of the difference (Breiman et al., 1984, the one-standard-error rule).
    """
    best = min(trials, key=lambda trial: float(trial.losses.mean()))
    gain, error = _mean_and_error(base_losses - best.losses)
    base = float(base_losses.mean()) or 1.0
    validated = len(base_losses)
    if gain <= error or _evidence(facts) < _LEAST_EVIDENCE:
        best = trials[0]
        reason = (f"no candidate of {len(trials)} is clearly better than the rate alone on the newest {validated:,} events "
                  f"of the sample (best: {gain / base:+.2%} ± {error / base:.2%}): {best.candidate.name}")  # fmt: skip
    else:
        reason = (f"{best.candidate.name}: on the newest {validated:,} events of the sample the loss is "
                  f"{1 - gain / base:.4f} of the rate's alone, the lowest of {len(trials)} candidates")  # fmt: skip
    choices = Choices()
    for name, value in best.candidate.options.items():
        if name not in given:
            choices.options[name] = value
            choices.reasons[name] = reason
    if "passes" not in given:
        choices.options["passes"] = best.passes
        limit = most_passes(facts)
        choices.reasons["passes"] = (
            f"a log of {facts.events:,} events is passed once" if limit == 1 else
            f"the validated loss is lowest after pass {best.passes} of at most {limit}"
        )  # fmt: skip
    return choices


def _evidence(facts: DataFacts) -> int:
    if facts.positives is None:
        return facts.sampled
    return int(min(facts.positives, facts.sampled - facts.positives) * VALIDATED_SHARE)


def _mean_and_error(differences: Array) -> tuple[float, float]:
    count = len(differences)
    if count < 2:
        return 0.0, math.inf
    return float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(count)
