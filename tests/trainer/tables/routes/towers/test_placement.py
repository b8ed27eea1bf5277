"""Towers, their hosts, and the peers that take the bags of each host."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.support.examples import scaled
from tests.trainer.tables.routes.towers.tower_cases import FEATURES, placements
from trainer.errors import ConfigError
from trainer.options.towers import HostTowers
from trainer.tables.routes.towers.placement import (
    TowerPlacement,
    features_of_towers,
    placement_of_hosts,
    tower_partition,
)


@settings(max_examples=scaled(100))
@given(placements(most_hosts=5, most_workers=4))
def test_each_tower_takes_the_bags_of_all_hosts_once(placement):
    for t, hosts in enumerate(placement.tower_hosts):
        taken = sorted(source for host in hosts for source in placement.sources_of(host))
        assert taken == list(range(placement.hosts))
        loads = [len(placement.sources_of(host)) for host in hosts]
        assert max(loads) - min(loads) <= 1
        assert all(host in placement.sources_of(host) for host in hosts)
        assert len(placement.group_of(t)) == len(hosts) * placement.host_workers
    for rank in range(placement.workers):
        assert placement.peers_of(rank)[placement.host_of(rank)] == rank
        assert {one % placement.host_workers for one in placement.peers_of(rank)} == {rank % placement.host_workers}


def test_towers_have_consecutive_hosts():
    placement = TowerPlacement(5, 2, (("a",), ("b",)))
    assert placement.tower_hosts == ((0, 1), (2, 3, 4))
    assert [placement.peer_host(0, host) for host in range(5)] == [0, 1, 0, 1, 0]
    assert placement.group_of(0) == (0, 1, 2, 3)


@pytest.mark.parametrize(("machine_hosts", "hosts"), [(1, 6), (2, 8), (3, 6), (4, 16)])
def test_hosts_of_a_machine_have_the_tables_of_hosts_on_machines_of_their_own(machine_hosts, hosts):
    """So commits are by the same plan, and a job may go on with its hosts on other machines."""
    towers = HostTowers((("a", "c", "d"), ("b", "e", "f")), machine_hosts)
    placement = placement_of_hosts(towers, hosts)
    assert (placement.hosts, placement.host_workers) == (hosts // machine_hosts, machine_hosts)
    alone = placement_of_hosts(HostTowers(towers.towers), hosts)
    assert [placement.group_of(t) for t in range(2)] == [alone.group_of(t) for t in range(2)]
    assert tower_partition(FEATURES, placement) == tower_partition(FEATURES, alone)


@pytest.mark.parametrize(
    ("machine_hosts", "hosts", "message"),
    [
        (3, 4, "the hosts of a machine must divide the hosts of the job"),
        (0, 4, "the hosts of a machine must divide the hosts of the job"),
        (2, 6, "towers must divide the machines of a job equally"),
        (4, 4, "towers must divide the machines of a job equally"),
    ],
)
def test_machines_that_hosts_or_towers_do_not_fit_are_refused(machine_hosts, hosts, message):
    with pytest.raises(ConfigError, match=message):
        placement_of_hosts(HostTowers((("a",), ("b",)), machine_hosts), hosts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 1, (("a",), ("b",), ("c",))), "towers must be at most as many as hosts(?s:.*)value: +3"),
        ((0, 1, (("a",),)), "hosts must be a whole number"),
        ((1, True, (("a",),)), "host_workers must be a whole number"),
        ((2, 1, (("a",), ("b",)), ((0,), (0, 1))), "each host must have one tower"),
        ((2, 1, (("a",), ("b",)), ((0, 1), ())), "each host must have one tower"),
        ((2, 1, (("a",), ("b", "a"))), "a feature must be in one tower(?s:.*)value: +'a"),
        ((2, 1, ()), "towers must be a list of lists"),
        ((2, 1, (("a",), ())), "a tower must be a list of names"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        TowerPlacement(*arguments)


@pytest.mark.parametrize(
    ("towers", "message"),
    [
        ([["a", "c"], ["b", "d", "e"]], "each feature of ids must be in a tower(?s:.*)value: +'f in none"),
        ([["a", "c"], ["b", "d", "e", "f", "x"]], "a tower must name features of ids(?s:.*)value: +'x"),
        ([["a"], ["b", "c", "d", "e", "f"]], "features that share a table must be in one tower(?s:.*)value: +'a in tower 0, c in tower 1"),
        ([["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]], "number of towers must be at most(?s:.*)value: +7"),
    ],
)  # fmt: skip
def test_towers_of_other_features_are_refused(towers, message):
    with pytest.raises(ConfigError, match=message):
        features_of_towers(FEATURES, towers)
