from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.support.fleets import MODELS, Fleet, news_fleet, search_fleet


@pytest.mark.parametrize("fleet", [search_fleet(), news_fleet()], ids=lambda fleet: fleet.table)
def test_a_fleet_has_the_papers_averages(fleet: Fleet) -> None:
    models = fleet.models()
    inputs = len(models[0].inputs)
    readers = Counter(item.fingerprint for model in models for item in model.inputs.values())
    shared = [fingerprint for fingerprint, count in readers.items() if count == MODELS]
    assert len(models) == MODELS == 22
    assert len(shared) / inputs == pytest.approx(0.95, abs=0.01)
    assert len(readers) == len(shared) + MODELS * (inputs - len(shared)), "every other input is one model's alone"
    assert 100 <= len(readers) <= 500
