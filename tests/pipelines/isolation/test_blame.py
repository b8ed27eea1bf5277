"""Who is at fault: worlds in which everything is known, and what the course of attempts makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pipelines.isolation.blame import Attempt, Course, Death, DeathKind, after, begun

LIMIT = 100


@dataclass
class World:
    """Components that run one after another: ``culprits`` die at their own step, and what the others hold adds up.

    ``steps``: the step that a culprit dies in; those with the same one share it. ``kills``: the attempts, by number,
    that somebody kills from outside. ``names_suspects``: whether a death says which step was running.
    """

    components: tuple[str, ...]
    culprits: Mapping[str, DeathKind] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    kills: frozenset[int] = frozenset()
    names_suspects: bool = True
    leak: int = 0

    def run(self, attempt: Attempt, number: int, fresh: bool) -> Death | None:
        if number in self.kills:
            return self._death("lost", attempt, attempt.components[number % len(attempt.components)])
        held = 0 if fresh else self.leak
        for one in attempt.components:
            held += self.sizes.get(one, 0)
            if one in self.culprits:
                return self._death(self.culprits[one], attempt, one)
            if held > LIMIT:
                return self._death("memory", attempt, one)
        return None

    def _death(self, kind: DeathKind, attempt: Attempt, at: str) -> Death:
        if not self.names_suspects:
            return Death(kind)
        step = self.steps.get(at, at)
        return Death(kind, frozenset(one for one in attempt.components if self.steps.get(one, one) == step))


@dataclass
class Story:
    """What came of a course: who has a result in which group, who is guilty, and how many attempts it took."""

    groups: list[tuple[str, ...]]
    guilty: Mapping[str, DeathKind]
    attempts: int


def played(world: World, course: Course | None = None) -> Story:
    course = course or begun(world.components)
    groups: list[tuple[str, ...]] = []
    number = 0
    used = False
    while (attempt := course.attempt) is not None:
        fresh = attempt.fresh or not used
        death = world.run(attempt, number, fresh)
        done = () if death else attempt.components
        if done:
            groups.append(done)
            used = True
        course = after(course, done, death, fresh=fresh)
        number += 1
        assert number < 10_000, "it does not end"
    return Story(groups, course.guilty, number)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(count))


KINDS: st.SearchStrategy[DeathKind] = st.sampled_from(["memory", "stalled", "lost", "defect"])


@st.composite
def worlds(draw: st.DrawFn, most: int = 40) -> World:
    components = names(draw(st.integers(1, most)))
    culprits = draw(st.dictionaries(st.sampled_from(components), KINDS, max_size=5))
    return World(components, culprits, names_suspects=draw(st.booleans()))


@given(worlds())
def test_culprits_fail_with_their_cause_and_other_components_have_results(world: World) -> None:
    story = played(world)
    assert story.guilty == world.culprits
    done = [one for group in story.groups for one in group]
    assert sorted(done) == sorted(set(world.components) - world.culprits.keys()), "each once"


@given(worlds(most=200))
def test_attempts_are_few(world: World) -> None:
    story = played(world)
    most = 2 + 6 * len(world.culprits) * (1 + math.ceil(math.log2(max(len(world.components), 2))))
    assert story.attempts <= most
    if world.names_suspects:
        assert story.attempts <= 2 + 6 * len(world.culprits), "whoever is caught in the act need not be searched for"


@given(worlds())
def test_other_components_stay_in_one_run_when_culprits_are_found_in_the_act(world: World) -> None:
    world.names_suspects = True
    innocent = tuple(one for one in world.components if one not in world.culprits)
    assert played(world).groups == ([innocent] if innocent else [])


@given(st.lists(st.integers(1, LIMIT), min_size=1, max_size=60), st.booleans())
def test_accumulated_memory_makes_no_culprit(sizes: list[int], names_suspects: bool) -> None:
    components = names(len(sizes))
    story = played(World(components, sizes=dict(zip(components, sizes, strict=True)), names_suspects=names_suspects))
    assert not story.guilty
    assert sorted(one for group in story.groups for one in group) == sorted(components)
    assert story.attempts <= 4 * len(story.groups)


@given(worlds(), st.integers(0, 30))
def test_a_kill_from_outside_changes_nothing(world: World, kill: int) -> None:
    story, disturbed = played(world), played(World(world.components, world.culprits, kills=frozenset({kill}),
                                                   names_suspects=world.names_suspects))  # fmt: skip
    assert disturbed.guilty == story.guilty
    if not world.culprits:
        assert disturbed.groups == story.groups


@given(worlds(), st.frozensets(st.integers(0, 60), max_size=12))
def test_kills_from_outside_make_no_culprit_with_enough_trials(world: World, kills: frozenset[int]) -> None:
    """No three in a row hit one component alone here: every third attempt is let live."""
    spared = frozenset(number for number in kills if number % 3)
    story = played(World(world.components, world.culprits, kills=spared, names_suspects=world.names_suspects))
    assert story.guilty.keys() == world.culprits.keys()


def test_the_last_component_is_not_blamed_for_a_leaked_process() -> None:
    components = names(5)
    world = World(components, sizes=dict.fromkeys(components, 15), leak=60)
    course = begun(components)
    assert course.attempt == Attempt(components, fresh=False)
    death = world.run(Attempt(components, fresh=False), 0, fresh=False)
    course = after(course, (), death, fresh=False)
    assert course.attempt == Attempt(components, fresh=True)
    assert played(world, course).groups == [components]


def test_components_that_share_a_stalled_step_are_all_culprits() -> None:
    components = names(30)
    shared = dict.fromkeys(components[:10], "join")
    world = World(components, dict.fromkeys(components[:10], "stalled"), shared)
    story = played(world)
    assert story.guilty == world.culprits
    assert story.groups == [components[10:]]
    assert story.attempts == 3, "all of them, the ten of them, the others"


def test_those_that_share_a_step_are_tried_apart_when_memory_may_have_added_up() -> None:
    components = names(8)
    world = World(components, {"c3": "memory"}, dict.fromkeys(components, "read"), dict.fromkeys(components, 5))
    story = played(world)
    assert story.guilty == {"c3": "memory"}


def test_known_culprits_are_tried_alone_and_last() -> None:
    course = begun(names(4), {"c1", "c2", "other"})
    story = played(World(names(4), {"c1": "stalled"}), course)
    assert story.groups == [("c0", "c3"), ("c2",)]
    assert story.guilty == {"c1": "stalled"}
    assert story.attempts == 3, "its neighbours do not wait for it, and it is told at once"
    assert begun(names(2), set(names(2))).attempt == Attempt(("c0",))


def test_some_may_be_done_when_others_are_refused_memory() -> None:
    course = after(begun(names(4)), names(4)[:2], Death("memory", frozenset(names(4)[2:])), fresh=True)
    assert course.attempt == Attempt(("c2",))
    assert played(World(names(4), {"c3": "memory"}), course).guilty == {"c3": "memory"}
