"""Who is at fault when a process dies that computed several components: which to try next, as a pure function.

A failure names candidates, the components that need the step that was running. They are tried by themselves:

* If one is found culprits, the others are tried together again: it was that one.
* If they are all innocent, the failure came of all of them together. Memory may add up: the others are split in halves.
* Where nobody is suspected, or everybody, the group is split in halves.

Guilty is who dies alone, in a process that did nothing before. A process that vanished without passing a limit may have
been killed from outside, so this has to happen more than once. A step that stalls twice, the second time among
nobody but those that need it, is the fault of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

#: ``defect``: an exception nobody expected, outside of any component; the process lives, and gave no result.
ProcessFailureKind = Literal["memory", "stalled", "lost", "defect"]

#: How often a group, and one component, may vanish without a reason before that means something.
_LOST_TOGETHER, _LOST_ALONE = 2, 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """Compute these together, ``fresh`` in a process that did nothing before. ``lost``: how often they vanished so far."""

    components: tuple[str, ...]
    fresh: bool = True
    lost: int = 0


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """How an attempt ended. ``candidates``: those that need the step that was running; empty if that is not known."""

    kind: ProcessFailureKind
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Rest:
    """What was beside some candidates; what becomes of it depends on them."""

    components: tuple[str, ...]
    candidates: tuple[str, ...]
    kind: ProcessFailureKind


@dataclass(frozen=True, slots=True)
class BisectionPlan:
    """What is to be tried, the next last, and who was found culprits of what."""

    steps: tuple[Attempt | _Rest, ...]
    culprits: Mapping[str, ProcessFailureKind] = field(default_factory=dict)

    @property
    def next_attempt(self) -> Attempt | None:
        """What to try now; None if everything is known."""
        if not self.steps:
            return None
        upcoming = self.steps[-1]
        assert isinstance(upcoming, Attempt), "what stands beside candidates is decided on when they are"
        return upcoming


def start_bisection(components: Sequence[str], known_culprits: Collection[str] = ()) -> BisectionPlan:
    """All together; but those that were found culprits elsewhere each by itself, after the others."""
    trusted = tuple(one for one in components if one not in known_culprits)
    alone = [Attempt((one,)) for one in reversed(components) if one in known_culprits]
    return BisectionPlan((*alone, *([Attempt(trusted, fresh=False)] if trusted else [])))


def record_attempt(
    plan: BisectionPlan, done: Collection[str], failure: ProcessFailure | None, *, fresh: bool
) -> BisectionPlan:
    """The plan after its attempt: ``done`` have a result, and the others died (or nobody, and all are done).

    ``fresh``: whether the process did nothing before. Pure; every plan comes to an end.
    """
    attempt = plan.next_attempt
    assert attempt is not None, "nothing was to be tried"
    left = tuple(one for one in attempt.components if one not in done)
    assert bool(left) == (failure is not None), "whoever is not done died"
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
    """With what is steps an attempt, if anything is."""
    while plan.steps and isinstance(upcoming := plan.steps[-1], _Rest):
        plan = replace(plan, steps=plan.steps[:-1])
        add_up = upcoming.kind != "stalled" and not any(one in plan.culprits for one in upcoming.candidates)
        together = upcoming.components
        plan = _push(plan, *(_halve(together) if add_up and len(together) > 1 else [Attempt(together)]))
    return plan


def _halve(components: tuple[str, ...]) -> list[Attempt]:
    """The first half to be tried first."""
    middle = len(components) // 2
    return [Attempt(components[middle:]), Attempt(components[:middle])]


def _push(plan: BisectionPlan, *attempts: Attempt | _Rest) -> BisectionPlan:
    return replace(plan, steps=(*plan.steps, *attempts))
