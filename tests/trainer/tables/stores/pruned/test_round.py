"""The cut-off of a round: few rows and many are cut at the same importance, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned import round as pruning_round
from trainer.tables.stores.pruned.round import TableRows, percentile_of, select_rows

TEAM = Team(2)
#: Many of them are equal, and some are next to each other in their last bits.
VALUES = st.sampled_from(
    [0.0, 0.0, 1e-45, 1e-3, 0.5, float(np.nextafter(np.float32(0.5), np.float32(1))), 1.0, 1.0, 3.5, 1e30]
)


def tables_of(rows, placed):
    draw = np.random.default_rng(placed)
    return [
        TableRows(
            t,
            np.array(one, np.float32),
            np.where(draw.random(len(one)) < 0.5, np.int32(1), np.int32(-1)).astype(np.int32),
        )
        for t, one in enumerate(rows)
    ]


@settings(max_examples=scaled(200))
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=30), min_size=1, max_size=3), st.integers(0, 60), st.integers(0, 9)
)
def test_few_rows_and_many_are_cut_alike(rows, places, placed):
    tables = tables_of(rows, placed)
    found = []
    for few in (0, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pruning_round, "_FEW_ROWS", few)
            rounds = select_rows(tables, [1.0] * len(tables), places, TEAM)
            percentiles = [percentile_of(one.importance, TEAM) for one in tables]
            found.append(([(one.leaving.tolist(), one.coming.tolist()) for one in rounds], percentiles))
    assert found[0] == found[1]
    kept = sum(len((set(np.flatnonzero(table.address >= 0).tolist()) - set(one[0])) | set(one[1])) for table, one in zip(tables, found[0][0], strict=True))  # fmt: skip
    assert kept == min(places, sum(int((one.importance > 0).sum()) for one in tables))
