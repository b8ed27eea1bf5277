"""The compiled step of training under TensorFlow's real passes, on slices that are planned."""

from __future__ import annotations

import pytest

from tests.trainer.synthetic import Synthetic, config
from tests.trainer.tables.tpu.engines import elements_of
from tests.trainer.tables.tpu.test_training_loop import PIPELINED, SERIAL, effects_of, programs_of
from trainer.run.preparation.preparation import prepare_run
from trainer.run.weights.tpu_weights import TpuWeights
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.connected_slice import ConnectedSlice
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.training_loop import scoring_loop, training_loop

tf = pytest.importorskip("tensorflow")

#: The effects of each program of a scoring loop, and whether it is inside the loop, by staleness: TensorFlow pipelines it as it does training.
SCORED = {0: [("DL", True)], 1: [("DL", False), ("L", False), ("DL", True), ("D", False)]}


@pytest.mark.medium
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize(("network", "sharded_bytes"), [("dlrm", 1 << 40), ("dcn", 1 << 40), ("dlrm", 0)])
def test_the_step_of_training_is_pipelined_as_its_staleness_says(
    tmp_path, monkeypatch, staleness, network, sharded_bytes
):
    """Also with a dense update that the devices share out."""
    monkeypatch.setattr("trainer.model.sharded_step.SHARDED_BYTES", sharded_bytes)
    data = Synthetic(1, 100)
    options = config(tmp_path, engine="tpu", staleness=staleness, network=network, linear=True, dropout=0.1)
    prepared = prepare_run(data.solution, options, data.read_labels, on_skip=pytest.fail)
    slice_ = ConnectedSlice(planned_strategy(PlannedSlice(2), on_cpu=True), SparseCoreSettings())
    weights = TpuWeights(prepared.layout, options, prepared.head, slice_)
    loop = training_loop(weights.engine, weights._replica_step)
    elements = elements_of(weights.engine, [], weights._other_specs(options.batch_rows // 2))
    found = programs_of(loop.get_concrete_function(iter(elements), tf.TensorSpec([], tf.int32)))
    assert [(effects_of(program), inside) for program, inside in found] == (PIPELINED if staleness else SERIAL)
    assert any('"tf.XlaReduceScatter"' in program for program, _ in found) is (sharded_bytes == 0)
    assert weights.engine.staleness == staleness


@pytest.mark.medium
@pytest.mark.parametrize("staleness", [0, 1])
def test_scoring_is_one_loop_of_lookups_that_updates_nothing(tmp_path, staleness):
    data = Synthetic(1, 100)
    options = config(tmp_path, engine="tpu", staleness=staleness, network="dlrm", linear=True, dropout=0.1)
    prepared = prepare_run(data.solution, options, data.read_labels, on_skip=pytest.fail)
    slice_ = ConnectedSlice(planned_strategy(PlannedSlice(2), on_cpu=True), SparseCoreSettings())
    weights = TpuWeights(prepared.layout, options, prepared.head, slice_)
    loop = scoring_loop(weights.engine, weights._replica_predict)
    others = weights._other_specs(options.batch_rows // 2)[:1]
    elements = elements_of(weights.engine, [], others)
    found = programs_of(loop.get_concrete_function(iter(elements), tf.TensorSpec([], tf.int32)))
    assert [(effects_of(program), inside) for program, inside in found] == SCORED[staleness]
