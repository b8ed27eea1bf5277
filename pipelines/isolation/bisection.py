"""Find the components that make a process fail, by trials and bisection. Pure.

A failed attempt has candidates: the components that need the step that was running. They are tried without the others:

* If a candidate fails again, it is the culprit; the others are tried together.
* If no candidate fails, the cause was joint. Memory may add up, so the others are bisected.
* With no candidates, or if all components are candidates, the group is bisected.

A culprit fails alone in a new process. A process that ended within its limits may have been killed from outside, so
this must happen several times. If a step stalls again with its candidates alone, all of them are culprits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

#: ``defect``: an exception in Headrace itself; the process lives and gave no result.
ProcessFailureKind = Literal["memory", "stalled", "lost", "defect"]

#: How often the process of a group, and of one component, must end without a reason to count as a failure.
_LOST_TOGETHER, _LOST_ALONE = 2, 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One trial of some components together.

    Attributes:
        components: What is computed.
        fresh: Whether it needs a new process.
        lost: How often its process ended without a reason.
    """

    components: tuple[str, ...]
    fresh: bool = True
    lost: int = 0


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """How an attempt failed. ``candidates`` need the step that was running; empty if it is unknown."""

    kind: ProcessFailureKind
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Rest:
    """The components that wait for the trials of some candidates."""

    components: tuple[str, ...]
    candidates: tuple[str, ...]
    kind: ProcessFailureKind


@dataclass(frozen=True, slots=True)
class BisectionPlan:
    """The trials to make, the next one last, and the culprits found with their kind of failure."""

    steps: tuple[Attempt | _Rest, ...]
    culprits: Mapping[str, ProcessFailureKind] = field(default_factory=dict)

    @property
    def next_attempt(self) -> Attempt | None:
        """The next trial; None at the end."""
        if not self.steps:
            return None
        upcoming = self.steps[-1]
        assert isinstance(upcoming, Attempt), "the rest is resolved before the next attempt"
        return upcoming


def start_bisection(components: Sequence[str], known_culprits: Collection[str] = ()) -> BisectionPlan:
    """One trial of all components, then one of each known culprit."""
    trusted = tuple(one for one in components if one not in known_culprits)
    alone = [Attempt((one,)) for one in reversed(components) if one in known_culprits]
    return BisectionPlan((*alone, *([Attempt(trusted, fresh=False)] if trusted else [])))


def record_attempt(
    plan: BisectionPlan, done: Collection[str], failure: ProcessFailure | None, *, fresh: bool
) -> BisectionPlan:
    """The plan after its next attempt. Pure; every plan ends.

    Args:
        plan: The plan before.
        done: The components that have a result.
        failure: How the other components failed; None if all are done.
        fresh: Whether the process was new.
    """
    attempt = plan.next_attempt
    assert attempt is not None, "the plan has an attempt"
    left = tuple(one for one in attempt.components if one not in done)
    assert bool(left) == (failure is not None), "components without a result have a failure"
    plan = replace(plan, steps=plan.steps[:-1])
    if failure is not None:
        plan = _classify(plan, replace(attempt, components=left, fresh=fresh), failure)
    return _resolve(plan)


def _classify(plan: BisectionPlan, attempt: Attempt, failure: ProcessFailure) -> BisectionPlan:
    left = attempt.components
    candidates = tuple(one for one in left if one in failure.candidates)
    if failure.kind == "lost" and attempt.lost + 1 < (_LOST_ALONE if len(left) == 1 else _LOST_TOGETHER):
        return _push(plan, replace(attempt, fresh=True, lost=attempt.lost + 1))
    if not attempt.fresh and (len(left) == 1 or failure.kind == "memory"):
        return _push(plan, replace(attempt, fresh=True))
    if len(left) == 1:
        return replace(plan, culprits={**plan.culprits, left[0]: failure.kind})
    if candidates == left and failure.kind == "stalled" and attempt.fresh:
        return replace(plan, culprits={**plan.culprits, **dict.fromkeys(left, failure.kind)})
    if candidates == left and not attempt.fresh:
        return _push(plan, replace(attempt, fresh=True))
    if not candidates or candidates == left:
        return _push(plan, *_halve(left))
    others = tuple(one for one in left if one not in candidates)
    return _push(plan, _Rest(others, candidates, failure.kind), Attempt(candidates))


def _resolve(plan: BisectionPlan) -> BisectionPlan:
    """The plan with an attempt as its next step, if it has steps."""
    while plan.steps and isinstance(upcoming := plan.steps[-1], _Rest):
        plan = replace(plan, steps=plan.steps[:-1])
        add_up = upcoming.kind != "stalled" and not any(one in plan.culprits for one in upcoming.candidates)
        together = upcoming.components
        plan = _push(plan, *(_halve(together) if add_up and len(together) > 1 else [Attempt(together)]))
    return plan


def _halve(components: tuple[str, ...]) -> list[Attempt]:
    """Two attempts; the first half is tried first."""
    middle = len(components) // 2
    return [Attempt(components[middle:]), Attempt(components[:middle])]


def _push(plan: BisectionPlan, *attempts: Attempt | _Rest) -> BisectionPlan:
    return replace(plan, steps=(*plan.steps, *attempts))
