from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.many_models import Figures, Reading, globo, measure, news_fleet, sample
from benchmarks.support.fleets import search_fleet


@pytest.mark.slow
def test_both_sides_of_a_small_fleet(tmp_path: Path) -> None:
    fleet = search_fleet()
    small = replace(fleet, shared=dict(islice(fleet.shared.items(), 8)))
    found = measure(small, sample(tmp_path, 2400), tmp_path, count=3, share=0.8)
    assert (found.models, found.inputs, found.components, found.fragments) == (3, 10, 8 + 3 * 2, 24)
    assert found.memos == found.components * found.fragments, "each component is computed once a fragment"
    assert found.loading.loaded == 3 * 10 * 24
    assert found.loading.computed == 0
    assert found.reading.loaded + found.reading.computed == 3 * 10 * 24


@pytest.mark.slow
def test_globo(tmp_path: Path, shared_data: Path) -> None:
    found = measure(news_fleet(), globo(tmp_path, shared_data / "globo", 3), tmp_path, count=2)
    assert found.memos == found.components * found.fragments
    assert found.loading.loaded == 2 * found.inputs * found.fragments


def test_what_is_compared() -> None:
    it = Figures(models=2, inputs=1, components=1, rows=1, fragments=1, memos=1, own=(30.0, 30.0), own_reading=1.0,
                 submits=1.0, worker=4.0, start=1.0, computation=3.0, reading=Reading(3.0, 1, 1),
                 loading=Reading(5.0, 2, 0))  # fmt: skip
    assert it.ratio(it.reading) == 60 / 8
    assert it.ratio(it.loading) == 60 / 10
    assert it.overhead == 2 / 60
    assert it.of_ideal == (3 + 3) / 8
