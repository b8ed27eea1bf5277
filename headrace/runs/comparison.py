"""The differences between two runs: options, data, inputs and figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from headrace.runs.trained_run import TrainedRun
from trainer.model.scores import AnyScores, TasksScores

#: Options that say why others were chosen.
_REASONS: Final = frozenset({"chosen", "trial"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of both runs; None where one does not have it."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class InputDifference:
    """An input of the models.

    Attributes:
        name: of the input.
        change: "only in the first", "only in the second", "another expression" or "another type".
    """

    name: str
    change: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What differs between two runs.

    Attributes:
        options: those with other values; one that a run lacks has the value None there.
        data: the table, the label, the numbers of partitions, and how many of them both runs have, and have with the same content.
        inputs: those that differ.
        figures: of the newest events that the models had not seen, whether they differ or not.
        common_epochs: the finished epochs on the same partitions in the same pass, by number, with the figures of both.
    """

    options: tuple[Difference, ...]
    data: tuple[Difference, ...]
    inputs: tuple[InputDifference, ...]
    figures: tuple[Difference, ...]
    common_epochs: tuple[Difference, ...]


def compare(first: TrainedRun, second: TrainedRun) -> RunComparison:
    """The differences between two runs."""
    return RunComparison(
        _options(first, second), _data(first, second), _inputs(first, second), _figures(first, second), _epochs(first, second)
    )  # fmt: skip


def _options(first: TrainedRun, second: TrainedRun) -> tuple[Difference, ...]:
    names = sorted({*first.options, *second.options} - _REASONS)
    pairs = (Difference(name, first.options.get(name), second.options.get(name)) for name in names)
    return tuple(one for one in pairs if one.first != one.second)


def _data(first: TrainedRun, second: TrainedRun) -> tuple[Difference, ...]:
    pairs = [Difference(name, getattr(first.identity, name), getattr(second.identity, name)) for name in ("table", "label", "target")]  # fmt: skip
    ours, theirs = first.identity.partitions, second.identity.partitions
    ends = [(keys[0], keys[-1]) if keys else (None, None) for keys in (list(ours), list(theirs))]
    pairs += [Difference("first partition", ends[0][0], ends[1][0]),
              Difference("last partition", ends[0][1], ends[1][1]),
              Difference("partitions", len(ours), len(theirs))]  # fmt: skip
    other = [key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]]
    if other and not _inputs(first, second):  # with other inputs all content differs
        pairs.append(Difference("partitions with other content", len(other), 0))
    pairs.append(Difference("step", first.step, second.step))
    return tuple(one for one in pairs if one.first != one.second)


def _inputs(first: TrainedRun, second: TrainedRun) -> tuple[InputDifference, ...]:
    ours, theirs = ({one["name"]: one for one in run.identity.inputs} for run in (first, second))
    found = []
    for name in {**ours, **theirs}:
        if name not in theirs:
            found.append(InputDifference(name, "only in the first"))
        elif name not in ours:
            found.append(InputDifference(name, "only in the second"))
        elif ours[name]["fingerprint"] != theirs[name]["fingerprint"]:
            found.append(InputDifference(name, "another expression"))
        elif ours[name]["type"] != theirs[name]["type"]:
            found.append(InputDifference(name, "another type"))
    return tuple(found)


def _figures(first: TrainedRun, second: TrainedRun) -> tuple[Difference, ...]:
    ours, theirs = ({} if run.newest is None else figures_of(run.newest) for run in (first, second))
    return tuple(Difference(name, ours.get(name), theirs.get(name)) for name in {**ours, **theirs})


def _epochs(first: TrainedRun, second: TrainedRun) -> tuple[Difference, ...]:
    """The normalized losses of epochs on the same events."""
    of_second = {(one.partitions, one.pass_number): one for one in second.epochs}
    found = []
    for one in first.epochs:
        other = of_second.get((one.partitions, one.pass_number))
        if other is not None and one.scores.events == other.scores.events:
            found.append(Difference(f"epoch {one.epoch}", figures_of(one.scores), figures_of(other.scores)))
    return tuple(found)


def figures_of(scores: AnyScores) -> Mapping[str, float | int | None]:
    """The figures by name; with several labels ``label/figure``."""
    if isinstance(scores, TasksScores):
        return {f"{label}/{name}": value for label, one in scores.tasks.items() for name, value in figures_of(one).items()}  # fmt: skip
    return {one.name: getattr(scores, one.name) for one in fields(scores)}
