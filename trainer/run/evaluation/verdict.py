"""The verdict on a trained model: whether it is better than the base rate and than a linear model, and what is wrong. Pure.

It is about predictions of unseen events. Each finding that asks for an action names the next step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.model.idle_units import IdleUnits
from trainer.model.scores import AnyScores, Scores, TaskScores, TasksScores
from trainer.options.trial_record import TrialRow
from trainer.run.weights.run_state import EpochScores

#: Calibration outside of these limits is a finding.
LEAST_CALIBRATION, MOST_CALIBRATION = 0.8, 1.25
#: A label's rate has moved if it is another by this factor, and by so many standard errors.
_MOVED_FACTOR, _MOVED_ERRORS = 1.25, 4.0
#: Above this share of hidden units that are off, or of tables that did not move, training is at fault.
_MOST_IDLE = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a verdict.

    Attributes:
        kind: "base_rate", "linear", "calibration", "rate_moved", "one_class", "units_off" or "tables_unmoved".
        is_good: whether nothing is to be done.
        text: the sentence.
        next_step: what to do; empty if nothing is.
        label: the label of several that it is about; empty otherwise.
    """

    kind: str
    is_good: bool
    text: str
    next_step: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is about.

    Attributes:
        unseen: the figures of the newest predictions of unseen events; None if there are none.
        source: which events these are, such as "the test events".
        trained: the figures of the first pass over the trained events, for the rate of their label.
        trial: the trial that chose the options; empty without one.
        is_linear: whether the model has no network.
        idle: the hidden units that are off; None if they are not counted.
        tables, unmoved: the tables of the network, and those that never left the range of their first values, by name.
        calibration: the calibration step of the model.
    """

    unseen: AnyScores | None
    source: str
    trained: AnyScores | None = None
    trial: Sequence[TrialRow] = ()
    is_linear: bool = False
    idle: IdleUnits | None = None
    tables: int = 0
    unmoved: Sequence[str] = ()
    calibration: str = "none"


def verdict_of(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings, the most important ones first."""
    return (
        *_about_labels(evidence),
        *_against_linear(evidence),
        *_about_units(evidence.idle),
        *_about_tables(evidence),
    )


def first_pass_labels(history: Sequence[EpochScores]) -> AnyScores | None:
    """The counts of labels of the first pass of a run, as figures without metrics; None without binary labels."""
    first = [one.scores for one in history if not one.pass_number]
    tasks: dict[str, list[AnyScores]] = {}
    for scores in first:
        for name, one in (scores.tasks if isinstance(scores, TasksScores) else {"": scores}).items():
            tasks.setdefault(name, []).append(one)
    summed = {name: found for name, parts in tasks.items() if (found := _summed(parts)) is not None}
    if set(summed) <= {""}:
        return summed.get("")
    return TasksScores(sum(one.events for one in first), summed)


def _summed(parts: Sequence[AnyScores]) -> Scores | None:
    binary = [one for one in parts if isinstance(one, Scores)]
    if not binary:
        return None
    return Scores(sum(one.events for one in binary), sum(one.positives for one in binary), None, None, None)


def _about_labels(evidence: Evidence) -> Iterator[Finding]:
    unseen, trained = evidence.unseen, evidence.trained
    if isinstance(unseen, TasksScores):
        before = trained.tasks if isinstance(trained, TasksScores) else {}
        for name, one in unseen.tasks.items():
            yield from _about_label(one, before.get(name), evidence, name)
    elif unseen is not None:
        yield from _about_label(unseen, trained if isinstance(trained, TaskScores) else None, evidence, "")


def _about_label(scores: TaskScores, trained: TaskScores | None, evidence: Evidence, label: str) -> Iterator[Finding]:
    events = f"{scores.events:,} {evidence.source}"
    if not scores.events:
        return
    if isinstance(scores, Scores) and scores.positives in (0, scores.events):
        only = 1 if scores.positives else 0
        yield Finding("one_class", False, f"every label of the {events} is {only}: nothing can be said of the model",
                      "check the label's expression, or evaluate on a range with both labels", label)  # fmt: skip
        return
    if (ratio := scores.normalized_loss) is not None:
        yield _against_base(ratio, scores, events, label)
    if isinstance(scores, Scores):
        yield from _about_calibration(scores, events, evidence, label)
        if isinstance(trained, Scores):
            yield from _about_rate(scores, trained, evidence, label)


