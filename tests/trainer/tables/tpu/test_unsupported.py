"""What TPUs would ignore is refused at construction, by name."""

from __future__ import annotations

import pytest

from trainer.errors import ConfigError, UnsupportedSetting
from trainer.tables import FTRL, SGD, Adagrad, Adam, FeatureSpec, RowWiseAdagrad, TableSpec
from trainer.tables.tpu.unsupported import refuse_for_sparse_core, refuse_for_tpu_embedding


def features(optimizer):
    return [FeatureSpec("f", TableSpec("t", 10, 4, optimizer))]


@pytest.mark.parametrize(
    ("optimizer", "setting"),
    [
        (SGD(0.1, clip_weight_min=-1.0), "clip_weight_min"),
        (SGD(0.1, clip_weight_max=1.0), "clip_weight_max"),
        (Adagrad(0.1, clip_gradient_min=-1.0), "clip_gradient_min"),
        (Adagrad(0.1, clip_gradient_max=1.0), "clip_gradient_max"),
        (SGD(0.1, weight_decay_factor=0.1), "weight_decay_factor"),
        (SGD(0.1, multiply_weight_decay_factor_by_learning_rate=True), "multiply_weight_decay_factor_by_learning_rate"),
        (SGD(0.1, use_gradient_accumulation=False), "use_gradient_accumulation"),
        (Adam(0.1, lazy_adam=False), "lazy_adam"),
        (FTRL(0.1, allow_zero_accumulator=True), "allow_zero_accumulator"),
        (RowWiseAdagrad(0.1), "optimizer"),
        (SGD(0.1, admit_after=2), "admit_after"),
    ],
)
def test_settings_that_sparse_cores_program_leaves_out_are_refused(optimizer, setting):
    with pytest.raises(UnsupportedSetting, match=rf"^{setting} must be .* on ") as caught:
        refuse_for_sparse_core(features(optimizer))
    assert "table t" in caught.value.where
    assert "cpu engine" in caught.value.next_step


def test_what_the_engines_have_passes():
    refuse_for_sparse_core(features(Adagrad(lambda: 0.1, low_dimensional_packing_status=True)))
    refuse_for_tpu_embedding(features(Adam(0.1, lazy_adam=False, clip_weight_min=-1.0, weight_decay_factor=0.1)))
    with pytest.raises(UnsupportedSetting, match=r"^optimizer must be"):
        refuse_for_tpu_embedding(features(RowWiseAdagrad(0.1)))
    with pytest.raises(UnsupportedSetting, match="admit_after must be 1 on TPU"):
        refuse_for_tpu_embedding(features(SGD(0.1, admit_after=2)))
    for refuse in (refuse_for_sparse_core, refuse_for_tpu_embedding):
        with pytest.raises(ConfigError, match="at least one feature"):
            refuse([])
