"""A slice that has the dense part alone, with the tables on parameter servers: real runs on emulated devices, beside the cpu's."""

from __future__ import annotations

import json
from itertools import count

import numpy as np
import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.run.test_chaos import kill_after, run_to_the_end
from tests.trainer.run.test_loop import equal_arrays, saved
from tests.trainer.run.test_served_loop import on_servers
from tests.trainer.run.test_tpu_training import assert_close
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, NonFiniteLoss
from trainer.run.loop import train

pytest.importorskip("tensorflow")

from tests.support.emulated_slice import EmulatedSlice

NUMBERS = count(1)
#: Sums of these gradients are exact: a linear model of few bits, squared losses, rates that are powers of two.
EXACT = {"deep": False, "linear": True, "linear_learning_rate": 0.5}


@pytest.fixture(scope="module")
def servers():
    with thread_servers(2) as made:
        yield made


def trained(data, servers, folder, slice_=None, **options):
    """The report of one run on the servers; its dense part is on ``slice_`` or in this process."""
    settings = config(folder, engine="cpu" if slice_ is None else "tpu", **options)
    return train(
        data.solution,
        data.read,
        settings,
        read_labels=data.read_labels,
        slice_=slice_,
        make_engine=on_servers(servers, next(NUMBERS)),
    )


def assert_same_bits(one, other) -> None:
    first, second = saved(one), saved(other)
    assert equal_arrays(first, second)
    for name, array in first.arrays.items():
        assert array.tobytes() == second.arrays[name].tobytes(), name


