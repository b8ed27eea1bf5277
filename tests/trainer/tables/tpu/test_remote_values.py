"""Values of variables that cross in parts."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.tables.tpu.remote_values import read_values, sent_values, write_values

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("most_bytes", [1, 12, 25, 100, 1 << 20])
@pytest.mark.parametrize("shape", [(7, 3), (1, 3), (9,), (0, 3)])
def test_values_are_equal_however_they_are_cut(most_bytes, shape):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    variable = tf.Variable(np.zeros(shape, np.float32))
    write_values(variable, values, most_bytes=most_bytes)
    assert variable.numpy().tobytes() == values.tobytes()
    assert sent_values(values, most_bytes=most_bytes).numpy().tobytes() == values.tobytes()
    found = read_values(variable, most_bytes=most_bytes)
    assert (found.shape, found.dtype) == (shape, np.float32)
    assert found.tobytes() == values.tobytes()
