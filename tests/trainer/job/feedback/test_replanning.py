from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.job.feedback.replanning import (
    MOST_CANDIDATES,
    SLACK,
    Candidate,
    EpochPrices,
    decide,
    with_candidate,
)

_PRICES = st.floats(0.5, 2.0)


def epoch(
    prices: dict[str, float],
    *,
    move_secs: float = 10.0,
    steps: int = 1,
    step_secs: float | None = None,
    left: float | None = None,
) -> EpochPrices:
    return EpochPrices(steps, step_secs, prices, dict.fromkeys(prices, move_secs), left)


def test_a_plan_moves_once_it_would_have_saved_its_move() -> None:
    candidates: tuple[Candidate, ...] = (Candidate("b"),)
    moved = []
    for _ in range(6):
        found = decide("a", candidates, epoch({"a": 1.0, "b": 0.5}, steps=4, move_secs=5.0))
        candidates = found.candidates
        moved.append(found.moves_to)
        if found.moves_to:
            break
    assert moved == [None, None, "b"], "0.48 s a step in epochs of 4 steps are 5.76 s after the third"
    assert candidates == (Candidate("a"),), "the plan before may come back, and has saved nothing yet"


def test_a_gain_within_the_slack_never_moves() -> None:
    candidates: tuple[Candidate, ...] = (Candidate("b"),)
    for _ in range(100):
        found = decide("a", candidates, epoch({"a": 1.0, "b": 1.0 - SLACK}, steps=1000, move_secs=1e-3))
        candidates = found.candidates
        assert found.moves_to is None
    assert candidates[0].saved_secs == pytest.approx(0.0, abs=1e-9)


def test_a_move_that_what_is_left_cannot_repay_is_not_made() -> None:
    ready = (Candidate("b", 100.0),)
    prices = {"a": 1.0, "b": 0.48}
    assert decide("a", ready, epoch(prices, left=19)).moves_to is None
    assert decide("a", ready, epoch(prices, left=21)).moves_to == "b"


def test_a_plan_that_costs_more_now_is_not_moved_to_whatever_it_has_saved() -> None:
    assert decide("a", (Candidate("b", 100.0),), epoch({"a": 1.0, "b": 1.1})).moves_to is None


def test_savings_are_those_of_steps_as_they_were_measured() -> None:
    prices = {"a": 2.0, "b": 1.0}
    slow = epoch(prices, step_secs=30.0).saving_secs("a", "b")
    assert slow == epoch(prices).saving_secs("a", "b") == pytest.approx(0.96), (
        "what else a step does is no part of the plan"
    )
    assert epoch(prices, step_secs=0.2).saving_secs("a", "b") == pytest.approx(0.096), (
        "the model says ten times too much"
    )


@settings(max_examples=scaled(200))
@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), _PRICES, min_size=4, max_size=4), max_size=60),
    st.floats(0.1, 20.0),
)
def test_moves_cost_at_most_what_was_lost_before_them(epochs: list[dict[str, float]], move_secs: float) -> None:
    current, candidates = "a", tuple(map(Candidate, "bcd"))
    lost = paid = 0.0
    for prices in epochs:
        lost += prices[current] - min(prices.values())
        found = decide(current, candidates, epoch(prices, move_secs=move_secs))
        candidates = found.candidates
        if found.moves_to is not None:
            paid += move_secs
            assert found.saved_secs >= move_secs
            current = found.moves_to
        assert {current, *(one.plan for one in candidates)} == set("abcd")
        assert paid <= lost + 1e-9
        assert all(one.saved_secs >= 0 for one in candidates)


def _best_cost(prices: list[tuple[float, float]], move_secs: float) -> float:
    """The cost of the best sequence of two plans, which begins with the first one."""
    costs = (0.0, move_secs)
    for own in prices:
        costs = tuple(min(costs[k], costs[1 - k] + move_secs) + own[k] for k in (0, 1))  # type: ignore[assignment]
    return min(costs)


@settings(max_examples=scaled(300))
@given(st.lists(st.tuples(_PRICES, _PRICES), min_size=1, max_size=80), st.floats(2.0, 20.0))
def test_two_plans_cost_at_most_three_times_the_best_sequence(
    prices: list[tuple[float, float]], move_secs: float
) -> None:
    """What both plans cost in an epoch is not counted: it is the hardest case."""
    current, other, candidates, cost = 0, 1, (Candidate("1"),), 0.0
    excess = [(one - min(one, two), two - min(one, two)) for one, two in prices]
    for own, over in zip(prices, excess, strict=True):
        cost += over[current]
        named = {str(k): own[k] for k in (0, 1)}
        found = decide(str(current), candidates, epoch(named, move_secs=move_secs))
        candidates = found.candidates
        if found.moves_to is not None:
            cost += move_secs
            current, other = other, current
    most = max(max(pair) for pair in excess)
    slack = SLACK * sum(map(max, prices))  # what is within the slack is given up
    ratio = 3 + 2 * most / move_secs  # an epoch ends before the plan can change
    assert cost <= ratio * _best_cost(excess, move_secs) + 2 * (move_secs + most) + slack + 1e-9


