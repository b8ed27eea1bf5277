"""Hosts that update their segments of the dense weights train the bits of hosts that update all of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.trainer.job.host.test_sharded_weights import assert_equal, stop_and_go_on, trained
from tests.trainer.job.host.training_ways import (
    bucketed,
    by_towers,
    halves,
    in_pipeline,
    in_segments,
    in_turn,
)
from trainer.job.host.dense.sharded_updates import SHARDED_BYTES, ShardedUpdates, pays
from trainer.model.optimizers.segments import BY_ELEMENT
from trainer.planning.host_grid import HostGrid
from transforms.errors import DataError

pytest.importorskip("tensorflow")

pytestmark = pytest.mark.usefixtures("in_tensorflow")  # segments are there


@pytest.mark.parametrize(
    ("name", "hosts", "options"),
    [
        pytest.param("dlrm", 2, {}, marks=pytest.mark.medium),
        pytest.param("dlrm", 3, {"activation": "relu"}, marks=pytest.mark.slow),
        pytest.param("dropout", 4, {}, marks=pytest.mark.slow),  # adagrad
        pytest.param("dcn", 5, {}, marks=pytest.mark.slow),
        pytest.param("dlrm", 4, {"dense_optimizer": "newton", "dense_learning_rate": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_hosts_train_the_bits_of_updates_of_all_weights(prepared_of, name, hosts, options):
    """In one bucket and in several, while a channel is late."""
    scene = prepared_of(name, **options)
    expected = trained(scene, hosts, bucketed(1 << 20), in_turn)
    assert_equal(trained(scene, hosts, in_segments(1 << 20), in_turn), expected)
    assert_equal(trained(scene, hosts, in_segments(700), in_turn, delays=0.001), expected)


@pytest.mark.parametrize(
    ("grid", "values"),
    [
        pytest.param(HostGrid(2, 2), "float32", marks=pytest.mark.medium),
        pytest.param(HostGrid(2, 3), "bf16", marks=pytest.mark.slow),
        pytest.param(None, "bf16", marks=pytest.mark.slow),
    ],
)
def test_hosts_on_a_grid_train_the_bits_of_updates_of_all_weights(prepared_of, grid, values):
    """Also of rounded sums, and where they save and go on."""
    scene, hosts = prepared_of("dlrm"), grid.hosts if grid else 3
    way = {"dense_values": values}
    expected = trained(scene, hosts, bucketed(700, **way), in_turn, grid=grid)
    assert_equal(trained(scene, hosts, in_segments(700, **way), in_turn, delays=0.001, grid=grid), expected)
    assert_equal(trained(scene, hosts, in_segments(700, **way), stop_and_go_on, grid=grid), expected)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [1, 3])
def test_hosts_with_late_updates_train_the_same_bits(prepared_of, staleness):
    scene = prepared_of("dlrm", staleness=staleness)
    train = in_pipeline(staleness)
    expected = trained(scene, 3, bucketed(600), train)
    assert_equal(trained(scene, 3, in_segments(600), train, delays=0.002), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "hosts"), [("adam", 3), ("adagrad", 4)])
def test_hosts_go_on_from_what_they_save(prepared_of, optimizer, hosts):
    """Also after steps that are given up: weights, slots and the number of updates are those of the saved moment."""
    scene = prepared_of("dlrm", dense_optimizer=optimizer)
    expected = trained(scene, hosts, in_segments(700), in_turn)
    assert_equal(trained(scene, hosts, in_segments(700), stop_and_go_on), expected)
    assert_equal(trained(scene, hosts, bucketed(700), stop_and_go_on), expected)


@pytest.mark.slow
def test_other_numbers_of_hosts_go_on_from_a_commit(prepared_of):
    """What three hosts have saved is loaded by two, in segments or not."""
    scene = prepared_of("dlrm")
    saved = trained(scene, 3, in_segments(700), in_turn)[0][1]
    dense = {name: array for name, array in saved.items() if name.startswith("dense/")}

    def go_on(weights, batches):
        weights.load({**weights.initial_arrays(), **dense})
        return in_turn(weights, batches)

    assert_equal(trained(scene, 2, in_segments(700), go_on), trained(scene, 2, bucketed(700), go_on))


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2, 3])
def test_towers_keep_their_modules(prepared_of, hosts):
    """The weights of modules, which the hosts of a tower train, are in no segment."""
    towers = halves(prepared_of("dlrm")[1])
    scene = prepared_of("dlrm", tower_modules={"towers": towers, "compression": 2})
    whole = trained(scene, hosts, by_towers(towers), in_turn)
    assert_equal(trained(scene, hosts, by_towers(towers, sharded_bytes=0, bucket_bytes=700), in_turn), whole)
    assert_equal(trained(scene, hosts, by_towers(towers, sharded_bytes=0), stop_and_go_on), whole)


def test_all_hosts_count_the_hidden_units_that_are_off(prepared_of):
    scene = prepared_of("dlrm", activation="relu")

    def count(weights, batches):
        top = weights.dense._network.mlps[-1].layers[0]
        top.bias.assign(np.where(np.arange(top.units) < 5, -1000, 1).astype(np.float32))
        weights.load(weights.initial_arrays())
        in_turn(weights, batches)
        idle = weights.idle_units
        return [np.array([idle.units, idle.off, idle.steps])]

    whole, segments = (trained(scene, 3, make, count) for make in (bucketed(700), in_segments(700)))
    assert [one[0].tolist() for one, _ in segments] == [one[0].tolist() for one, _ in whole]
    assert 5 <= whole[0][0][0][1] < 20


def test_weights_are_sharded_where_that_saves_time():
    large, small = (SimpleNamespace(sizes=[size, 1], is_on_gpu=False) for size in (SHARDED_BYTES // 4, 1000))
    on_gpu = SimpleNamespace(sizes=large.sizes, is_on_gpu=True)
    assert {"adam", "adagrad", "newton"} == set(BY_ELEMENT)
    assert all(pays(one, large, 4) for one in BY_ELEMENT)
    assert [one for one in sorted(BY_ELEMENT) if pays(one, large, 2)] == ["adam"]
    for optimizer, dense, hosts in (("lamb", large, 4), ("lars", large, 4), ("sgd", large, 4), ("adam", small, 4),
                                    ("adam", large, 1), ("adam", on_gpu, 4)):  # fmt: skip
        assert not pays(optimizer, dense, hosts)
    assert not pays("adam", SimpleNamespace(sizes=[], is_on_gpu=False), 4, sharded_bytes=0)


@pytest.mark.parametrize("notes", [np.zeros(3, np.uint8), np.zeros(0, np.float32), np.zeros((2, 2), np.uint8)])
def test_other_notes_are_refused(prepared_of, notes):
    def take(weights, batches):
        sums = weights._sums
        assert isinstance(sums, ShardedUpdates)
        with pytest.raises(DataError, match="hidden units") as caught:
            sums.take(0, 1, notes)
        assert caught.value.where == "host of rank 1"
        return []

    trained(prepared_of("dlrm"), 2, in_segments(1 << 20), take)