def _against_base(ratio: float, scores: TaskScores, events: str, label: str) -> Finding:
    error = scores.normalized_entropy_error if isinstance(scores, Scores) else None
    spread = "" if error is None else f" ± {error:.1%}"
    constant = "base rate" if isinstance(scores, Scores) else "best constant"
    if ratio < 1 - (error or 0.0):
        return Finding(
            "base_rate",
            True,
            f"better than the {constant} by {1 - ratio:.1%}{spread} of its loss, on {events}",
            label=label,
        )
    if ratio <= 1 + (error or 0.0):
        return Finding("base_rate", False, f"not clearly better than the {constant}: {1 - ratio:+.1%}{spread} of its loss, on {events}",
                       "train on more events, or look at the inputs: headrace model check", label)  # fmt: skip
    return Finding("base_rate", False, f"worse than the {constant} by {ratio - 1:.1%}{spread} of its loss, on {events}",
                   "leave network, rates and passes to the trial (no --config), or train on newer events", label)  # fmt: skip


def _about_calibration(scores: Scores, events: str, evidence: Evidence, label: str) -> Iterator[Finding]:
    found = scores.calibration
    if found is None or LEAST_CALIBRATION <= found <= MOST_CALIBRATION:
        return
    # The number of positives is about Poisson, and so is the ratio's relative error.
    if abs(math.log(max(found, 1e-9))) <= 2 / math.sqrt(max(scores.positives, 1)):
        return
    step = '"calibration": "platt" in --config' if evidence.calibration == "none" else "train on newer events"
    yield Finding("calibration", False, f"predicts {found:.2f} times the positive labels of the {events}", step, label)


def _about_rate(scores: Scores, trained: Scores, evidence: Evidence, label: str) -> Iterator[Finding]:
    if not trained.events:
        return
    before, now = trained.positives / trained.events, scores.positives / scores.events
    error = math.sqrt(before * (1 - before) * (1 / trained.events + 1 / scores.events))
    is_other = not before or not 1 / _MOVED_FACTOR <= now / before <= _MOVED_FACTOR
    if is_other and abs(now - before) > _MOVED_ERRORS * error:
        yield Finding("rate_moved", False, f"the label's rate is {now:.3%} on the {evidence.source}, and was {before:.3%} in training",
                      "train on newer events; what was learned is about another rate", label)  # fmt: skip


def _against_linear(evidence: Evidence) -> Iterator[Finding]:
    if evidence.is_linear or not evidence.trial:
        return
    chosen = [one for one in evidence.trial if one.is_chosen]
    linear = [one for one in evidence.trial if one.is_linear and not one.is_chosen]
    if not chosen or not linear:
        return
    best = min(linear, key=lambda one: (-one.slices, one.loss))
    text = f"than the best linear model by {best.behind:.1%} ± {best.behind_error:.1%} of the base rate's loss, on {best.events:,} events of the trial"
    if best.behind > best.behind_error:
        yield Finding("linear", True, f"better {text}")
    else:
        yield Finding("linear", False, f"not clearly better {text}", '"deep": false in --config is simpler and as good')


def _about_units(idle: IdleUnits | None) -> Iterator[Finding]:
    if idle is not None and idle.units and idle.off > _MOST_IDLE * idle.units:
        yield Finding("units_off", False, f"{idle.off} of {idle.units} hidden units were off for all events of the last {idle.steps:,} steps",
                      '"activation": "leaky_relu" in --config, or lower learning rates')  # fmt: skip


def _about_tables(evidence: Evidence) -> Iterator[Finding]:
    if evidence.tables and len(evidence.unmoved) > _MOST_IDLE * evidence.tables:
        names = ", ".join(evidence.unmoved[:5]) + (", …" if len(evidence.unmoved) > 5 else "")
        yield Finding("tables_unmoved", False, f"{len(evidence.unmoved)} of {evidence.tables} embedding tables never left the range of "
                      f"their first values: {names}", "a higher embedding_learning_rate, or more events")  # fmt: skip
