"""Connecting to TPUs: what is refused, and the programs of a lookup and of an update, which a planned slice traces."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.trainer.tables.tpu.engines import EVENTS, elements_of, features
from trainer.errors import BadBatch, ConfigError
from trainer.run.weights.slice_checks import check_embedding_hardware
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.tpu.connected_slice import ConnectedSlice, clear_errors, connect
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy

tf = pytest.importorskip("tensorflow")

SETTINGS = SparseCoreSettings()


def test_a_machine_without_tpus_is_refused():
    with pytest.raises(ConfigError, match="the tpu engine must reach a TPU") as caught:
        connect("local", SETTINGS, pytest.fail)
    error = caught.value
    assert error.where == "--tpu local"
    assert "TPUs not found" in error.value
    assert "train with the cpu engine" in error.next_step
    with pytest.raises(ConfigError, match="a TPU must be named"):
        connect(" ", SETTINGS, pytest.fail)


def test_the_machines_of_a_slice_have_equal_shares_of_it_in_their_order():
    assert ConnectedSlice(planned_strategy(PlannedSlice(8, hosts=2)), SETTINGS).machines == 2
    assert ConnectedSlice(planned_strategy(PlannedSlice(8)), SETTINGS).machines == 1
    for tasks in ((0, 1, 0, 1), (0, 0, 0, 1)):
        devices = [f"/job:localhost/replica:0/task:{task}/device:TPU:{k}" for k, task in enumerate(tasks)]
        with pytest.raises(ConfigError, match="equally many devices, in the order of the machines"):
            ConnectedSlice(planned_strategy(PlannedSlice(4, hosts=2), devices=devices), SETTINGS)


def test_a_slice_without_embedding_hardware_holds_no_tables():
    """It trains dense parts whose tables are on servers."""
    check_embedding_hardware(ConnectedSlice(planned_strategy(PlannedSlice(4)), SETTINGS))
    without = planned_strategy(PlannedSlice(4))
    without.extended._tpu_cluster_resolver.tpu_hardware_feature.embedding_feature = 0
    slice_ = ConnectedSlice(without, SETTINGS)
    assert (slice_.holds_tables, slice_.sparse_cores, slice_.replicas) == (False, 0, 4)
    with pytest.raises(ConfigError, match="must have embedding hardware") as caught:
        check_embedding_hardware(slice_)
    assert "--servers" in caught.value.next_step


def test_the_number_of_sparse_cores_is_that_of_the_hardware():
    for sparse_cores in (4, 2, 0):
        slice_ = ConnectedSlice(planned_strategy(PlannedSlice(2, sparse_cores=sparse_cores)), SETTINGS)
        assert (slice_.sparse_cores, slice_.replicas) == (sparse_cores, 2)


@pytest.fixture(scope="module")
def scene():
    slice_ = ConnectedSlice(planned_strategy(PlannedSlice(2), on_cpu=True), SETTINGS)
    engine = slice_.make_engine(features(), seed=3, events_per_replica=EVENTS, pipelined=False)
    return slice_, engine


def operators(program, engine, specs) -> Counter:
    """The operators of a traced program."""
    elements = elements_of(engine, [], specs)
    graph = program.get_concrete_function(iter(elements)).graph.as_graph_def()
    return Counter(
        node.op for part in (graph, *graph.library.function) for node in getattr(part, "node_def", ()) or part.node
    )


def test_a_lookup_is_one_program_without_updates(scene):
    slice_, engine = scene
    found = operators(slice_.lookup_program(engine), engine, ())
    stacks = len(list(engine.stacks()))
    assert found["XlaSparseDenseMatmulWithStaticBufferSize"] == stacks
    assert not any("MatmulGrad" in name for name in found)


def test_an_update_looks_up_and_updates_each_stack(scene):
    slice_, engine = scene
    found = operators(slice_.update_program(engine), engine, (tf.TensorSpec([EVENTS, engine.width]),))
    stacks = len(list(engine.stacks()))
    assert sum(count for name, count in found.items() if name.startswith("XlaSparseDenseMatmulGradWith")) == stacks


def test_ids_beyond_the_buffers_of_a_program_are_a_clear_error():
    told = "Sparse core 0 gets 535 ids while the max ids per sparse core is set to be 256 for table t0_t4. More"
    with pytest.raises(BadBatch, match="must fit in the buffers of the SparseCores") as caught, clear_errors():
        raise tf.errors.InvalidArgumentError(None, None, told)
    assert "--max-ids of headrace train" in caught.value.next_step
    with pytest.raises(tf.errors.InvalidArgumentError, match="another"), clear_errors():
        raise tf.errors.InvalidArgumentError(None, None, "another")
