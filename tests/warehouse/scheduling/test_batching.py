from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.scheduling.batching import Batch, BatchBudget, BatchCandidate, fill_batch


def candidates(*places: int, memo_bytes: float = 10.0, **raw: float) -> list[BatchCandidate]:
    return [BatchCandidate(place, raw or {"query": 100.0}, memo_bytes) for place in places]


def test_a_raw_column_is_counted_once_a_place() -> None:
    assert fill_batch(candidates(1, 1, 1, 2), BatchBudget(1000)) == Batch(4, 100 + 30 + 100 + 10)


def test_what_does_not_fit_is_left_whole() -> None:
    assert fill_batch(candidates(1, 1, 2, 2), BatchBudget(200)) == Batch(2, 120, full=True)
    assert fill_batch(candidates(1, 1, 2, 2), BatchBudget(1e9, tasks=3)) == Batch(2, 120, full=True)


def test_the_first_place_is_taken_in_parts_if_need_be() -> None:
    assert fill_batch(candidates(1, 1, 1), BatchBudget(120)) == Batch(2, 120, full=True)
    assert fill_batch(candidates(1, 1), BatchBudget(1)) == Batch(1, 110, full=True), "something is always taken"
    assert fill_batch(candidates(1, 1, 1), BatchBudget(1e9, tasks=2)) == Batch(2, 120, full=True)


def test_a_batch_continues() -> None:
    started = fill_batch(candidates(1), BatchBudget(300))
    assert fill_batch(candidates(2), BatchBudget(300), started) == Batch(2, 220)
    assert fill_batch(candidates(2, 3), BatchBudget(300), started) == Batch(2, 220, full=True)
    assert fill_batch([], BatchBudget(300), started) == started


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 100), st.floats(0, 100))),
    st.floats(1, 1000),
    st.integers(1, 20),
)
def test_laws(drawn: list[tuple[int, float, float]], size: float, tasks: int) -> None:
    listed = [BatchCandidate(place, {"a": raw}, memo) for place, raw, memo in sorted(drawn, key=lambda one: one[0])]
    batch = fill_batch(listed, BatchBudget(size, tasks))
    assert batch.tasks <= tasks
    assert (batch.tasks > 0) == bool(listed)
    assert batch.bytes <= size or batch.tasks == 1
    assert batch.full == (batch.tasks < len(listed))


@pytest.mark.parametrize(("size", "tasks"), [(0.0, 1), (-1.0, 1), (1.0, 0), (float("nan"), 1)])
def test_nonsense_is_refused(size: float, tasks: int) -> None:
    with pytest.raises(InputError):
        BatchBudget(size, tasks)
