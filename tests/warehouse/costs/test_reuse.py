"""Expected requests: from counts, with a prior for new models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.scenes import Clock, model
from transforms.errors import InputError
from transforms.expressions.model import Model
from transforms.graphs.graph import Operation
from transforms.graphs.subgraphs import subgraphs
from warehouse import Warehouse, submit_model
from warehouse.costs.reuse import (
    NO_HISTORY,
    History,
    Prior,
    expected_requests,
    load_expected_requests,
    pickup_share,
    reads_per_day,
    record_read,
)

WEEKLY = Prior(1.0, 7.0)
DAY = 86_400.0


def test_rates_move_from_the_prior_to_what_is_seen() -> None:
    assert reads_per_day(NO_HISTORY, WEEKLY) == 1 / 7
    assert reads_per_day(History(7, 7), WEEKLY) == 8 / 14
    assert reads_per_day(History(700, 700), WEEKLY) == pytest.approx(1, abs=0.01)
    assert reads_per_day(History(0, 700), WEEKLY) < 0.002


def test_requests_add_up_over_models() -> None:
    histories = {"daily": History(7.0, 7.0)}
    alone = expected_requests({"n": ["daily"]}, histories, horizon_days=14, prior=WEEKLY)
    assert alone == {"n": 1 + 14 * 8 / 14}
    both = expected_requests({"n": ["daily", "new"], "m": ["new"]}, histories, horizon_days=14, prior=WEEKLY)
    # One of two nodes is shared, so half a model more is expected of either.
    assert both["m"] == pytest.approx(1 + 14 * (0.5 / 7 + 1 / 7))
    assert both["n"] == pytest.approx(both["m"] + 14 * 8 / 14)


def test_share_of_nodes_that_are_picked_up() -> None:
    assert pickup_share({}) == 0
    assert pickup_share({"a": ["x"], "b": ["x", "y"], "c": ["x", "y", "z"], "d": ["z"]}) == 0.5


names = st.sampled_from(["a", "b", "c", "d"])
histories = st.dictionaries(names, st.builds(History, st.floats(0, 1e4), st.floats(0, 1e4)))


@given(st.lists(st.sets(names), min_size=1, max_size=5), histories, st.floats(0.1, 1000))
def test_what_is_in_more_models_is_requested_more(
    chain: list[set[str]], known: dict[str, History], days: float
) -> None:
    grown = {str(i): frozenset().union(*chain[: i + 1]) for i in range(len(chain))}
    found = expected_requests(grown, known, horizon_days=days)
    assert list(found) == list(grown)
    assert all(math.isfinite(requests) and requests >= 1 for requests in found.values())
    assert sorted(found.values()) == list(found.values())
    assert found == expected_requests({k: sorted(v, reverse=True) for k, v in grown.items()}, known, horizon_days=days)


@pytest.mark.parametrize("prior", [(-1.0, 7.0), (1.0, 0.0), (math.nan, 1.0)])
def test_a_prior_is_checked(prior: tuple[float, float]) -> None:
    with pytest.raises(InputError):
        Prior(*prior)


def node_ids(submitted: Model) -> set[str]:
    return {node.identity for item in submitted.inputs.values() for node in subgraphs(item.component)}


def requests(warehouse: Warehouse, submitted: Model, clock: Clock) -> dict[str, float]:
    with warehouse.catalog.read() as connection:
        return load_expected_requests(connection, "log", node_ids(submitted), asking=submitted.name, table_rows=60,
                                      now=clock(), horizon_days=28.0, prior=WEEKLY)  # fmt: skip


def test_from_the_catalog(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    small, large = model("small", inputs=1), model("large", "ads", inputs=3)
    before = requests(warehouse, small, clock)
    assert set(before.values()) == {1 + 28 / 7}  # not submitted yet, and the prior's rate
    submit_model(warehouse, small)
    submit_model(warehouse, large)
    found = requests(warehouse, large, clock)
    shared = node_ids(small)
    rate = 1 / 7
    to_come = rate * len(shared) / len(found)
    assert list({found[node] for node in shared}) == [pytest.approx(1 + 28 * (to_come + 2 * rate))]
    assert list({found[node] for node in set(found) - shared}) == [pytest.approx(1 + 28 * (to_come + rate))]
    roots = [item.component for item in large.inputs.values() if isinstance(item.component, Operation)]
    for root in roots:
        assert all(found[node.identity] >= found[root.identity] for node in subgraphs(root))


def test_reads_count_as_the_part_of_the_table_that_they_cover(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    row = submit_model(warehouse, model("small", inputs=1)).version
    clock.advance(7 * DAY)
    with warehouse.catalog.write() as connection:
        for rows in (60, 30, 15):
            record_read(connection, row, "log", None, None, rows, clock())
    # 1.75 whole reads in 7 days, and the prior's 1 in 7.
    assert set(requests(warehouse, model("small", inputs=1), clock).values()) == {1 + 28 * 2.75 / 14}
    clock.advance(40 * DAY)  # out of the window, which is as long as the horizon
    assert list(set(requests(warehouse, model("small", inputs=1), clock).values())) == [pytest.approx(1 + 28 * 1 / 35)]


def test_a_new_version_inherits_the_reads_of_its_model(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model("small", inputs=1))
    clock.advance(7 * DAY)
    with warehouse.catalog.write() as connection:
        record_read(connection, 1, "log", 0.0, 1.0, 60, clock())
    changed = model("small", inputs=2)
    submit_model(warehouse, changed)
    assert set(requests(warehouse, changed, clock).values()) == {1 + 28 * 2 / 14}
