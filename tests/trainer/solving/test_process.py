"""OR-Tools in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.planning.table_facts import table
from trainer.errors import ConfigError
from trainer.planning.assignment import PlacedShards, assign
from trainer.planning.planner import make_plan
from trainer.planning.topologies import topology_of
from trainer.solving.process import search_with


def shard(k, secs, size_bytes=1):
    return PlacedShards(k, 0, np.array([[secs, 0.0, 0.0]]), np.array([size_bytes]), np.array([-1]))


def loads_by_core(shards, cores):
    return sorted(sum(float(one.secs.sum()) for one in shards if one.cores[0] == core) for core in range(cores))


def test_the_solver_finds_what_the_rule_of_the_largest_first_does_not():
    """Five shards of 3, 3, 2, 2, 2 on two cores: the rule gives 7 and 5, the best assignment 6 and 6."""
    shards = [shard(k, secs) for k, secs in enumerate([3.0, 3.0, 2.0, 2.0, 2.0])]
    placed = assign(shards, topology_of("cpu:2"), np.zeros(3), 0)
    assert loads_by_core(placed, 2) == [5, 7]
    found, is_optimal = search_with(5.0)(placed, topology_of("cpu:2"), np.zeros(3), 0)
    assert is_optimal
    assert loads_by_core(found, 2) == [6, 6]


def test_the_solver_keeps_to_the_memory():
    shards = [shard(k, secs, size) for k, (secs, size) in enumerate([(3.0, 6), (3.0, 6), (2.0, 1), (2.0, 1), (2.0, 1)])]
    topology = replace(topology_of("cpu:2"), memory_bytes=9)
    placed = assign(shards, topology, np.zeros(3), 0)
    found, _ = search_with(5.0)(placed, topology, np.zeros(3), 0)
    assert loads_by_core(found, 2) == [5, 7], "the two large ones do not fit on one core"


def test_a_searched_plan_is_no_worse_and_repeats():
    tables = tuple(table(f"t{k}", 10_000 + k, 32, valency=1 + k % 5) for k in range(12))
    rule = make_plan(tables, topology_of("cpu:3"), 2048)
    first, second = (make_plan(tables, topology_of("cpu:3"), 2048, search=search_with(1.0)) for _ in range(2))
    assert first.plan == second.plan
    assert first.loads.step_secs <= rule.loads.step_secs


def test_a_large_problem_is_left_to_the_rule():
    shards = [shard(k, 1.0) for k in range(4000)]
    assert search_with(1.0)(shards, topology_of("cpu:8"), np.zeros(3), 0) is None


def test_a_process_that_fails_is_one_error():
    shards = [PlacedShards(0, 0, np.array([[1.0, 0.0, 0.0]]), np.array([1]), np.array([9]))]
    with pytest.raises(ConfigError, match="OR-Tools found no assignment"):
        search_with(1.0)(shards, topology_of("cpu:2"), np.zeros(3), 0)


def test_a_search_that_takes_too_long_leaves_the_plan_of_the_rule(monkeypatch):
    monkeypatch.setattr("trainer.solving.process._START_SECS", 0.01)
    monkeypatch.setattr("trainer.solving.process._SECS_OF_ONE", 0.0)
    tables = tuple(table(f"t{k}", 10_000 + k, 32, valency=1 + k % 5) for k in range(12))
    planned = make_plan(tables, topology_of("cpu:3"), 2048, search=search_with(1.0))
    assert planned.plan == make_plan(tables, topology_of("cpu:3"), 2048).plan
    assert planned.method == "largest shards first, then exchanges"
