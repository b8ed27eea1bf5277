"""How much work is divided among threads."""

from __future__ import annotations

import pytest

from trainer.tables.kernels import threads
from trainer.tables.kernels.threads import Team


@pytest.mark.parametrize(("floats", "expected"), [(0, 1), (99, 1), (100, 2), (299, 3), (10**9, 4)])
def test_little_work_has_few_threads(monkeypatch, floats, expected):
    monkeypatch.setattr(threads, "_FLOATS_OF_THREAD", 100)
    assert Team(4).threads_for(floats) == expected


@pytest.mark.parametrize("count", [0, 1, 5])
def test_all_works_are_done_by_one_thread_or_several(count):
    done = []
    Team(2).run([lambda k=k: done.append(k) for k in range(count)])
    assert sorted(done) == list(range(count))
