"""The exchange by towers on a slice: its collectives as the real TPU compiler has them, and its outputs on simulated devices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.tpu_check.models import dlrm
from trainer.options.topology import Topology
from trainer.tpu_check.devices import devices_of
from trainer.tpu_check.environment import TpuEnvironment
from trainer.tpu_check.tower_check import check_bag_exchange

pytestmark = pytest.mark.tpu_aot

_MODULE = "trainer.tpu_check.tower_program"
EVENTS, FEATURES, BAG, DIM = 256, 8, 20, 128


def answer(environment: TpuEnvironment, **request: Any) -> dict[str, Any]:
    asked = {"events": EVENTS, "features": FEATURES, "bag": BAG, "rows": 4096, "dim": DIM, **request}
    return environment.run("compiling", _MODULE, asked, timeout_secs=600)


@pytest.mark.parametrize(("topology", "hosts", "chips"), [("v5p:2x2x2", 2, 4), ("v5p:2x2x4", 4, 4), ("v6e:4x4", 4, 4)])
def test_only_ids_and_combined_bags_of_peers_cross_hosts(topology, hosts, chips, tpu_environment):
    """Flat, all devices are one group; by towers, those of a host add sums, and peers exchange. Compiled, and run on no TPU."""
    found = answer(tpu_environment, topology=topology, hosts=hosts)
    devices = hosts * chips
    assert found["devices"] == devices
    flat, towers = found["flat"], found["towers"]
    assert flat["inside"] == {}
    assert sum(count for count, _ in flat["between"].values()) == 2
    bags = devices * EVENTS * FEATURES * DIM * 4
    assert sum(size for _, size in flat["between"].values()) == bags // (devices if "reduce-scatter" in flat["between"] else 1) + devices * EVENTS * FEATURES * BAG * 4  # fmt: skip
    assert towers["between"] == {"all-to-all": [2, EVENTS * FEATURES * (BAG + DIM) * 4]}
    assert towers["inside"].keys() <= {"all-gather", "all-reduce", "reduce-scatter"}
    assert sum(count for count, _ in towers["inside"].values()) == 2


def test_both_exchanges_give_the_bags_of_one_device(tpu_environment):
    for devices, hosts in ((8, 2), (8, 4), (6, 3)):
        found = answer(
            tpu_environment, topology="", devices=devices, hosts=hosts, events=devices, features=12, rows=16, dim=8
        )
        assert found["difference"] < 1e-5


def test_a_model_is_checked_with_as_many_features_as_hosts_divide(tpu_environment):
    model, devices = dlrm(events=64, inputs=3), devices_of(Topology.parse("v5p:2x2x2"))
    found = check_bag_exchange(model, "v5p:2x2x2", devices, tpu_environment, bag=2)
    assert (found.features, found.bag) == (4, 2)
    assert found.flat.inside.counts == {}
    assert found.towers.between.counts == {"all-to-all": 2}
    assert found.towers.between.bytes < found.flat.between.bytes
