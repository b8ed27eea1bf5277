"""The settings that the tpu engine refuses are those that SparseCore's program leaves out, and no others."""

from __future__ import annotations

import pytest

from tests.support.processes import PATIENCE_SECS
from trainer.errors import UnsupportedSetting
from trainer.tables import FeatureSpec, TableSpec, optimizers
from trainer.tables.tpu.unsupported import refuse_for_sparse_core
from trainer.tpu_check.environment import TpuEnvironment

pytestmark = pytest.mark.tpu_aot

IGNORED = [
    ("SGD", {"clip_weight_min": -1.0, "clip_weight_max": 1.0}),
    ("Adagrad", {"clip_weight_min": -1.0}),
    ("Adagrad", {"clip_gradient_min": -1.0, "clip_gradient_max": 1.0}),
    ("SGD", {"use_gradient_accumulation": False}),
    ("Adam", {"lazy_adam": False}),
    ("FTRL", {"allow_zero_accumulator": True}),
]
#: It changes no value, so the engine takes it although the program leaves it out.
HARMLESS = [("SGD", {"low_dimensional_packing_status": True})]
HONOURED = [
    ("AdagradMomentum", {"use_nesterov": True}),
    ("AdagradMomentum", {"momentum": 0.5}),
    ("AdagradMomentum", {"exponent": 3.0}),
    ("AdagradMomentum", {"beta2": 0.5}),
    ("AdagradMomentum", {"epsilon": 0.5}),
    ("Adam", {"sum_inside_sqrt": False}),
    ("Adam", {"beta_1": 0.5}),
    ("Adam", {"beta_2": 0.5}),
    ("Adam", {"epsilon": 0.5}),
    ("FTRL", {"beta": 0.5}),
    ("FTRL", {"l1_regularization_strength": 0.5}),
    ("FTRL", {"l2_regularization_strength": 0.5}),
    ("FTRL", {"learning_rate_power": -0.7}),
    ("FTRL", {"multiply_linear_by_learning_rate": True}),
    ("Adagrad", {"learning_rate": 0.5}),
]


def test_refused_settings_change_nothing_and_the_others_something(tpu_environment: TpuEnvironment) -> None:
    changed = [*IGNORED, *HARMLESS, *HONOURED]
    kinds = sorted({kind for kind, _ in changed})
    wanted = [(kind, {"learning_rate": 0.1}) for kind in kinds]
    wanted += [(kind, {"learning_rate": 0.1, **settings}) for kind, settings in changed]
    found = tpu_environment.run(
        "lowering", "tests.tpu_aot.lowered_updates", {"optimizers": wanted}, timeout_secs=PATIENCE_SECS
    )
    plain = dict(zip(kinds, found["programs"], strict=False))
    for (kind, settings), program in zip(changed, found["programs"][len(kinds) :], strict=True):
        is_left_out = program == plain[kind]
        assert is_left_out == ((kind, settings) not in HONOURED), (kind, settings)
        assert is_refused(kind, settings) == ((kind, settings) in IGNORED), (kind, settings)


def is_refused(kind: str, settings: dict) -> bool:
    optimizer = getattr(optimizers, kind)(**{"learning_rate": 0.1, **settings})
    try:
        refuse_for_sparse_core([FeatureSpec("f", TableSpec("t", 8, 8, optimizer))])
    except UnsupportedSetting:
        return True
    return False
