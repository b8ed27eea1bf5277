"""The simulated iteration: known cases by hand, and what more bandwidth, compression and chips must do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import tower_simulation
from benchmarks.support.dense_shapes import DCN, DLRM, DLRM_OVER, CrossModule, DenseShape, ProjectionModule
from benchmarks.support.host_topologies import REACHED, HostTopology, ReachedShares, host_topology
from benchmarks.support.iteration_time import (
    TowerModules,
    TowerShape,
    TrainedModel,
    flat_iteration,
    tower_count,
    tower_iteration,
)
from benchmarks.tower_simulation import PAPER_CROSS
from tests.support.examples import scaled
from tests.trainer.synthetic import config
from trainer.errors import ConfigError
from trainer.model.inputs import TypedInput, lay_out
from transforms.types import Dense, DType

IDEAL = ReachedShares(flops=1.0, memory=1.0, intra=1.0, inter=1.0, message_secs=0.0)
TWO_HOSTS = HostTopology("two", 2, 2, 1e12, 1e12, 1e9, 1e8, IDEAL)
MODEL = TrainedModel(DLRM, 4, 10, 1.0, 1000)  # 160,000 bytes of activations


@pytest.mark.parametrize(
    ("dense", "above", "row"),
    [
        *((DLRM, DLRM_OVER, row) for row in tower_simulation.PAPER_DLRM),
        *((PAPER_CROSS, PAPER_CROSS, row) for row in tower_simulation.PAPER_DCN),
    ],
)
def test_the_operations_of_a_step_are_those_of_the_papers_tables(dense, above, row):
    """Tables 4 and 5 of Luo et al. (MLSys 2024): MLPerf's DLRM and DLRM-DCNv2 with 26 features of 128 columns."""
    _, towers, module, paper = row
    assert tower_simulation.step_mflops(dense, above, towers, module) == pytest.approx(paper, rel=1e-3)


@pytest.mark.parametrize(
    ("module", "modules", "others"),
    [
        (ProjectionModule(2), {"dim": 2}, {}),
        (ProjectionModule(2, combinations=1, projections=1), {"dim": 2, "projections": 1}, {}),
        (ProjectionModule(4, combinations=0, projections=1), {"dim": 4, "combinations": 0, "projections": 1}, {}),
        (CrossModule(3, to=2), {"width": 2, "rank": 3}, {"network": "dcn", "cross_layers": 2, "cross_rank": 2}),
        (
            CrossModule(8, ratio=2),
            {"compression": 2, "rank": 8},
            {"network": "dcn", "cross_layers": 1, "cross_rank": 2},
        ),
    ],
)
def test_the_weights_of_shapes_are_those_of_the_networks_that_are_trained(module, modules, others):
    from trainer.model.dense_model import DenseModel

    inputs = [TypedInput(name, Dense(DType.INT64, 10)) for name in "abc"] + [
        TypedInput(name, Dense(DType.FLOAT32)) for name in "vwxyz"
    ]
    options = config("run", dim=4, tower_modules={"towers": [["a", "b"], ["c"]], **modules}, bottom_mlp=[7], top_mlp=[6, 3], **others)  # fmt: skip
    state = DenseModel(lay_out(inputs, options), options).state()
    trained = sum(array.size for name, array in state.items() if name.startswith("weights/") and array.ndim == 2)
    is_cross = "network" in others
    above = DenseShape("x", 5, (7,), (6, 3, 1), others.get("cross_layers", 0), others.get("cross_rank", 0))
    embedded = module.outputs(2, 4) + module.outputs(1, 4)
    found = module.weights(2, 4) + module.weights(1, 4) + above.weights(embedded, module.width or 4)
    if is_cross:  # numbers are inputs of a cross layer as they are, without a bottom MLP
        width = embedded + 5
        crossed = others["cross_layers"] * 2 * width * others["cross_rank"]
        found = module.weights(2, 4) + module.weights(1, 4) + crossed + width * 6 + 6 * 3 + 3
    assert trained == found


def test_exchanges_of_a_small_topology_are_those_by_hand():
    flat = flat_iteration(MODEL, TWO_HOSTS)
    assert flat.all_to_all == pytest.approx(2 * 160_000 * 2 / 4 / 1e8), "half of it goes to the other host"
    assert flat.intra_host_shuffle == flat.peer_permute == flat.tower_modules == 0
    towers = tower_iteration(MODEL, TWO_HOSTS, TowerShape(2))
    assert towers.intra_host_shuffle == pytest.approx(2 * 160_000 / 2 / 1e9)
    assert towers.all_to_all == pytest.approx(2 * 160_000 / 2 / 1e8), "without modules the same bytes cross hosts"
    assert towers.peer_permute == pytest.approx(4 * 160_000 / 1e12)
    assert towers.dense == flat.dense
    compressed = tower_iteration(MODEL, TWO_HOSTS, TowerShape(2, TowerModules(ProjectionModule(5), DLRM_OVER)))
    assert compressed.all_to_all == pytest.approx(towers.all_to_all / 2)
    assert compressed.tower_modules == pytest.approx(3 * 2 * 1000 * 2 * (2 * 10 * 5) / 1e12)
    flat = tower_iteration(MODEL, TWO_HOSTS, TowerShape(2, TowerModules(ProjectionModule(10, 0, 1), DLRM_OVER)))
    assert flat.all_to_all == pytest.approx(towers.all_to_all / 2)
    assert flat.tower_modules == pytest.approx(3 * 2 * 1000 * 2 * (20 * 10) / 1e12)
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
       st.sampled_from([DLRM, DCN]), st.sampled_from([2.0, 4.0, 8.0, 16.0]))  # fmt: skip
@settings(max_examples=scaled(100))
def test_better_links_and_more_compression_are_never_slower(kind, chips, dense, compression):
    topology = host_topology(f"{kind}:{chips}")
    model = TrainedModel(dense, 26, 128, 1.0, 4096)

    def modules(ratio):
        return TowerModules(
            CrossModule(512, ratio=ratio) if dense is DCN else ProjectionModule(round(128 / ratio)), dense
        )

    shape = TowerShape(tower_count(26, topology.hosts), modules(compression))
    here = tower_iteration(model, topology, shape)
    for faster in (replace(topology, inter_bytes_per_sec=2 * topology.inter_bytes_per_sec),
                   replace(topology, intra_bytes_per_sec=2 * topology.intra_bytes_per_sec),
                   replace(topology, reached=replace(REACHED, message_secs=0.0))):  # fmt: skip
        assert tower_iteration(model, faster, shape).secs <= here.secs
        assert flat_iteration(model, faster).secs <= flat_iteration(model, topology).secs
    more = tower_iteration(model, topology, replace(shape, modules=modules(2 * compression)))
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
        lambda: ProjectionModule(0),
        lambda: ProjectionModule(4, combinations=0),
        lambda: ProjectionModule(4, projections=-1),
        lambda: CrossModule(4),
        lambda: CrossModule(4, to=2, ratio=2.0),
        lambda: CrossModule(4, ratio=float("nan")),
        lambda: CrossModule(0, to=1),
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