#: Kinds of tables that are in no slice, and the options that a slice's tables do not have.
KINDS = {
    "plain": {"linear": True},
    "hashed": {"hashed": {"user": {"capacity": 60}, "words": {"capacity": 200}}, "staleness": 2},
    "pruned": {"pruning": {"budget": 0.5, "round_steps": 3}, "linear": True},
    "hot": {"hot_rows": {"words": 20, "user": 7}, "staleness": 3},
    "options": {"embedding_optimizer": "row_wise_adagrad", "admit_after": 2, "embedding_weight_decay": 0.01, "staleness": 4,
                "sequences": {"words": {"length": 3, "encoder": "sasrec", "layers": 1}}},
    "networks": {"network": "dcn", "dropout": 0.2, "embedding_dropout": 0.1, "dense_optimizer": "adagrad", "passes": 2,
                 "held_out_share": 0.3, "partitions_per_epoch": 1},
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.usefixtures("in_tensorflow")
@pytest.mark.parametrize("kind", KINDS)
def test_one_device_trains_the_bits_of_the_cpu(servers, tmp_path, kind):
    """The order of sums is that of the cpu, so all bits are equal; staleness is counted as there."""
    data, options = Synthetic(2, 150), {"partitions_per_epoch": 2, **KINDS[kind]}
    expected = trained(data, servers, tmp_path / "cpu", **options)
    found = trained(data, servers, tmp_path / "slice", EmulatedSlice(1), **options)
    assert_same_bits(tmp_path / "slice", tmp_path / "cpu")
    assert found.staleness == expected.staleness
    assert found.staleness.most == options.get("staleness", 0)
    assert (found.history, found.held_out, found.ledger) == (expected.history, expected.held_out, expected.ledger)
    assert found.hot == expected.hot
    assert found.idle_units == expected.idle_units


@pytest.mark.medium
@pytest.mark.parametrize(("staleness", "sharded_bytes"), [(0, 1 << 40), (1, 1 << 40), (3, 0)])
def test_several_devices_train_the_weights_of_the_cpu_to_float_sums(
    servers, tmp_path, monkeypatch, staleness, sharded_bytes
):
    """With a whole dense update on each device, and with one that they share out."""
    monkeypatch.setattr("trainer.model.sharded_step.SHARDED_BYTES", sharded_bytes)
    data, options = Synthetic(2, 150), {"linear": True, "staleness": staleness, "dense_optimizer": "adagrad"}
    expected = trained(data, servers, tmp_path / "cpu", **options)
    found = trained(data, servers, tmp_path / "slice", EmulatedSlice(4), **options)
    assert_close(tmp_path / "slice", tmp_path / "cpu", 1e-6)
    assert found.staleness == expected.staleness
    for mine, theirs in zip(found.history, expected.history, strict=True):
        assert mine.scores.log_loss == pytest.approx(theirs.scores.log_loss, abs=1e-6)


@pytest.mark.medium
def test_one_array_enters_a_device_and_one_leaves_it_each_step(servers, tmp_path):
    """Activations of 2 tables of 4 columns and of the linear part, 2 dense numbers, a label and a weight; out: gradients, a logit, and hidden units."""
    slice_ = EmulatedSlice(2)
    report = trained(Synthetic(1, 150), servers, tmp_path, slice_, linear=True)
    steps = report.staleness.total
    columns_in, columns_out, units = 2 * 4 + 2 + 2 + 1 + 1, 2 * 4 + 2 + 1, report.idle_units.units
    assert len(slice_.transfers) == steps > 2
    assert set(slice_.transfers) == {(128 * columns_in * 4, (128 * columns_out + 2 * units) * 4)}


@pytest.mark.medium
@pytest.mark.usefixtures("in_tensorflow")
def test_a_run_resumes_on_the_cpu_and_on_other_devices(servers, tmp_path):
    data, options = Synthetic(3, 150), {"linear": True, "staleness": 2, "partitions_per_epoch": 1}
    trained(data, servers, tmp_path / "straight", **options)
    for k, slice_ in enumerate((EmulatedSlice(1), None, EmulatedSlice(1))):
        settings = config(tmp_path / "moved", engine="cpu" if slice_ is None else "tpu", **options)
        report = train(data.solution, data.read, settings, read_labels=data.read_labels, slice_=slice_,
                       make_engine=on_servers(servers, next(NUMBERS)), stop=lambda: True)  # fmt: skip
        assert (report.epochs, report.finished, bool(report.resumed_from)) == (1, k == 2, bool(k))
    assert report.ledger.exact
    assert_same_bits(tmp_path / "moved", tmp_path / "straight")
    in_slice = train(Synthetic(4, 150).solution, Synthetic(4, 150).read,
                     config(tmp_path / "moved", engine="tpu", **{**options, "staleness": 1}), slice_=EmulatedSlice(2))  # fmt: skip
    assert (in_slice.epochs, in_slice.finished) == (1, True), "its tables may go on in the slice"


@pytest.mark.medium
def test_sums_over_devices_are_exact_where_floats_are(tmp_path):
    """The step of 1, 2 and 4 devices on numbers of few bits: equal bits in every array."""
    from trainer.model.heads import Head
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.run.weights.slice_dense import SliceDense
    from transforms.types import Dense, DType, Ragged

    options = config(tmp_path, batch_rows=8, dense_optimizer="sgd", dense_learning_rate=0.5, engine="tpu", **EXACT)
    inputs = [TypedInput("words", Ragged(DType.INT64, 9)), TypedInput("price", Dense(DType.FLOAT32))]
    layout = lay_out(inputs, options)
    rng = np.random.default_rng(3)
    linear, dense, labels = (rng.integers(-4, 5, (8, width)).astype(np.float32) for width in (1, layout.dense_width, 1))
    found = []
    for replicas in (1, 2, 4):
        model = SliceDense(layout, options, Head("regression"), EmulatedSlice(replicas))
        steps = [
            model.step(np.zeros((8, 0), np.float32), linear + k, dense, labels[:, 0], np.ones(8, np.float32))
            for k in range(3)
        ]
        found.append([one.tobytes() for one in (*(array for step in steps for array in step), *model.state().values())])
        assert np.abs(steps[-1][2]).max() > 0
    assert found[0] == found[1] == found[2]


@pytest.mark.medium
@pytest.mark.parametrize("dense_optimizer", ["sgd", "adagrad", "adam", "lamb", "lars", "newton"])
@pytest.mark.parametrize(("replicas", "hosts"), [(1, 2), (3, 2), (4, 3)])
def test_a_step_of_several_slices_is_that_of_several_hosts(tmp_path, dense_optimizer, replicas, hosts):
    """Gradients leave a slice, and their sum over hosts enters it; 100 events on 2 and 3 hosts, which no number of devices divides."""
    from trainer.model.dense_model import DenseModel
    from trainer.model.heads import Head
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.run.weights.slice_dense import SliceDense
    from transforms.types import Dense, DType, Ragged

    options = config(tmp_path, batch_rows=100, dense_optimizer=dense_optimizer, linear=True, engine="tpu")
    inputs = [TypedInput("words", Ragged(DType.INT64, 9)), TypedInput("price", Dense(DType.FLOAT32))]
    layout = lay_out(inputs, options)
    rows = options.rows_of_host(hosts)
    here = DenseModel(layout, options, Head("binary"), rows=rows)
    there = SliceDense(layout, options, Head("binary"), EmulatedSlice(replicas), hosts=hosts)
    assert there.sizes == here.sizes
    assert_equal_states(there.state(), here.state(), 0.0)
    rng = np.random.default_rng(3)
    for k in range(4):
        deep, linear, dense = (
            rng.normal(size=(rows, width)).astype(np.float32)
            for width in (layout.features[0].width, 1, layout.dense_width)
        )
        labels, weights = (rng.random((2, rows)) < 0.6).astype(np.float32)
        expected, found = (one.gradients(deep, linear, dense, labels, weights) for one in (here, there))
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(mine, theirs, rtol=3e-6, atol=3e-6, err_msg=str(k))
        total = (expected[3] + rng.normal(size=len(found[3]), scale=0.01)).astype(np.float32)  # of all hosts
        here.apply(total)
        there.apply(total)
        assert there.idle_units == here.idle_units
        assert_equal_states(there.state(), here.state(), 3e-6)


@pytest.mark.medium
def test_the_programs_of_several_slices_are_compiled_by_xla(tmp_path):
    """As a slice compiles them: with shapes that are known, and the number of the replica as a value. XLA's CPU compiler stands in for the TPU's."""
    import tensorflow as tf

    from trainer.model.dense_step import DensePart
    from trainer.model.heads import Head
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.model.packed_step import PackedStep
    from transforms.types import Dense, DType, Ragged

    options = config(tmp_path, batch_rows=8, dense_optimizer="adagrad", linear=True, engine="tpu")
    inputs = [TypedInput("words", Ragged(DType.INT64, 9)), TypedInput("price", Dense(DType.FLOAT32))]
    layout = lay_out(inputs, options)
    packed = PackedStep.of(DensePart.build(layout, options, Head("binary")), layout, 8)
    entering = np.random.default_rng(1).random((8, packed.columns), np.float32)
    segments = np.random.default_rng(2).random((3, packed.segment_floats(3)), np.float32)

    def first(state, array, replica):
        return packed.differentiate(state, array, replica, replicas=3, total_of=tf.identity)[0]

    def second(state, array, replica):
        return packed.update(state, array, replica, replicas=3, total_of=tf.identity)

    state = tf.nest.map_structure(tf.constant, packed.dense.read_state())
    for replica in range(3):
        for program, array in ((first, entering), (second, segments[replica : replica + 1])):
            given = state, tf.constant(array), tf.constant(replica)
            compiled = tf.nest.flatten(tf.function(program, jit_compile=True, autograph=False)(*given))
            for one, other in zip(compiled, tf.nest.flatten(program(*given)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    answers = np.stack([first(state, tf.constant(entering), tf.constant(replica)).numpy() for replica in range(3)])
    flat = packed.dense_gradients(answers)
    assert len(flat) == packed.gradient_floats
    np.testing.assert_array_equal(packed.pack_gradients(flat, 3), answers[:, 8 * packed.answer_columns :])


def assert_equal_states(one, other, tolerance) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_divergence_is_an_error_before_a_checkpoint(servers, tmp_path):
    with pytest.raises(NonFiniteLoss):
        trained(Synthetic(2, 500), servers, tmp_path, EmulatedSlice(2), dense_optimizer="sgd", dense_learning_rate=1e30)
    assert saved(tmp_path) is None


def refused(servers, tmp_path, slice_, **options):
    data = Synthetic(1, 10)
    settings = config(tmp_path / "run", engine="tpu", **options)
    with pytest.raises(ConfigError) as caught:
        train(data.solution, pytest.fail, settings, slice_=slice_, make_engine=on_servers(servers, next(NUMBERS)))
    assert not (tmp_path / "run").exists()
    return caught.value


@pytest.mark.medium
def test_devices_do_not_need_to_divide_a_batch(servers, tmp_path):
    """Events of weight 0 are added: the weights are those of the cpu."""
    data, options = Synthetic(2, 150), {"linear": True, "batch_rows": 101, "dense_optimizer": "adagrad"}
    expected = trained(data, servers, tmp_path / "cpu", **options)
    found = trained(data, servers, tmp_path / "slice", EmulatedSlice(4), **options)
    assert_close(tmp_path / "slice", tmp_path / "cpu", 1e-6)
    assert found.ledger == expected.ledger


def test_what_devices_cannot_copy_is_refused_before_data_is_read(servers, tmp_path):
    moving = refused(servers, tmp_path, EmulatedSlice(2), network="tests.trainer.model.networks:busy")
    assert "trained variables only" in moving.what
    assert refused(servers, tmp_path, None).where == "engine"


@pytest.mark.slow
def test_a_killed_run_leaves_no_trace(tmp_path):
    """SIGKILL of the process with its servers: the next one loads the rows of the newest checkpoint on new servers."""
    options = {"engine": "tpu", "servers": 2, "passes": 2, "linear": True, "partitions": 3, "staleness": 2}
    program = ("tests.trainer.synthetic", json.dumps(options))
    straight = run_to_the_end(tmp_path / "straight", program)
    for batches, extra_secs in ((2, 0.0), (9, 1.0)):
        assert kill_after(tmp_path / "killed", batches, extra_secs, program), "the run ended before it was killed"
    resumed = run_to_the_end(tmp_path / "killed", program)
    assert resumed["resumed_from"]
    assert (resumed["ledger"], resumed["history"]) == (straight["ledger"], straight["history"])
    assert_same_bits(tmp_path / "killed", tmp_path / "straight")
