"""What a component shares with others, against a count over all graphs; and its memos by partition."""

from __future__ import annotations

from typing import Any

import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import Clock, evict_component, model, work, write_partition
from transforms.expressions.model import Model
from transforms.graphs.graph import Operation, topological
from warehouse import Warehouse, read_solution, register_table, submit_model
from warehouse.search import neighbours as searched
from warehouse.search.component_memos import component_memos
from warehouse.search.neighbours import MOST_AROUND, neighbours
from warehouse.search.search import get_component, search_components

pytestmark = pytest.mark.usefixtures("log")


def many_models(warehouse: Warehouse, count: int) -> None:
    query, title = hr.text("query"), hr.text("title")
    for k in range(count):
        made = Model(f"m{k}", client="search", label="clicked", table="log")
        made.input("a", (query.unigrams() & title.unigrams()).hash_buckets(10 + k))
        made.input("b", query.lower().unigrams().hash_buckets(10 + k))
        submit_model(warehouse, made)


def test_shared_parts_are_those_of_other_components(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=2))
    many_models(warehouse, 3)
    every = search_components(warehouse, limit=1_000).components
    for one in every:
        found = neighbours(warehouse, one)
        expected: dict[str, Any] = {}
        for node in topological([one.component]):
            if isinstance(node, Operation) and node is not one.component:
                others = [
                    other
                    for other in every
                    if other.fingerprint != one.fingerprint and node in set(topological([other.component]))
                ]
                if others:
                    models = sorted({name for other in others for name in (*other.models, *other.within)})
                    expected[node.identity] = len(others), tuple(models)
        assert {part.fingerprint: (part.components, part.models) for part in found.parts} == expected
        around = {other.fingerprint for other in every if other.fingerprint != one.fingerprint
                  and one.component in set(topological([other.component]))}  # fmt: skip
        assert {other.fingerprint for other in found.around} == around
        assert not found.more


def test_counts_and_lists_end(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    query = hr.text("query").unigrams()
    made = Model("raw", client="search", label="clicked", table="log")
    made.input("words", query.hash_buckets(7))
    made.input("bare", query.length())
    submit_model(warehouse, made)
    many = Model("many", client="search", label="clicked", table="log")
    for k in range(MOST_AROUND + 3):
        many.input(f"i{k}", query.hash_buckets(100 + k))
    submit_model(warehouse, many)
    monkeypatch.setattr(searched, "MOST_COUNTED", 5)
    monkeypatch.setattr(searched, "_PARTS_AT_ONCE", 1)
    words = next(one for one in read_solution(warehouse, "raw").inputs if one.name == "words")
    (part,) = neighbours(warehouse, get_component(warehouse, words.fingerprint)).parts
    assert (part.components, part.is_least) == (5, True)


def test_memos_by_partition(warehouse: Warehouse, clock: Clock, tmp_path: Any) -> None:
    submit_model(warehouse, model(inputs=1))
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    waiting = component_memos(warehouse, fingerprint, 10)
    assert [dict(one.states) for one in waiting] == [{"PENDING": 1}] * 3
    work(warehouse, most=2)
    found = component_memos(warehouse, fingerprint, 10)
    assert [one.partition for one in found] == [f"date=2026-01-01/hour=0{hour}" for hour in range(3)]
    assert sorted(next(iter(one.states)) for one in found) == ["PENDING", "READY", "READY"]
    assert [one.rows for one in found if "READY" in one.states] == [20, 20]
    assert all(one.size_bytes > 0 for one in found if "READY" in one.states)
    assert component_memos(warehouse, fingerprint, 1) == found[-1:]
    work(warehouse)
    evict_component(warehouse, fingerprint)
    assert [dict(one.states) for one in component_memos(warehouse, fingerprint, 10)] == [{"EVICTED": 1}] * 3


def test_memos_over_replaced_data_are_left_out(warehouse: Warehouse, log: Any) -> None:
    from tests.warehouse.scenes import events

    submit_model(warehouse, model(inputs=1))
    work(warehouse)
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    write_partition(log, 1, events(9, seed=77))
    register_table(warehouse, "log", str(log))
    found = component_memos(warehouse, fingerprint, 10)
    assert [(one.partition[-2:], one.rows) for one in found if "READY" in one.states] == [("00", 20), ("02", 20)]
