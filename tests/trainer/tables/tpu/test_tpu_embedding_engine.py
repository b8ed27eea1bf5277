"""The engine of v2 to v4 under a planned strategy: configuration, initial values, states, and the operators of a step.

Its tables are kept by hardware that only a TPU has: what loads and retrieves them is left out here.
"""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pytest

from tests.trainer.tables.table_states import assert_same, random_states
from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.tpu.engines import EVENTS, elements_of, engine_on, features
from trainer.tables import Adagrad, Adam, FeatureSpec, Quantization, TableSpec
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.tpu_embedding_engine import TpuEmbeddingEngine
from trainer.tables.tpu.training_loop import training_loop

tf = pytest.importorskip("tensorflow")

REPLICAS = 4


def engine_of(made_of, *, replicas=REPLICAS, hosts=1, pipelined=False):
    with planned_strategy(PlannedSlice(replicas, hosts, sparse_cores=0), on_cpu=hosts == 1).scope():
        return TpuEmbeddingEngine(made_of, seed=3, events_per_replica=EVENTS, pipelined=pipelined)


@pytest.fixture
def without_hardware(monkeypatch):
    from tensorflow.python.tpu import tpu, tpu_embedding_v2
    from tensorflow.python.tpu.ops import tpu_ops

    monkeypatch.setattr(tpu, "initialize_system_for_tpu_embedding", mock.Mock())
    monkeypatch.setattr(tpu_embedding_v2, "_load_variables_impl", mock.Mock())
    monkeypatch.setattr(tpu_embedding_v2, "_retrieve_variables_impl", mock.Mock())
    monkeypatch.setattr(tpu_ops, "is_tpu_embedding_initialized", lambda: False)


@pytest.mark.parametrize("pipelined", [False, True])
def test_the_configuration_holds_every_setting(pipelined):
    table = TableSpec(
        "one", 100, 5,
        Adam(lambda: 0.1, 0.8, 0.9, 1e-3, False, False, clip_weight_min=-1.0, clip_gradient_max=2.0, weight_decay_factor=0.5,
             multiply_weight_decay_factor_by_learning_rate=True, low_dimensional_packing_status=True),
        quantization=Quantization(16, -1.0, 0.5),
    )  # fmt: skip
    made_of = [
        FeatureSpec("a", table),
        FeatureSpec("b", table, 3),
        FeatureSpec("c", TableSpec("two", 3, 4, Adagrad(0.25))),
    ]
    found = engine_of(made_of, pipelined=pipelined).configuration
    one, two = found.table_descriptor
    assert (one.name, one.vocabulary_size, one.dimension) == ("one", 100, 5)
    assert (two.name, two.vocabulary_size) == ("two", 3)
    parameters = one.optimization_parameters
    assert (parameters.adam.beta1, parameters.adam.beta2, parameters.adam.use_non_lazy_adam) == (
        pytest.approx(0.8), pytest.approx(0.9), True,
    )  # fmt: skip
    assert not parameters.adam.use_sum_inside_sqrt
    assert parameters.clipping_limits.lower.value == -1.0
    assert parameters.gradient_clipping_limits.upper.value == 2.0
    assert parameters.weight_decay_factor == 0.5
    assert parameters.multiply_weight_decay_factor_by_learning_rate
    assert parameters.low_dimensional_packing_status
    assert parameters.learning_rate.HasField("dynamic")
    assert parameters.simulated_quantization.num_buckets == 16
    assert two.optimization_parameters.learning_rate.constant == 0.25
    assert [(one.table_id, list(one.input_shape)) for one in found.feature_descriptor] == [
        (0, [8]),
        (0, [24]),
        (1, [8]),
    ]
    assert (found.num_hosts, found.num_tensor_cores) == (1, REPLICAS)
    assert found.pipeline_execution_with_tensor_core == pipelined


def test_the_configuration_of_several_hosts():
    small = FeatureSpec("f", TableSpec("t", 3, 4, Adagrad(0.25)))
    found = engine_of([small], replicas=8, hosts=4).configuration
    assert (found.num_hosts, found.num_tensor_cores) == (4, 8)
    assert found.table_descriptor[0].vocabulary_size == 4  # a row for each host


@pytest.mark.usefixtures("without_hardware")
def test_states_move_to_the_engine_of_sparse_core_and_back():
    engine = engine_of(features())
    engine.build()
    assert all(not len(state.rows) for state in engine.state().values())
    states = random_states(engine.tables)
    engine.load_state(states)
    assert_same(engine.state(), states)
    other = engine_on(2)
    other.load_state(engine.state())
    assert_same(other.state(), states)
    rows = np.arange(37)
    assert engine.weights_of("three", rows).tobytes() == other.weights_of("three", rows).tobytes()


@pytest.mark.usefixtures("without_hardware")
def test_a_step_enqueues_receives_and_sends():
    engine = engine_of(features(), pipelined=True)
    engine.build()

    batch = batch_of([[[1, 2]] * REPLICAS * EVENTS for _ in features()])
    loop = training_loop(engine, lambda activations: 2.0 * activations)
    iterator = iter(elements_of(engine, [(batch, ())]))
    graph = loop.get_concrete_function(iterator, tf.TensorSpec([], tf.int32)).graph.as_graph_def()
    names = Counter(node.op for function in graph.library.function for node in function.node_def)
    for operator in (
        "EnqueueTPUEmbeddingArbitraryTensorBatch",
        "RecvTPUEmbeddingActivations",
        "SendTPUEmbeddingGradients",
    ):
        assert names[operator] == 1, operator
