"""The loop under TensorFlow's real pipelining pass: which effects a step has, in which order."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.trainer.tables.test_engine import batch_of
from tests.trainer.tables.tpu.engines import EVENTS, elements_of, ragged_inputs
from trainer.tables import Adagrad, Adam, FeatureSpec, TableSpec
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tables.tpu.training_loop import training_loop

tf = pytest.importorskip("tensorflow")

REPLICAS = 2
#: TensorFlow's passes that cut a loop into programs for TPUs, the pipelining pass among them.
PASSES = "func.func(tf-executor-to-functional-conversion),tf-replicated-clustering-bridge-v2"
_LOOKUP = '"tf.XlaSparseDenseMatmulWithStaticBufferSize"'
_UPDATE = r'"tf.XlaSparseDenseMatmulGradWith\w+"'


def features():
    return [
        FeatureSpec("a", TableSpec("one", 100, 5, Adam(0.1))),
        FeatureSpec("b", TableSpec("two", 500, 6, Adagrad(0.1), "sum"), 3),
    ]


def step_inputs():
    bags = [[[event, event + 1] for event in range(REPLICAS * EVENTS)] for _ in features()]
    return batch_of(bags), (np.arange(REPLICAS * EVENTS, dtype=np.float32),)


def elements(engine):
    return elements_of(engine, [step_inputs()] * 2, (tf.TensorSpec([EVENTS]),))


@pytest.fixture(scope="module", params=[0, 1], ids=["serial", "pipelined"])
def engine(request):
    with planned_strategy(PlannedSlice(REPLICAS)).scope():
        engine = SparseCoreEngine(features(), seed=0, events_per_replica=EVENTS, pipelined=bool(request.param))
        engine.embedding.build()
    assert engine.staleness == request.param
    return engine


def functions_of(module: str) -> dict[str, str]:
    """Each function of an MLIR module by its name."""
    parts = re.split(r"\n(?=  func\.func )", module)
    return {re.search(r"@([\w.]+)\(", part).group(1): part for part in parts[1:]}


def programs(engine) -> list[tuple[str, bool]]:
    """The programs of TPUs, in order, each with whether it is inside the loop."""
    with engine.strategy.scope():
        weights = tf.Variable(tf.ones([engine.width, 1]), aggregation=tf.VariableAggregation.SUM)

    def dense_step(activations, targets):
        with tf.GradientTape() as tape:
            tape.watch(activations)
            loss = tf.reduce_sum(tf.square(tf.matmul(activations, weights)[:, 0] - targets))
        by_activations, by_weights = tape.gradient(loss, [activations, weights])
        weights.assign(tf.ensure_shape(weights.read_value() - 0.1 * by_weights, weights.shape))
        return by_activations

    loop = training_loop(engine, dense_step)
    return programs_of(loop.get_concrete_function(iter(elements(engine)), tf.TensorSpec([], tf.int32)))


def programs_of(traced) -> list[tuple[str, bool]]:
    """The programs of TPUs of a traced loop, after TensorFlow's passes."""
    # the usual passes before these merge equal constants of the loop, after which the pipelining pass fails
    module = tf.mlir.experimental.convert_function(traced, pass_pipeline="")
    functions = functions_of(tf.mlir.experimental.run_pass_pipeline(module, PASSES))
    (main,) = (text for text in functions.values() if "tf_device.cluster_func" in text)
    start = main.index('"tf.WhileRegion"')
    end = start + re.search(r"\n    \}\)", main[start:]).start()
    calls = re.finditer(r'"tf_device.cluster_func".*?func = @([\w.]+)', main)
    return [(functions[call.group(1)], start < call.start() < end) for call in calls]


def effects_of(program: str) -> str:
    """U: tables are updated, D: the dense part runs, L: rows are looked up; in this order."""
    present = {"U": re.search(_UPDATE, program), "D": '"tf.MatMul"' in program, "L": _LOOKUP in program}
    return "".join(letter for letter, found in present.items() if found)


#: The effects of each program, and whether it is in the loop. Pipelined: before the loop steps 0 and 1 begin; pass i of the loop updates by
#: step i - 2, runs the dense part of i - 1 and looks up i.
SERIAL = [("UDL", True)]
PIPELINED = [("DL", False), ("L", False), ("UDL", True), ("U", False), ("UD", False)]


def test_a_pipelined_loop_is_stale_by_exactly_one_step(engine):
    found = programs(engine)
    assert [(effects_of(program), inside) for program, inside in found] == (
        PIPELINED if engine.is_pipelined else SERIAL
    )
    if not engine.is_pipelined:
        return
    body = found[2][0]
    updates = re.findall(rf"%(\w+)(?:, %\w+)* = {_UPDATE}\(([^)]*)\)", body)
    lookups = re.findall(rf"{_LOOKUP}\(([^)]*)\)", body)
    assert len(updates) == len(lookups) == 2
    for _, arguments in updates:
        gradients = arguments.split(", ")[4]
        assert re.fullmatch(r"%arg\d+", gradients), "the update takes the gradients of an earlier pass"
    tables = {arguments.split(", ")[4] for arguments in lookups}
    assert tables == {f"%{table}" for table, _ in updates}, "the lookup reads the tables after this update"


def test_elements_are_the_inputs_of_each_replica_in_order(engine):
    drawn = list(elements(engine))
    assert len(drawn) == 2 * REPLICAS
    batch, _ = step_inputs()
    for k, ((ids, gains), (targets,)) in enumerate(drawn):
        replica = k % REPLICAS
        expected_ids, expected_gains = ragged_inputs(engine, batch)[replica]
        for found, expected in zip((*ids, *gains), (*expected_ids, *expected_gains), strict=True):
            np.testing.assert_array_equal(found.values, expected.values)
            np.testing.assert_array_equal(found.row_splits, expected.row_splits)
        assert list(targets) == list(range(replica * EVENTS, (replica + 1) * EVENTS))
