"""The policies that hybrid placement is compared with, and a small run of the benchmark."""

from __future__ import annotations

import numpy as np

from benchmarks import hybrid_placement
from benchmarks.support import cache_policies as policies

IDS = np.array([0, 1, 0, 2, 0, 1, 3, 0, 1, 2])


def test_policies_by_hand() -> None:
    assert policies.least_recently_used(IDS, 2).hits == 2
    assert policies.least_frequently_used(IDS, 2).hits == 3
    assert policies.belady(IDS, 2).hits == 5
    assert policies.static(IDS, 4, 2).hits == 4
    assert [policies.clairvoyant(IDS, interval, 2).hits for interval in (1, 2, 5, 10)] == [10, 10, 7, 7]


def test_bounds_are_bounds() -> None:
    ids = hybrid_placement.drifting_lookups(20_000)["articles (synthetic)"]
    found = {name: one.hit_rate for name, one in hybrid_placement.compare(ids, 0.1, 256).items()}
    assert found["LRU"] <= found["Belady, each lookup"] <= found["clairvoyant, each batch"] <= 1.0
    assert found["LFU"] <= found["Belady, each lookup"]
    assert policies.clairvoyant(ids, 2048, 40).hits <= policies.clairvoyant(ids, 256, 40).hits < len(ids)
    assert found["hybrid placement"] <= found["clairvoyant, each batch"]
    assert found["hybrid placement"] > found["static"]
