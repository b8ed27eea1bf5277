"""Hosts train the same dense weights bit for bit, however their gradients are sent and however late updates are."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.host.host_process import ALL_WAYS
from tests.trainer.job.host.training_ways import (
    ROWS,
    WAYS,
    bucketed,
    by_towers,
    flat_by,
    gathered,
    halves,
    in_pipeline,
    in_turn,
    one_after_the_other,
)
from tests.trainer.thread_channels import on_channels
from trainer.job.host.sharded_weights import empty_batch
from trainer.job.host.tower_weights import has_own_modules

pytest.importorskip("tensorflow")


def trained(scene, hosts, make, train, delays=0.0, grid=None):
    """The arrays of all hosts after ``train`` has trained their weights on batches in turn, and their logits; ``grid``: of the hosts."""
    options, prepared, batches = scene
    steps = -(-len(batches) // hosts)
    none = empty_batch(prepared.layout, ROWS, prepared.head)
    padded = [*batches, *[none] * (steps * hosts - len(batches))]

    def work(channels):
        weights = make(prepared, options, channels)
        own = padded[channels.steps.rank :: hosts]
        return train(weights, own), weights.arrays()

    return on_channels(hosts, work, delays=delays, grid=grid)


def assert_equal(one, other):
    assert len(one) == len(other)
    for (first, arrays), (second, expected) in zip(one, other, strict=True):
        assert [a.tobytes() for a in first] == [b.tobytes() for b in second]
        assert arrays.keys() == expected.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hosts"), [("dlrm", 1), ("dlrm", 2), ("dlrm", 3), ("dropout", 2), ("dcn", 3)])
def test_buckets_and_overlap_change_no_bit(prepared_of, name, hosts):
    scene = prepared_of(name)
    expected = trained(scene, hosts, gathered, in_turn)
    dense = [{name: array for name, array in arrays.items() if name.startswith("dense/")} for _, arrays in expected]
    for other in dense[1:]:
        assert all(array.tobytes() == dense[0][name].tobytes() for name, array in other.items())
    assert_equal(trained(scene, hosts, bucketed(1 << 20), in_turn), expected)
    for bucket_bytes in (64, 600):
        assert_equal(trained(scene, hosts, bucketed(bucket_bytes), in_turn, delays=0.001), expected)


@pytest.mark.usefixtures("in_tensorflow")
@pytest.mark.parametrize("hosts", [1, 3])
def test_all_hosts_count_the_hidden_units_that_are_off_for_all_of_their_events(prepared_of, hosts):
    """Units that are off on one host alone are on: the sums of gradients tell."""
    scene = prepared_of("dlrm", activation="relu")

    def off_below(weights, batches):
        top = weights.dense._network.mlps[-1].layers[0]
        top.bias.assign(np.where(np.arange(top.units) < 5, -1000, 1).astype(np.float32))
        in_turn(weights, batches)
        return [np.array([*vars_of(weights.idle_units)])]

    def vars_of(idle):
        return idle.units, idle.off, idle.steps

    found = [tuple(counts[0].tolist()) for counts, _ in trained(scene, hosts, bucketed(1 << 20), off_below)]
    assert len(set(found)) == 1
    units, off, steps = found[0]
    assert (units, steps) == (16 + 12 + 8 + 8 + 4, -(-7 // hosts))
    assert 5 <= off < 20


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [1, 3])
def test_hosts_with_late_updates_train_the_same_bits(prepared_of, staleness):
    scene = prepared_of("dlrm", staleness=staleness)
    expected = trained(scene, 2, gathered, one_after_the_other(staleness))
    for delays in (0.0, 0.002):
        assert_equal(trained(scene, 2, bucketed(600), in_pipeline(staleness), delays=delays), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "staleness"), [(2, 0), (3, 0), (5, 2)])
def test_hosts_exchange_by_towers_with_the_same_bits(prepared_of, hosts, staleness):
    """Also where a tower has several hosts, and a host no events."""
    scene = prepared_of("dlrm", staleness=staleness)
    train = in_pipeline(staleness) if staleness else in_turn
    towers = halves(scene[1])
    assert_equal(trained(scene, hosts, by_towers(towers), train), trained(scene, hosts, by_towers(()), train))


@pytest.mark.parametrize("hosts", [4, 6])
def test_hosts_that_share_machines_exchange_by_towers_with_the_same_bits(prepared_of, hosts):
    """Between machines they send no more messages than to the hosts of equal places; what moves inside a machine is counted apart."""
    scene = prepared_of("dlrm")
    towers, figures = halves(scene[1]), []

    def train(weights, batches):
        logits = in_turn(weights, batches)
        figures.append(weights.tower_figures)
        return logits

    flat = trained(scene, hosts, by_towers(()), train)
    assert figures == [None] * hosts
    figures.clear()
    assert_equal(trained(scene, hosts, by_towers(towers, machine_hosts=hosts // 2), train), flat)
    steps = -(-len(scene[2]) // hosts)
    assert all(one.between_messages <= 3 * steps for one in figures)
    assert all(one.between_bytes and one.inside_bytes and one.as_rows + one.as_bags == 2 * steps for one in figures)


def test_hosts_that_send_sums_train_what_others_train(prepared_of):
    """Up to the order of sums; equal jobs have equal bits."""
    scene = prepared_of("dlrm")
    towers = halves(scene[1])
    flat = trained(scene, 4, by_towers(()), in_turn)
    ways = by_towers(towers, machine_hosts=2, sends_sums=True)
    found = trained(scene, 4, ways, in_turn)
    assert_equal(trained(scene, 4, ways, in_turn), found)
    for (logits, _), (expected, _) in zip(found, flat, strict=True):
        for one, other in zip(logits, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.medium
def test_hosts_that_send_sums_prune_their_tables(prepared_of):
    """Rounding may decide which row stays, so equal jobs are compared."""
    scene = prepared_of("dlrm", pruning={"budget": 0.5, "round_steps": 2})
    way = by_towers(halves(scene[1]), machine_hosts=2, sends_sums=True)
    found = trained(scene, 4, way, in_turn)
    assert_equal(trained(scene, 4, way, in_turn), found)
    assert all(np.isfinite(one).all() for logits, _ in found for one in logits)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "machine_hosts", "staleness"), [(1, 1, 0), (2, 1, 0), (3, 1, 2), (4, 2, 0)])
def test_hosts_prune_by_towers_as_by_their_plan(prepared_of, hosts, machine_hosts, staleness):
    """With late updates, too: the rows that have left, importance and rounds are among the arrays."""
    scene = prepared_of("dlrm", staleness=staleness, pruning={"budget": 0.2, "round_steps": 2, "reset": "restored"})
    train = in_pipeline(staleness) if staleness else in_turn
    towers = halves(scene[1]) if hosts > 1 else (sum(halves(scene[1]), ()),)
    found = trained(scene, hosts, by_towers(towers, machine_hosts=machine_hosts), train)
    assert_equal(found, trained(scene, hosts, flat_by(towers), train))
    arrays = {name: array for _, own in found for name, array in own.items()}
    assert {name.partition("/")[0] for name in arrays} >= {"embedding-importance", "embedding-left", "linear-left"}
    numbers = [array for name, array in arrays.items() if name.startswith("history/embedding/pruning/")]
    assert min(int(rounds) for _, _, rounds in numbers) >= 3 // hosts


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2, 3])
def test_hosts_prune_with_modules_and_go_on_from_what_they_save(prepared_of, hosts):
    """Equal runs have equal bits; hosts that were stopped train as those that were not."""
    towers = halves(prepared_of("dlrm")[1])
    scene = prepared_of(
        "dlrm", tower_modules={"towers": towers, "compression": 2}, pruning={"budget": 0.3, "round_steps": 2}
    )
    found = trained(scene, hosts, by_towers(towers), in_turn)
    assert_equal(trained(scene, hosts, by_towers(towers), stop_and_go_on), found)


def stop_and_go_on(weights, batches):
    """Train half of the batches, others, and again from what was saved after the first half."""
    half = len(batches) // 2
    logits = in_turn(weights, batches[:half])
    saved = {key: np.array(array) for key, array in weights.arrays().items()}
    in_turn(weights, batches[half:])
    weights.load(saved)
    return logits + in_turn(weights, batches[half:])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hosts"), [("dlrm", 2), ("dcn", 3), ("dlrm", 5)])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_modules_on_the_hosts_of_their_towers_train_what_all_hosts_would(prepared_of, name, hosts, optimizer):
    """Up to the order of sums; hosts have equal models afterwards, and go on from them as if they had not stopped."""
    towers = halves(prepared_of(name)[1])
    options = {"tower_modules": {"towers": towers, "compression": 2}, "dense_optimizer": optimizer}
    scene = prepared_of(name, **options)
    flat, found = trained(scene, hosts, by_towers(()), in_turn), trained(scene, hosts, by_towers(towers), in_turn)
    dense = [{key: array for key, array in arrays.items() if key.startswith("dense/")} for _, arrays in found]
    assert all(array.tobytes() == dense[0][key].tobytes() for one in dense for key, array in one.items())
    for (logits, arrays), (expected, others) in zip(found, flat, strict=True):
        for one, other in zip(logits, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        assert arrays.keys() == others.keys()
        for key, array in arrays.items():
            np.testing.assert_allclose(array, others[key], rtol=2e-3, atol=2e-4, err_msg=key)
    assert_equal(trained(scene, hosts, by_towers(towers), stop_and_go_on), found)


def test_modules_stay_with_the_dense_part_where_hosts_cannot_have_them(prepared_of):
    options, prepared, _ = prepared_of("dlrm")
    towers, layout = halves(prepared), prepared.layout
    made = {"towers": towers, "compression": 2}
    assert has_own_modules(layout, replace(options, tower_modules=made), towers)
    for other, of in (
        (options, towers),
        (replace(options, tower_modules=made, staleness=1), towers),
        (replace(options, tower_modules=made), towers[::-1]),
        (replace(options, tower_modules=made, deep=False), towers),
    ):
        assert not has_own_modules(layout, other, of)


@pytest.mark.slow
def test_host_processes_train_the_same_bits_in_every_way():
    """Three processes over real sockets: buckets, overlap and segments, with late updates, give the bits of whole vectors sent in turn."""
    hosts, root = 3, ROOT
    command = [sys.executable, "-m", "tests.trainer.job.host.host_process"]
    running = [
        subprocess.Popen([*command, str(rank), str(hosts)], cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for rank in range(hosts)
    ]  # fmt: skip
    try:
        addresses = json.dumps([one.stdout.readline().strip() for one in running])
        say(running, addresses)
        found = {}
        for name, _, _ in ALL_WAYS:
            lines = [json.loads(one.stdout.readline()) for one in running]
            assert [line[0] for line in lines] == [name] * hosts
            found[name] = [line[1] for line in lines]
            assert len({line[2] for line in lines}) == 1, "dense weights are equal on all hosts"
            say(running, "done")
        assert found["one bucket"] == found["overlapped"] == found["gathered"]
        expected = found["one bucket in TensorFlow"]
        assert {name: bits for name, bits in found.items() if name.endswith("TensorFlow")} == {
            f"{name} in TensorFlow": expected for name in WAYS
        }
        assert found["segments"] == expected
        assert [one.wait(PATIENCE_SECS) for one in running] == [0] * hosts
    finally:
        for one in running:
            one.kill()
            one.communicate()


def say(processes, line):
    for one in processes:
        one.stdin.write(line + "\n")
        one.stdin.flush()
