"""Distinct ids and positions are those of np.unique."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.tables.wire.distinct_ids import find_distinct, scratch_for, sort_distinct, write_positions


@settings(max_examples=scaled(500))
@given(st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 10**6), min_size=1, max_size=60))
def test_they_are_those_of_numpy(numbers: list[int]) -> None:
    ids = np.array(numbers, np.int64)
    scratch = scratch_for(len(ids) + 3)
    distinct = find_distinct(ids, scratch)
    sort_distinct(scratch, distinct)
    positions = np.empty(len(ids), np.uint16)
    write_positions(scratch, positions)
    expected, inverse = np.unique(ids, return_inverse=True)
    assert (scratch.found[:distinct] == expected).all()
    assert len(expected) == distinct
    assert (positions == inverse).all()
