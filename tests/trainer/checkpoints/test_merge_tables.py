"""Rows of layers: those of the last one that has them, but the removed ones of bases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.checkpoints.merge_tables import newest_of_layers
from trainer.errors import TornCheckpoint

ROWS = st.sets(st.integers(0, 40)).map(lambda found: np.array(sorted(found), np.int64))


@settings(max_examples=scaled(200))
@given(ROWS, ROWS, ROWS)
def test_layers_are_a_table_that_is_updated(base, newer, removed):
    """As a dictionary says it: rows are removed, then those of the later layer are put in."""
    gone = np.setdiff1d(removed, newer)
    rows, places = newest_of_layers([base, newer], 1, gone, "a table")
    expected = {row: k for k, row in enumerate(base.tolist()) if row not in gone}
    expected |= {row: len(base) + k for k, row in enumerate(newer.tolist())}
    assert rows.tolist() == sorted(expected)
    assert places.tolist() == [expected[row] for row in rows.tolist()]


def test_a_removed_row_is_in_no_later_layer():
    with pytest.raises(TornCheckpoint, match="a removed row must not be in a later shard"):
        newest_of_layers([np.array([1, 2]), np.array([2, 3])], 1, np.array([3]), "a table")


def test_removed_rows_ascend():
    with pytest.raises(TornCheckpoint, match="the removed rows of a table must ascend"):
        newest_of_layers([np.array([1, 2]), np.array([2, 3])], 1, np.array([1, 1]), "a table")
