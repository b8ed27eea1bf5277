"""Who is at fault: worlds in which everything is known, and what the plan of attempts makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pipelines.isolation.bisection import (
    Attempt,
    BisectionPlan,
    ProcessFailure,
    ProcessFailureKind,
    record_attempt,
    start_bisection,
)

LIMIT = 100


@dataclass
class World:
    """Components that run one after another: ``culprits`` fail at their own step, and the memory of the others adds up.

    Attributes:
        steps: The step in which a culprit fails; culprits may share one.
        kills: The numbers of the attempts that are killed from outside.
        names_candidates: Whether a failure names the step that was running.
    """

    components: tuple[str, ...]
    culprits: Mapping[str, ProcessFailureKind] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    kills: frozenset[int] = frozenset()
    names_candidates: bool = True
    leak: int = 0

    def run(self, attempt: Attempt, number: int, fresh: bool) -> ProcessFailure | None:
        if number in self.kills:
            return self._fail("lost", attempt, attempt.components[number % len(attempt.components)])
        held = 0 if fresh else self.leak
        for one in attempt.components:
            held += self.sizes.get(one, 0)
            if one in self.culprits:
                return self._fail(self.culprits[one], attempt, one)
            if held > LIMIT:
                return self._fail("memory", attempt, one)
        return None

    def _fail(self, kind: ProcessFailureKind, attempt: Attempt, at: str) -> ProcessFailure:
        if not self.names_candidates:
            return ProcessFailure(kind)
        step = self.steps.get(at, at)
        return ProcessFailure(kind, frozenset(one for one in attempt.components if self.steps.get(one, one) == step))


@dataclass
class Outcome:
    """What a plan found: the groups with a result, the culprits, and the number of attempts."""

    groups: list[tuple[str, ...]]
    culprits: Mapping[str, ProcessFailureKind]
    attempts: int


def bisect(world: World, plan: BisectionPlan | None = None) -> Outcome:
    plan = plan or start_bisection(world.components)
    groups: list[tuple[str, ...]] = []
    number = 0
    used = False
    while (attempt := plan.next_attempt) is not None:
        fresh = attempt.fresh or not used
        failure = world.run(attempt, number, fresh)
        done = () if failure else attempt.components
        if done:
            groups.append(done)
            used = True
        plan = record_attempt(plan, done, failure, fresh=fresh)
        number += 1
        assert number < 10_000, "it does not end"
    return Outcome(groups, plan.culprits, number)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(count))


KINDS: st.SearchStrategy[ProcessFailureKind] = st.sampled_from(["memory", "stalled", "lost", "defect"])


@st.composite
def worlds(draw: st.DrawFn, most: int = 40) -> World:
    components = names(draw(st.integers(1, most)))
    culprits = draw(st.dictionaries(st.sampled_from(components), KINDS, max_size=5))
    return World(components, culprits, names_candidates=draw(st.booleans()))


@given(worlds())
def test_culprits_fail_with_their_kind_and_all_others_have_a_result(world: World) -> None:
    outcome = bisect(world)
    assert outcome.culprits == world.culprits
    done = [one for group in outcome.groups for one in group]
    assert sorted(done) == sorted(set(world.components) - world.culprits.keys()), "each once"


@given(worlds(most=200))
def test_attempts_are_few(world: World) -> None:
    outcome = bisect(world)
    most = 2 + 6 * len(world.culprits) * (1 + math.ceil(math.log2(max(len(world.components), 2))))
    assert outcome.attempts <= most
    if world.names_candidates:
        assert outcome.attempts <= 2 + 6 * len(world.culprits), "no search is needed where the step is known"


@given(worlds())
def test_other_components_stay_together_when_the_step_is_known(world: World) -> None:
    world.names_candidates = True
    others = tuple(one for one in world.components if one not in world.culprits)
    assert bisect(world).groups == ([others] if others else [])


@given(st.lists(st.integers(1, LIMIT), min_size=1, max_size=60), st.booleans())
def test_memory_that_adds_up_has_no_culprit(sizes: list[int], names_candidates: bool) -> None:
    components = names(len(sizes))
    outcome = bisect(
        World(components, sizes=dict(zip(components, sizes, strict=True)), names_candidates=names_candidates)
    )
    assert not outcome.culprits
    assert sorted(one for group in outcome.groups for one in group) == sorted(components)
    assert outcome.attempts <= 4 * len(outcome.groups)


@given(worlds(), st.integers(0, 30))
def test_a_kill_from_outside_changes_nothing(world: World, kill: int) -> None:
    outcome, disturbed = bisect(world), bisect(World(world.components, world.culprits, kills=frozenset({kill}),
                                                   names_candidates=world.names_candidates))  # fmt: skip
    assert disturbed.culprits == outcome.culprits
    if not world.culprits:
        assert disturbed.groups == outcome.groups


@given(worlds(), st.frozensets(st.integers(0, 60), max_size=12))
def test_many_kills_from_outside_add_no_culprit(world: World, kills: frozenset[int]) -> None:
    """No three in a row hit one component alone: every third attempt is spared."""
    spared = frozenset(number for number in kills if number % 3)
    outcome = bisect(World(world.components, world.culprits, kills=spared, names_candidates=world.names_candidates))
    assert outcome.culprits.keys() == world.culprits.keys()


def test_a_process_that_leaked_is_no_fault_of_the_last_attempt() -> None:
    components = names(5)
    world = World(components, sizes=dict.fromkeys(components, 15), leak=60)
    plan = start_bisection(components)
    assert plan.next_attempt == Attempt(components, fresh=False)
    failure = world.run(Attempt(components, fresh=False), 0, fresh=False)
    plan = record_attempt(plan, (), failure, fresh=False)
    assert plan.next_attempt == Attempt(components, fresh=True)
    assert bisect(world, plan).groups == [components]


def test_components_that_share_a_stalled_step_are_culprits_together() -> None:
    components = names(30)
    shared = dict.fromkeys(components[:10], "join")
    world = World(components, dict.fromkeys(components[:10], "stalled"), shared)
    outcome = bisect(world)
    assert outcome.culprits == world.culprits
    assert outcome.groups == [components[10:]]
    assert outcome.attempts == 3, "all of them, the ten of them, the others"


def test_those_that_share_a_step_are_tried_apart_when_memory_may_have_added_up() -> None:
    components = names(8)
    world = World(components, {"c3": "memory"}, dict.fromkeys(components, "read"), dict.fromkeys(components, 5))
    outcome = bisect(world)
    assert outcome.culprits == {"c3": "memory"}


def test_known_culprits_are_tried_alone_and_last() -> None:
    plan = start_bisection(names(4), {"c1", "c2", "other"})
    outcome = bisect(World(names(4), {"c1": "stalled"}), plan)
    assert outcome.groups == [("c0", "c3"), ("c2",)]
    assert outcome.culprits == {"c1": "stalled"}
    assert outcome.attempts == 3, "the others do not wait for it, and one attempt is enough"
    assert start_bisection(names(2), set(names(2))).next_attempt == Attempt(("c0",))


def test_some_may_be_done_when_others_are_refused_memory() -> None:
    plan = record_attempt(
        start_bisection(names(4)), names(4)[:2], ProcessFailure("memory", frozenset(names(4)[2:])), fresh=True
    )
    assert plan.next_attempt == Attempt(("c2",))
    assert bisect(World(names(4), {"c3": "memory"}), plan).culprits == {"c3": "memory"}
