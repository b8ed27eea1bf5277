"""The simulated iteration: known cases by hand, and what more bandwidth, compression and chips must do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import tower_simulation
from benchmarks.support.dense_shapes import DCN, DLRM, DenseShape
from benchmarks.support.host_topologies import REACHED, HostTopology, ReachedShares, host_topology
from benchmarks.support.iteration_time import (
    TowerShape,
    TrainedModel,
    flat_iteration,
    tower_count,
    tower_iteration,
)
from tests.support.examples import scaled
from trainer.errors import ConfigError

IDEAL = ReachedShares(flops=1.0, memory=1.0, intra=1.0, inter=1.0, message_secs=0.0)
TWO_HOSTS = HostTopology("two", 2, 2, 1e12, 1e12, 1e9, 1e8, IDEAL)
MODEL = TrainedModel(DLRM, 4, 10, 1.0, 1000)  # 160,000 bytes of activations


def test_the_operations_are_those_of_the_published_models():
    """MLPerf's DLRM and DLRM-DCNv2 with 26 features of 128 columns; a training step is three forward passes."""
    assert 3 * DLRM.event_flops(26, 128) == pytest.approx(14.75e6, rel=1e-3)
    assert 3 * DCN.event_flops(26, 128) == pytest.approx(96.2e6, rel=1e-3)


def test_exchanges_of_a_small_topology_are_those_by_hand():
    flat = flat_iteration(MODEL, TWO_HOSTS)
    assert flat.all_to_all == pytest.approx(2 * 160_000 * 2 / 4 / 1e8), "half of it goes to the other host"
    assert flat.intra_host_shuffle == flat.peer_permute == flat.tower_modules == 0
    towers = tower_iteration(MODEL, TWO_HOSTS, TowerShape(2))
    assert towers.intra_host_shuffle == pytest.approx(2 * 160_000 / 2 / 1e9)
    assert towers.all_to_all == pytest.approx(2 * 160_000 / 2 / 1e8), "without modules the same bytes cross hosts"
    assert towers.peer_permute == pytest.approx(4 * 160_000 / 1e12)
    assert towers.dense == flat.dense
    compressed = tower_iteration(MODEL, TWO_HOSTS, TowerShape(2, compression=4, out_width=5))
    assert compressed.all_to_all == pytest.approx(towers.all_to_all / 4)
    assert compressed.tower_modules == pytest.approx(3 * 2 * 1000 * 2 * (20 * 5) / 1e12)
    assert compressed.secs == pytest.approx(sum(compressed.parts().values()))


def test_messages_of_peers_are_fewer():
    slow = replace(TWO_HOSTS, reached=replace(IDEAL, message_secs=1.0))
    assert flat_iteration(MODEL, slow).all_to_all == pytest.approx(2 * 3, rel=1e-2)
    assert tower_iteration(MODEL, slow, TowerShape(2)).all_to_all == pytest.approx(2 * 1, rel=1e-2)


def test_an_uneven_division_costs_what_the_largest_tower_has():
    three = replace(MODEL, features=3)
    even = tower_iteration(three, TWO_HOSTS, TowerShape(2, column_slices=2))
    uneven = tower_iteration(three, TWO_HOSTS, TowerShape(2))
    assert uneven.lookup == pytest.approx(even.lookup * 4 / 3)
    assert uneven.all_to_all == pytest.approx(even.all_to_all * 4 / 3)


@given(st.sampled_from(["v100", "a100", "h100", "v5p", "v6e", "v5p-torus"]), st.sampled_from([32, 64, 128, 512]),
       st.sampled_from([DLRM, DCN]), st.floats(1.01, 16))  # fmt: skip
@settings(max_examples=scaled(100))
def test_better_links_and_more_compression_are_never_slower(kind, chips, dense, compression):
    topology = host_topology(f"{kind}:{chips}")
    model = TrainedModel(dense, 26, 128, 1.0, 4096)
    shape = TowerShape(tower_count(26, topology.hosts), compression)
    here = tower_iteration(model, topology, shape)
    for faster in (replace(topology, inter_bytes_per_sec=2 * topology.inter_bytes_per_sec),
                   replace(topology, intra_bytes_per_sec=2 * topology.intra_bytes_per_sec),
                   replace(topology, reached=replace(REACHED, message_secs=0.0))):  # fmt: skip
        assert tower_iteration(model, faster, shape).secs <= here.secs
        assert flat_iteration(model, faster).secs <= flat_iteration(model, topology).secs
    more = tower_iteration(model, topology, replace(shape, compression=2 * compression))
    assert more.all_to_all < here.all_to_all
    assert all(secs >= 0 for secs in here.parts().values())


def test_towers_without_modules_send_what_the_flat_exchange_sends():
    """The exchange alone brings nothing but fewer messages: what it is worth comes from the modules."""
    found = tower_simulation.speed_up("a100", 512, DLRM, 1.0)
    assert 0.8 < found < 1.0
    assert tower_simulation.speed_up("a100", 512, DLRM, 2.0) > 1.3


@pytest.mark.parametrize(("features", "hosts", "towers"), [(26, 64, 16), (26, 2, 2), (26, 8, 8), (3, 8, 2), (1, 7, 1)])
def test_the_most_towers_with_equally_many_hosts(features, hosts, towers):
    assert tower_count(features, hosts) == towers


@pytest.mark.parametrize(
    "text", ["a100", "a100:0", "a100:12", "a100:999999", "a100:x", "b200:8", "", "a100:１６", "a100:08", "v5p-torus:0"]
)
def test_unknown_topologies_are_refused(text):
    with pytest.raises(ConfigError):
        host_topology(text)


@given(st.text(max_size=12) | st.builds("{}:{}".format, st.sampled_from(["a100", "v5p", "v5p-torus"]), st.integers()))
def test_any_text_is_a_topology_or_one_error(text):
    try:
        found = host_topology(text)
    except ConfigError:
        return
    assert found.name == text
    assert found.chips == int(text.partition(":")[2])


def test_topologies_have_whole_hosts():
    assert (host_topology("a100:512").hosts, host_topology("a100:4").hosts) == (64, 1)
    assert host_topology("v5p:512").hosts == 32


@pytest.mark.parametrize(
    "make",
    [
        lambda: tower_iteration(MODEL, TWO_HOSTS, TowerShape(5)),
        lambda: tower_iteration(replace(MODEL, features=9), TWO_HOSTS, TowerShape(4)),
        lambda: TowerShape(0),
        lambda: TowerShape(1, compression=0.5),
        lambda: TowerShape(1, compression=float("nan")),
        lambda: TrainedModel(DLRM, 0, 1, 1.0, 1),
        lambda: TrainedModel(DLRM, 1, 1, float("nan"), 1),
        lambda: DenseShape("x", 0, (), (1,)),
        lambda: DenseShape("x", 1, (), ()),
        lambda: DenseShape("x", 1, (), (1,), cross_layers=1),
        lambda: ReachedShares(inter=0.0),
        lambda: ReachedShares(message_secs=-1.0),
        lambda: HostTopology("x", 0, 1, 1, 1, 1, 1),
        lambda: HostTopology("x", 1, 1, 1, 1, 1, float("inf")),
    ],
)
def test_impossible_values_are_refused(make):
    with pytest.raises(ConfigError):
        make()
