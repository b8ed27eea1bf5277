"""The sides of ``benchmarks.server_systems`` make the steps of a case: checked by a dictionary of rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.server_systems import _PEERS, SIDES
from benchmarks.support.side_of_hashed_tables import features_of, limits_of, steps_of
from benchmarks.support.system_case import GivenCase, SystemCase
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables

CASE = SystemCase(3, 40, dim=4, rows=50, batches=2)


@pytest.fixture
def given(tmp_path):
    CASE.write(tmp_path / "case.npz")
    return GivenCase.read(str(tmp_path / "case.npz"))


def test_ids_are_those_of_the_case_and_others_in_each_table(given):
    assert given.case == CASE
    assert given.ids.shape == (2, 3, 40)
    assert given.gradients.shape == (40, 12)
    assert given.ids.min() >= 0
    assert given.ids.max() < 1 << 62
    tables = [set(given.ids[:, t].ravel().tolist()) for t in range(3)]
    assert all(len(one) <= CASE.rows for one in tables)
    assert not tables[0] & tables[1]
    most = max(np.unique(given.ids[:, 0], return_counts=True)[1])
    assert most > 80 / 50, "a power law"


def test_steps_are_adagrad_over_sums_of_gradients(given):
    step = steps_of(ShardedTables(features_of(CASE), seed=1, exchange=OneHost(), threads=1, hashed=limits_of(CASE)), given)  # fmt: skip
    rows: dict[tuple[int, int], np.ndarray] = {}
    sums: dict[tuple[int, int], np.ndarray] = {}
    for number in (0, 1, 0):
        ids, found = given.ids[number], step(number).copy()
        expected = [
            [rows.get((t, int(key)), np.zeros(4, np.float32)) for t, key in enumerate(event)] for event in ids.T
        ]
        np.testing.assert_allclose(found, np.array(expected).reshape(40, 12), rtol=1e-5, atol=1e-7)
        summed: dict[tuple[int, int], np.ndarray] = {}
        for event, gradients in zip(ids.T, given.gradients.reshape(40, 3, 4), strict=True):
            for t, key in enumerate(event):
                place = (t, int(key))
                summed[place] = summed.get(place, np.zeros(4, np.float32)) + gradients[t]
        for place, gradient in summed.items():
            sums[place] = sums.get(place, np.full(4, CASE.accumulator, np.float32)) + gradient**2
            rows[place] = rows.get(place, np.zeros(4, np.float32)) - CASE.rate * gradient / np.sqrt(sums[place])


def test_each_side_of_ours_has_a_peer():
    assert set(_PEERS) == {name for name, (is_ours, _) in SIDES.items() if is_ours}
    assert set(_PEERS.values()) == {name for name, (is_ours, _) in SIDES.items() if not is_ours}
