"""Every twin gives the bits of its kernel."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.support.examples import scaled
from tests.transforms.adversarial import bits, computed, python_values
from tests.transforms.trials import drawn_trial
from transforms.operators import REGISTRY, Operator

quick = settings(max_examples=scaled(40), suppress_health_check=list(HealthCheck))


@pytest.mark.medium
@pytest.mark.parametrize("operator", [op for op in REGISTRY if op.twin], ids=lambda operator: operator.name)
@given(data=st.data())
@quick
def test_twin_equals_kernel(operator: Operator, data: st.DataObject) -> None:
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    trial = drawn_trial(operator, data)
    root = trial.root
    kernel = computed(root, trial.arrays, trial.rows, trial.constants)
    tensors = {
        f"c{i}": from_arrow(array, at) for i, (array, at) in enumerate(zip(trial.arrays, trial.types, strict=True))
    }
    twin = to_arrow(compute({"it": root}, tensors, lambda digest: pa.array(trial.constants))["it"], root.type)
    twin.validate(full=True)
    assert bits(python_values(twin, root.type), root.type) == bits(python_values(kernel, root.type), root.type)


def test_zeros_of_both_signs_are_two_constants() -> None:
    import numpy as np
    import tensorflow as tf

    from transforms.twins.lists import pad

    empty = tf.RaggedTensor.from_row_lengths(tf.constant([], tf.float64), [0])
    padded = [pad(empty, size=1, value=zero).values.numpy()[0, 0] for zero in (-0.0, 0.0, -0.0)]
    assert [bool(np.signbit(value)) for value in padded] == [True, False, True]
