from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.model_churn import START, simulate
from benchmarks.storage_prices import churn_costs, demo_costs, demo_days, totals, year_of_churn
from benchmarks.support.churn import Born, ChurnConfig, churn, readers_a_component
from benchmarks.support.replay import replay

SMALL = ChurnConfig(days=9, live=4, inputs=6, hours_a_day=1, kept_days=5)


def test_a_history_is_a_function_of_its_seed() -> None:
    assert churn(SMALL) == churn(SMALL) != churn(replace(SMALL, seed=SMALL.seed + 1))


def test_churn_replaces_models_and_edits_clones() -> None:
    config = ChurnConfig(days=100)
    live: dict[str, Born] = {}
    known: set[int] = set()
    for number, day in enumerate(churn(config)):
        for born in day.born:
            fresh = set(born.components) - known
            assert len(born.components) == config.inputs
            assert born.name == "model_00000" or len(fresh) in (1, 2), "a clone differs in what was edited"
            known |= fresh
            live[born.name] = born
        assert number == 0 or len(day.retired) == len(day.born) == config.births_a_day
        for name in day.retired:
            del live[name]
        assert len(live) == config.live
    assert 20 < readers_a_component(list(live.values())) < 24, "the paper's average"


def test_readers() -> None:
    assert readers_a_component([Born("a", (1, 2)), Born("b", (1, 3))]) == 4 / 3


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all", "none"])
def test_a_small_year(tmp_path: Path, policy: str) -> None:
    found = simulate(SMALL, policy, tmp_path / policy)
    requests = sum(week.requests for week in found.weeks)
    hits = sum(week.hits for week in found.weeks)
    days = churn(SMALL)
    new_data = sum(SMALL.live * SMALL.inputs for _ in days[1:])
    new_models = sum(len(day.born) * SMALL.inputs * min(number + 1, SMALL.kept_days) for number, day in enumerate(days))
    assert requests == new_data + new_models
    assert len(found.weeks) == 2
    if policy == "all":
        assert requests - hits == found.memos > 0, "the first request of each memo is a miss, and no other"
        assert 0 < found.stored_bytes < found.byte_months * 30 / SMALL.days * 2
        assert found.recomputed_secs < found.computed_secs
    else:
        assert (hits, found.memos, found.stored_bytes, found.computed_secs) == (0, 0, 0, 0.0)
        assert found.recomputed_secs > 0


@pytest.mark.medium
@pytest.mark.parametrize(("policy", "within"), [("all", 1e-6), ("none", 1e-6), ("adaptive", 0.05)])
def test_a_replay_costs_what_the_catalog_says(tmp_path: Path, policy: str, within: float) -> None:
    """At a price at which the adaptive policy keeps some memos for some time."""
    config, price = replace(SMALL, days=6), 0.3
    real = simulate(config, policy, tmp_path / policy, price, 1)
    found = replay(policy, year_of_churn(config), churn_costs(price), START.timestamp()).total
    assert found.secs == pytest.approx(real.total_secs, rel=within)
    if policy != "adaptive":  # the replay decides once for all live models, the catalog model by model
        assert found.recomputed_secs == pytest.approx(real.recomputed_secs, rel=within)
        assert found.computed_secs == pytest.approx(real.computed_secs, rel=within)
    if policy == "adaptive":
        assert (
            0
            < found.storage_secs
            < replay("all", year_of_churn(config), churn_costs(price), START.timestamp()).total.storage_secs
        )


@pytest.mark.parametrize("factor", [0.01, 0.3, 10.0])
def test_adaptive_is_near_the_best_on_a_small_history(factor: float) -> None:
    assert totals(year_of_churn(replace(SMALL, days=20)), churn_costs, factor).ratio <= 1.1


@pytest.mark.parametrize("trained_daily", [False, True])
def test_adaptive_is_near_the_best_on_the_demo(trained_daily: bool) -> None:
    assert totals(demo_days(trained_daily=trained_daily), demo_costs, 0.6).ratio <= 1.1
