from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.examples import scaled
from trainer.planning.assignment import PlacedShards, assign, improve
from trainer.planning.phase_exchange import even_phases
from trainer.planning.topologies import PlanTopology, topology_of

NOTHING = np.zeros(3)


def _shards(*secs: tuple[float, float, float], cores: list[int], size: int = 1) -> list[PlacedShards]:
    return [
        PlacedShards(t, 0, np.array([one]), np.array([size], np.int64), np.array([core]))
        for t, (one, core) in enumerate(zip(secs, cores, strict=True))
    ]


def _step(shards: list[PlacedShards], cores: int) -> float:
    loads = np.zeros((cores, 3))
    for one in shards:
        np.add.at(loads, one.cores, one.secs)
    return float(loads.max(axis=0).sum())


def _cores(count: int, memory_bytes: int = 1 << 40) -> PlanTopology:
    return topology_of(f"gpu:{count}", memory_bytes=memory_bytes)


def test_cores_with_equal_sums_exchange_shards_of_other_phases():
    shards = _shards((2, 0, 0), (2, 0, 0), (0, 0, 2), (0, 0, 2), cores=[0, 0, 1, 1])
    improve(shards, _cores(2), NOTHING, 0, 100)
    assert _step(shards, 2) == 8
    even_phases(shards, _cores(2), NOTHING, 0)
    assert _step(shards, 2) == 4


def test_several_equally_slow_cores_are_relieved_one_after_another():
    lookups, updates = [(1, 0, 0)] * 8, [(0, 0, 1)] * 8
    shards = _shards(*lookups, *updates, cores=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7])
    even_phases(shards, _cores(8), NOTHING, 0)
    assert _step(shards, 8) == 2


def test_a_core_without_memory_takes_no_more():
    shards = _shards((2, 0, 0), (2, 0, 0), (0, 0, 1), cores=[0, 0, 1], size=10)
    even_phases(shards, _cores(2, memory_bytes=20), NOTHING, 0)
    assert Counter(int(one.cores[0]) for one in shards) in ({0: 2, 1: 1}, {0: 1, 1: 2})
    full = _shards((2, 0, 0), (2, 0, 0), (0, 0, 1), cores=[0, 0, 1], size=10)
    full[2].size_bytes[0] = 15
    even_phases(full, _cores(2, memory_bytes=20), NOTHING, 0)
    assert [int(one.cores[0]) for one in full] == [0, 0, 1]


SECS = st.floats(0, 10, allow_subnormal=False)


@pytest.mark.medium
@given(
    st.lists(st.lists(st.tuples(SECS, SECS, SECS), min_size=1, max_size=4), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(0, 30),
)
@settings(max_examples=scaled(150))
def test_slices_keep_distinct_cores_and_cores_their_memory(tables, cores, spare):
    shards = [
        PlacedShards(t, 0, np.array(secs[:cores]), np.arange(1, len(secs[:cores]) + 1), np.full(len(secs[:cores]), -1))
        for t, secs in enumerate(tables)
    ]
    total = sum(int(one.size_bytes.sum()) for one in shards)
    topology = _cores(cores, memory_bytes=total // cores + 4 + spare)
    placed = assign(shards, topology, NOTHING, 3)
    if placed is None:
        return
    before = _step(placed, cores)
    even_phases(placed, topology, NOTHING, 3)
    used = np.full(cores, 3)
    for one in placed:
        assert len(set(one.cores.tolist())) == len(one.cores)
        assert 0 <= one.cores.min() <= one.cores.max() < cores
        np.add.at(used, one.cores, one.size_bytes)
    assert used.max() <= topology.memory_bytes
    assert _step(placed, cores) <= before * cores ** (1 / 32) + 1e-9  # what the power mean differs from the largest
