"""The simulated legs of a gradient sum, beside a sum that is done chip by chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gradient_legs import BERT, RESNET, SHAPES, share_of_lamb, share_of_sum
from benchmarks.support.gradient_legs import TPU_V3, MeshChip, Rectangle, leg_bytes, ring_secs, two_leg_secs
from trainer.errors import ConfigError

ITEM_BYTES = 8


def add_in_ring(arrays: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """Each chip's part of the sum, after a reduce-scatter along a ring, and the bytes that a chip has sent."""
    count = len(arrays)
    parts = [np.split(one.copy(), count) for one in arrays]
    sent = 0
    for step in range(count - 1):
        moving = [parts[k][(k - step) % count] for k in range(count)]
        sent += moving[0].nbytes
        for k in range(count):
            parts[(k + 1) % count][(k - step) % count] = parts[(k + 1) % count][(k - step) % count] + moving[k]
    return [parts[k][(k + 1) % count] for k in range(count)], sent


@pytest.mark.parametrize("shape", [Rectangle(2, 3), Rectangle(4, 2), Rectangle(3, 1)], ids=str)
def test_the_bytes_of_the_legs_are_those_of_a_sum(shape):
    """Reduce-scatter along columns, then along rows; the way back sends as many bytes."""
    length = 4 * shape.chips
    arrays = np.random.default_rng(0).integers(0, 9, (shape.columns, shape.rows, length)).astype(float)
    of_columns = [add_in_ring(list(column)) for column in arrays]
    y_sent = of_columns[0][1]
    totals, x_sent = {}, 0
    for row in range(shape.rows):
        found, x_sent = add_in_ring([parts[row] for parts, _ in of_columns])
        totals[row] = found
    whole = arrays.sum(axis=(0, 1))
    pieces = sorted(part.tolist() for found in totals.values() for part in found)
    assert pieces == sorted(part.tolist() for part in np.split(whole, shape.chips))
    y, x = leg_bytes(length * ITEM_BYTES, shape)
    assert (y, x) == pytest.approx((2 * y_sent, 2 * x_sent))


@given(columns=st.integers(1, 128), rows=st.integers(1, 64), megabytes=st.floats(0.001, 1e4))
def test_laws_of_the_legs(columns, rows, megabytes):
    shape, fast = Rectangle(columns, rows), MeshChip(1e15, 1e15, 1e15, 1.0, 0.0)
    ring, legs = (find(megabytes * 1e6, shape, TPU_V3) for find in (ring_secs, two_leg_secs))
    assert ring.all >= 0
    assert two_leg_secs(megabytes * 1e6, shape, fast).all <= legs.all
    if columns == 1:
        assert legs.all == pytest.approx(ring.all), "one column is a ring"
    assert two_leg_secs(2e6 * megabytes, shape, TPU_V3).all >= legs.all
    y, x = leg_bytes(megabytes * 1e6, shape)
    if rows > 1:
        assert x <= y / (rows - 1) * (1 + 1e-9)


def test_two_legs_win_where_a_ring_is_long_and_shares_are_near_the_papers():
    ratios = [
        ring_secs(RESNET.summed_bytes, one, TPU_V3).all / two_leg_secs(RESNET.summed_bytes, one, TPU_V3).all
        for one in SHAPES
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] < 1 < 3 < ratios[-1]
    assert 0.1 < share_of_sum(RESNET, SHAPES[-1]) < 0.4
    assert 0.2 < share_of_sum(BERT, SHAPES[-1]) < 0.6
    assert share_of_lamb(BERT, SHAPES[-1], shards=SHAPES[-1].chips) < 0.01 < share_of_lamb(BERT, SHAPES[-1])


def test_wrong_numbers_are_refused():
    with pytest.raises(ConfigError, match="must have columns and rows"):
        Rectangle(0, 4)
    with pytest.raises(ConfigError, match="rates of a chip"):
        MeshChip(float("nan"), 1.0, 1.0, 0.5, 0.0)
    with pytest.raises(ConfigError, match="reached share"):
        MeshChip(1.0, 1.0, 1.0, 1.5, 0.0)
    with pytest.raises(ConfigError, match="hop_secs"):
        MeshChip(1.0, 1.0, 1.0, 0.5, -1.0)
