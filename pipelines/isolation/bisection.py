"""Who is at fault when a process dies that computed several components: which to try next, as a pure function.

A death names suspects, the components that need the step that was running. They are tried by themselves:

* If one is found guilty, the others are tried together again: it was that one.
* If they are all innocent, the death came of all of them together. Memory may add up: the others are split in halves.
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
DeathKind = Literal["memory", "stalled", "lost", "defect"]

#: How often a group, and one component, may vanish without a reason before that means something.
_LOST_TOGETHER, _LOST_ALONE = 2, 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """Compute these together, ``fresh`` in a process that did nothing before. ``lost``: how often they vanished so far."""

    components: tuple[str, ...]
    fresh: bool = True
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Death:
    """How an attempt ended. ``suspects``: those that need the step that was running; empty if that is not known."""

    kind: DeathKind
    suspects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Others:
    """What was beside some suspects; what becomes of it depends on them."""

    components: tuple[str, ...]
    suspects: tuple[str, ...]
    kind: DeathKind


@dataclass(frozen=True, slots=True)
class Course:
    """What is to be tried, the next last, and who was found guilty of what."""

    ahead: tuple[Attempt | _Others, ...]
    guilty: Mapping[str, DeathKind] = field(default_factory=dict)

    @property
    def attempt(self) -> Attempt | None:
        """What to try now; None if everything is known."""
        if not self.ahead:
            return None
        upcoming = self.ahead[-1]
        assert isinstance(upcoming, Attempt), "what stands beside suspects is decided on when they are"
        return upcoming


def begun(components: Sequence[str], notorious: Collection[str] = ()) -> Course:
    """All together; but those that were found guilty elsewhere each by itself, after the others."""
    trusted = tuple(one for one in components if one not in notorious)
    alone = [Attempt((one,)) for one in reversed(components) if one in notorious]
    return Course((*alone, *([Attempt(trusted, fresh=False)] if trusted else [])))


def after(course: Course, done: Collection[str], death: Death | None, *, fresh: bool) -> Course:
    """The course after its attempt: ``done`` have a result, and the others died (or nobody, and all are done).

    ``fresh``: whether the process did nothing before. Pure; every course comes to an end.
    """
    attempt = course.attempt
    assert attempt is not None, "nothing was to be tried"
    left = tuple(one for one in attempt.components if one not in done)
    assert bool(left) == (death is not None), "whoever is not done died"
    course = replace(course, ahead=course.ahead[:-1])
    if death is not None:
        course = _judged(course, replace(attempt, components=left, fresh=fresh), death)
    return _resolved(course)


def _judged(course: Course, attempt: Attempt, death: Death) -> Course:
    left = attempt.components
    suspects = tuple(one for one in left if one in death.suspects)
    if death.kind == "lost" and attempt.lost + 1 < (_LOST_ALONE if len(left) == 1 else _LOST_TOGETHER):
        return _with(course, replace(attempt, fresh=True, lost=attempt.lost + 1))
    if not attempt.fresh and (len(left) == 1 or death.kind == "memory"):
        return _with(course, replace(attempt, fresh=True))
    if len(left) == 1:
        return replace(course, guilty={**course.guilty, left[0]: death.kind})
    if suspects == left and death.kind == "stalled" and attempt.fresh:
        return replace(course, guilty={**course.guilty, **dict.fromkeys(left, death.kind)})
    if suspects == left and not attempt.fresh:
        return _with(course, replace(attempt, fresh=True))
    if not suspects or suspects == left:
        return _with(course, *_halves(left))
    others = tuple(one for one in left if one not in suspects)
    return _with(course, _Others(others, suspects, death.kind), Attempt(suspects))


def _resolved(course: Course) -> Course:
    """With what is ahead an attempt, if anything is."""
    while course.ahead and isinstance(upcoming := course.ahead[-1], _Others):
        course = replace(course, ahead=course.ahead[:-1])
        add_up = upcoming.kind != "stalled" and not any(one in course.guilty for one in upcoming.suspects)
        together = upcoming.components
        course = _with(course, *(_halves(together) if add_up and len(together) > 1 else [Attempt(together)]))
    return course


def _halves(components: tuple[str, ...]) -> list[Attempt]:
    """The first half to be tried first."""
    middle = len(components) // 2
    return [Attempt(components[middle:]), Attempt(components[:middle])]


def _with(course: Course, *attempts: Attempt | _Others) -> Course:
    return replace(course, ahead=(*course.ahead, *attempts))
