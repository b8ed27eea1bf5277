"""Keeping and dropping by age: what a day's requests save against what storage costs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from warehouse.planning.cheapest import DagNode, NodeCost
from warehouse.planning.forecast import AGE_DAYS
from warehouse.planning.retention import MemoPrice, Outlook, requesters, worth_dropping, worth_keeping

BUCKETS = len(AGE_DAYS)
DAILY = [40.0] + [0.0] * (BUCKETS - 1)
NODES = [
    DagNode("raw", (), NodeCost(float("inf"), 1.0)),
    DagNode("words", ("raw",), NodeCost(8.0, None, 0.5, 9.0, True)),
    DagNode("input", ("words",), NodeCost(1.0, None, 0.5, 9.0, True)),
]


def outlook(rate: list[float], day_secs: float, bucket: int = 0) -> Outlook:
    prices = {"words": MemoPrice(8.5, 0.1, day_secs), "input": MemoPrice(9.5, 0.1, day_secs)}
    return Outlook(prices, dict.fromkeys(prices, rate), bucket)


def test_new_data_is_kept_and_old_data_dropped() -> None:
    """Forty requests on the first day and none later, at a price between one request and forty."""
    new, old = outlook(DAILY, 100.0), outlook(DAILY, 100.0, bucket=1)
    assert worth_keeping(NODES, ["input"], new, is_requested=False) == ("input",)
    assert worth_keeping(NODES, ["input"], old, is_requested=True) == ()
    assert worth_dropping(["input"], new) == ()
    assert worth_dropping(["input"], old) == ("input",)


def test_what_is_written_needs_less_to_stay_than_to_be_made() -> None:
    """One request in the hold pays for the storage, but the first request computes in any case."""
    once = outlook([1.0, *[0.0] * (BUCKETS - 1)], 5.0)
    assert worth_dropping(["input"], once) == ()
    assert worth_keeping(NODES, ["input"], once, is_requested=False) == ()
    assert worth_keeping(NODES, ["input"], once, is_requested=True) == ("input",)


def test_a_memo_that_costs_more_to_load_than_to_compute_is_never_kept() -> None:
    prices = {"words": MemoPrice(-1.0, 0.0, 0.0), "input": MemoPrice(0.0, 0.0, 0.0)}
    found = Outlook(prices, {name: [40.0] * BUCKETS for name in prices}, 0)
    assert worth_keeping(NODES, ["input"], found, is_requested=True) == ()
    assert worth_dropping(prices, found) == ("input", "words")


def test_a_shared_subgraph_is_kept_below_inputs_that_are_cheap_to_finish() -> None:
    """Storing one subgraph is cheaper than twelve inputs of it."""
    inputs = [DagNode(f"input {i}", ("words",), NodeCost(0.1, None, 0.5, 9.0, True)) for i in range(12)]
    nodes = [*NODES[:2], *inputs]
    prices = {"words": MemoPrice(8.5, 0.1, 50.0), **{node.id: MemoPrice(8.6, 0.1, 50.0) for node in inputs}}
    found = Outlook(prices, {name: [40.0] * BUCKETS for name in prices}, 0)
    wanted = [node.id for node in inputs]
    assert worth_keeping(nodes, wanted, found, is_requested=True) == ("words",)


def test_a_subgraph_of_stored_inputs_is_requested_by_none_of_their_models() -> None:
    """A new input over a subgraph of many stored ones: the subgraph would be loaded for the new input only."""
    arguments = {"raw": (), "words": ("raw",), **{f"input {i}": ("words",) for i in range(3)}}
    models = {"input 0": ["a", "b"], "input 1": ["b", "c"], "input 2": ["new"]}
    found = requesters(arguments, models, ["input 0", "input 1"])
    assert found["words"] == found["raw"] == {"new"}
    assert found["input 0"] == {"a", "b"}, "the models of a stored input load it"
    assert requesters(arguments, models, ["words"])["words"] == {"a", "b", "c", "new"}
    assert requesters(arguments, models, ["words"])["raw"] == set()


price = st.floats(0, 20)


@settings(max_examples=scaled(100))
@given(st.lists(price, min_size=BUCKETS, max_size=BUCKETS), price, price, st.integers(0, BUCKETS - 1), st.booleans())
def test_nothing_is_made_that_would_be_dropped_at_once(
    rate: list[float], day_secs: float, write_secs: float, bucket: int, is_requested: bool
) -> None:
    base = outlook(rate, day_secs, bucket)
    found = replace(base, prices={name: replace(one, write_secs=write_secs) for name, one in base.prices.items()})
    kept = worth_keeping(NODES, ["input"], found, is_requested=is_requested)
    assert not set(kept) & set(worth_dropping(kept, found))
    stored = [replace(node, cost=NodeCost(1.0, 0.5)) if node.id in kept else node for node in NODES]
    again = worth_keeping(stored, ["input"], found, is_requested=is_requested)
    assert not set(again) & set(kept)
    assert kept == () or worth_keeping(NODES, ["input"], found, is_requested=True)
