"""The fragments of a sample are spread over a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from trainer.serving.feature_interactions import spread


@given(st.integers(0, 200), st.integers(1, 20))
def test_items_are_spread_with_the_last_one(count, most):
    found = spread(range(count), most)
    assert len(found) == min(count, most)
    assert found == sorted(set(found))
    if found:
        assert found[-1] == count - 1
        gaps = {after - before for before, after in zip([-1, *found], found, strict=False)}
        assert max(gaps) - min(gaps) <= 1
