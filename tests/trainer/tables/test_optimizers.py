"""The optimizers of the cpu engine against float64, and against programs that TensorFlow lowers for SparseCore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.optimizer_formulas import reference
from trainer.errors import ConfigError
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    CpuEngine,
    FeatureSpec,
    IdBatch,
    RowWiseAdagrad,
    TableSpec,
    TableState,
)
from trainer.tables.optimizers import slot_width

GOLDEN = Path(__file__).parent / "golden" / "sparse_core_optimizers.json"
KINDS = {"SGD": SGD, "Adagrad": Adagrad, "AdagradMomentum": AdagradMomentum, "Adam": Adam, "FTRL": FTRL}


def update(optimizer, weights, slots, gradient):
    """One update of a table of one row; ``slots``: float32 [slots * dim]."""
    dim = len(weights)
    engine = CpuEngine([FeatureSpec("f", TableSpec("t", 1, dim, optimizer, "sum"))], seed=0, threads=1)
    assert len(slots) == slot_width(optimizer, dim)
    engine.load_state({"t": TableState(np.zeros(1, np.int64), weights[None], slots[None])})
    batch = IdBatch(np.zeros(1, np.int64), np.array([[0, 1]]))
    engine.apply_gradients(batch, gradient[None])
    state = engine.state()["t"]
    return state.weights[0], state.slots[0]


def case_name(case):
    return case["optimizer"] + " " + " ".join(f"{k}={v}" for k, v in case["settings"].items() if v not in (None, False))


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text())["cases"], ids=case_name)
def test_updates_are_those_of_sparse_core(case):
    optimizer = KINDS[case["optimizer"]](**case["settings"])
    weights, gradients = (np.array(case[name], np.float32) for name in ("weights", "gradients"))
    slots = [np.array(case["slots"][slot.name], np.float32) for slot in optimizer.slots]
    found, found_slots = update(optimizer, weights, np.concatenate([np.zeros(0, np.float32), *slots]), gradients)
    expected = [case["new_slots"][slot.name] for slot in optimizer.slots]
    # A power of the CPU's library may differ by an ulp; XLA's is not exactly rounded either.
    np.testing.assert_allclose(found, np.array(case["new_weights"], np.float32), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found_slots, np.concatenate([np.zeros(0), *expected]), rtol=1e-6, atol=1e-7)


def common_settings():
    limit = st.sampled_from([None, 0.05, 0.5])
    return st.fixed_dictionaries(
        {
            "clip_gradient_min": limit.map(lambda x: x and -x),
            "clip_gradient_max": limit,
            "clip_weight_min": limit.map(lambda x: x and -x),
            "clip_weight_max": limit,
            "weight_decay_factor": st.sampled_from([None, 0.01]),
            "multiply_weight_decay_factor_by_learning_rate": st.booleans(),
        }
    )


OPTIMIZERS = st.one_of(
    st.builds(SGD, st.just(0.1)),
    st.builds(Adagrad, st.just(0.1), st.sampled_from([0.01, 1.0])),
    st.builds(RowWiseAdagrad, st.just(0.1), st.sampled_from([0.0, 0.1]), st.sampled_from([1e-8, 0.1])),
    st.builds(
        AdagradMomentum, st.just(0.1), st.sampled_from([0.0, 0.9]), st.booleans(), st.sampled_from([2.0, 3.0]),
        st.sampled_from([1.0, 0.9]), st.just(0.01),
    ),
    st.builds(Adam, st.just(0.1), st.just(0.9), st.just(0.99), st.just(1e-3), st.just(True), st.booleans()),
    st.builds(
        FTRL, st.just(0.1), st.sampled_from([-0.5, -0.8]), st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 0.2]),
        st.sampled_from([0.0, 0.5]), st.just(0.1), st.booleans(),
    ),
)  # fmt: skip


@given(OPTIMIZERS, common_settings(), st.sampled_from([1, 3, 16, 19, 64]), st.integers(0, 2**32 - 1))
def test_updates_are_those_of_float64(optimizer, common, dim, seed):
    optimizer = replace(optimizer, **common)
    rng = np.random.default_rng(seed)
    weights, gradient = (rng.normal(0, 0.3, dim).astype(np.float32) for _ in range(2))
    start = [np.full(1 if slot.is_row_wise else dim, slot.initial, np.float32) for slot in optimizer.slots]
    slots = np.concatenate([np.zeros(0, np.float32), *start])
    expected, expected_slots = weights.astype(np.float64), slots.astype(np.float64)
    for _ in range(3):
        weights, slots = update(optimizer, weights, slots, gradient)
        expected, expected_slots = reference(optimizer, expected, expected_slots, gradient.astype(np.float64), 0.1)
    np.testing.assert_allclose(slots, expected_slots, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(weights, expected, rtol=2e-5, atol=2e-5)


def test_a_learning_rate_function_is_called_before_each_update():
    rates = iter([0.5, 0.25])
    engine = CpuEngine([FeatureSpec("f", TableSpec("t", 2, 1, SGD(lambda: next(rates)), "sum"))], seed=0)
    batch = IdBatch(np.zeros(1, np.int64), np.array([[0, 1]]))
    weights = [engine.lookup(batch).item()]
    for _ in range(2):
        engine.apply_gradients(batch, np.ones((1, 1), np.float32))
        weights.append(engine.lookup(batch).item())
    np.testing.assert_allclose(np.diff(weights), [-0.5, -0.25], rtol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "setting"),
    [
        (SGD(0.1, use_gradient_accumulation=False), "use_gradient_accumulation"),
        (Adam(0.1, lazy_adam=False), "lazy_adam"),
    ],
)
def test_a_setting_that_the_engine_does_not_have_is_refused_by_name(optimizer, setting):
    with pytest.raises(ConfigError, match=f"{setting} must be True") as caught:
        CpuEngine([FeatureSpec("f", TableSpec("t", 2, 1, optimizer))], seed=0)
    assert caught.value.where == "table t"


@pytest.mark.parametrize(
    "plain", [SGD(0.1), Adagrad(0.1), RowWiseAdagrad(0.1, 0.5), AdagradMomentum(0.1, 0.9), Adam(0.1), FTRL(0.1)], ids=lambda one: type(one).__name__
)  # fmt: skip
@pytest.mark.parametrize("dim", [1, 4, 19])
def test_a_row_changes_from_the_update_on_that_admits_it(plain, dim):
    optimizer, source = replace(plain, admit_after=3, weight_decay_factor=0.1), np.random.default_rng(dim)
    weights, gradient = source.normal(size=dim).astype(np.float32), source.normal(size=dim).astype(np.float32)
    start = np.concatenate(
        [np.full(1 if slot.is_row_wise else dim, slot.initial, np.float32) for slot in optimizer.slots]
    )
    slots = start
    for count in (1, 2):
        found, slots = update(optimizer, weights, slots, gradient)
        np.testing.assert_array_equal(found, weights)
        np.testing.assert_array_equal(slots, [*start[:-1], count])
    admitted, slots = update(optimizer, weights, slots, gradient)
    expected, own = update(replace(plain, weight_decay_factor=0.1), weights, start[:-1], gradient)
    np.testing.assert_array_equal(admitted, expected)
    np.testing.assert_array_equal(slots, [*own, 3])
    _, later = update(optimizer, admitted, slots, gradient)
    assert later[-1] == 3, "an admitted row is not counted any more"


@pytest.mark.parametrize("value", [0, 1.5, (1 << 20) + 1, True])
def test_an_update_that_admits_must_be_a_whole_number(value):
    with pytest.raises(ConfigError, match="admit_after must be"):
        SGD(0.1, admit_after=value)