@settings(max_examples=scaled(100))
@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), _PRICES, min_size=8, max_size=8), max_size=30))
def test_candidates_stay_few_and_different(epochs: list[dict[str, float]]) -> None:
    candidates: tuple[Candidate, ...] = ()
    for prices in epochs:
        best = min(prices, key=lambda name: prices[name])
        after = with_candidate(candidates, best, prices, "a")
        names = [one.plan for one in after]
        assert len(names) == len(set(names)) <= MOST_CANDIDATES
        assert "a" not in names
        new = set(names) - {one.plan for one in candidates}
        assert new <= {best}
        assert all(one.saved_secs == 0 for one in after if one.plan in new)
        if new:
            others = {"a", *(one.plan for one in candidates)}
            assert prices[best] <= (1 - SLACK) * min(prices[name] for name in others)
        candidates = after


def test_a_plan_that_is_better_in_turns_is_left_again() -> None:
    """A plan that is better in turns is moved to and left again, each time only after its own loss."""
    current, candidates, moves = "a", (Candidate("b"),), []
    for at in range(40):
        prices = {"a": 1.0, "b": 0.5} if at // 10 % 2 == 0 else {"a": 0.5, "b": 1.0}
        found = decide(current, candidates, epoch(prices, move_secs=2.0))
        candidates = found.candidates
        if found.moves_to:
            moves.append(at)
            current = found.moves_to
    assert len(moves) == 4
    assert all(later - earlier == 10 for earlier, later in pairwise(moves))


def test_a_plan_pays_from_the_moment_at_which_it_has_saved_its_move() -> None:
    """Not before, and also when what is left saves exactly as much; never while it saves nothing."""
    exact = {"a": 1.0, "b": 0.98 - 0.5}
    assert decide("a", (Candidate("b", 9.0),), epoch(exact, steps=2, left=20)).moves_to == "b"
    assert decide("a", (Candidate("b", 9.0),), epoch(exact, steps=2)).saved_secs == 10.0
    stays = decide("a", (Candidate("b", 8.0),), epoch(exact, steps=3))
    assert (stays.moves_to, stays.saved_secs, stays.candidates) == (None, 0.0, (Candidate("b", 9.5),))
    assert decide("a", (Candidate("b", 50.0),), epoch({"a": 1.0, "b": 1 - SLACK})).moves_to is None


@given(_PRICES, _PRICES, st.none() | _PRICES, st.floats(1e-3, 1e3))
def test_savings_are_in_the_unit_of_the_prices(
    price: float, other: float, step_secs: float | None, unit: float
) -> None:
    one = epoch({"a": price, "b": other}, step_secs=step_secs).saving_secs("a", "b")
    scaled_secs = None if step_secs is None else unit * step_secs
    many = epoch({"a": unit * price, "b": unit * other}, step_secs=scaled_secs).saving_secs("a", "b")
    assert many == pytest.approx(unit * one, rel=1e-6, abs=1e-9 * unit)


def test_a_plan_in_force_that_costs_nothing_saves_nothing() -> None:
    assert epoch({"a": 0.0, "b": 0.0}, step_secs=1.0).saving_secs("a", "b") == 0.0
    assert epoch({"a": 0.0, "b": 0.5}, step_secs=1.0).saving_secs("a", "b") == -0.5


def test_of_several_plans_that_pay_the_one_with_most_left_after_its_move_is_taken() -> None:
    prices, candidates = (
        {"a": 1.0, "b": 0.5, "c": 0.4, "d": 2.0},
        (Candidate("b", 20.0), Candidate("c", 30.0), Candidate("d", 7.0)),
    )
    costs = {"b": 5.0, "c": 18.0, "d": 1.0}
    found = decide("a", candidates, EpochPrices(1, None, prices, costs))
    assert (found.moves_to, found.saved_secs) == ("b", pytest.approx(20.48)), "15 s and 12 s are left"
    assert found.candidates == (Candidate("a"), Candidate("c"), Candidate("d")), "all begin to collect again"
    alike = (Candidate("b", 20.0), Candidate("c", 20.0))
    for order in (alike, alike[::-1]):
        assert decide("a", order, epoch({"a": 1.0, "b": 0.5, "c": 0.5})).moves_to == "c", "by name where they are alike"


def test_a_new_plan_takes_the_place_of_the_one_that_has_saved_least() -> None:
    prices = dict(zip("abcdef", (1.0, 0.9, 0.8, 0.8, 0.95, 0.5), strict=True))
    full = (Candidate("b", 3.0), Candidate("c", 1.0), Candidate("d", 1.0), Candidate("e", 2.0))
    kept = with_candidate(full, "f", prices, "a")
    assert kept == (Candidate("b", 3.0), Candidate("e", 2.0), Candidate("c", 1.0), Candidate("f")), (
        "of c and d the first by name"
    )
    dearer = {**prices, "c": 0.85}
    assert with_candidate(full, "f", dearer, "a")[2] == Candidate("d", 1.0), "of c and d the cheaper one"
    assert with_candidate((), "f", {"a": 1.0, "f": 1 - SLACK}, "a") == (Candidate("f"),)
    assert with_candidate((), "f", {"a": 1.0, "f": 0.99}, "a") == ()
    assert with_candidate(full[:1], "f", {"a": 1.0, "b": 0.5, "f": 0.495}, "a") == full[:1], (
        "better than all by the slack"
    )
    assert with_candidate(full[:1], "b", {"a": 1.0, "b": 0.5}, "a") == full[:1]
