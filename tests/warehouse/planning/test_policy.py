"""The decisions of each admission policy."""

from __future__ import annotations

import math

import pytest

from tests.warehouse.planning.dags import SHAPES, random_dag
from transforms.errors import InputError
from warehouse.planning.cheapest import DagNode, Label, NodeCost, cheapest_plan
from warehouse.planning.policy import Adaptive, KeepAll, KeepNone, policy_named

RAW = DagNode("raw", (), NodeCost(math.inf, 1.0))
CHEAP = NodeCost(0.001, None, 5.0, 9.0, True)
READY = NodeCost(0.001, 5.0)
DAG = [
    RAW,
    DagNode("words", ("raw",), NodeCost(9.0, None, 0.5, 1.0, True)),
    DagNode("new", ("words",), CHEAP),
    DagNode("ready", ("words",), READY),
    DagNode("unwanted", ("words",), CHEAP),
]


def labels(policy: KeepAll | KeepNone | Adaptive, *wanted: str, reuse: float = 9.0) -> str:
    return " ".join(policy.labels(DAG, wanted, reuse).values())


def test_all_keeps_whole_components() -> None:
    assert labels(KeepAll(), "new", "ready", "raw") == "load once keep load skip"
    assert labels(KeepAll(), "ready") == "skip skip skip load skip"
    assert labels(KeepAll(), "words", "new") == "load keep keep skip skip"
    assert labels(KeepAll(), "raw") == "load skip skip skip skip"


def test_none_loads_what_is_there() -> None:
    assert labels(KeepNone(), "new", "ready") == "load compute compute load skip"


def test_adaptive_keeps_a_part_where_that_is_cheaper() -> None:
    assert labels(Adaptive(), "new", "ready") == "load keep compute compute skip"
    assert labels(Adaptive(), "new", reuse=1.0) == "load compute compute skip skip"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", [KeepAll(), Adaptive(), KeepNone()])
def test_every_policy_gives_what_is_wanted(policy: KeepAll | KeepNone | Adaptive, shape: str) -> None:
    nodes, wanted = random_dag(shape, 120, 2)
    found = policy.labels(nodes, wanted, 4.0)
    assert list(found) == [node.id for node in nodes]
    for node in nodes:
        if found[node.id] is Label.SKIP:
            assert node.id not in wanted
        elif found[node.id] is Label.LOAD:
            assert node.cost.load_secs is not None
        else:
            assert all(found[arg] is not Label.SKIP for arg in node.args)


def test_adaptive_is_the_cheapest_plan() -> None:
    nodes, wanted = random_dag("random", 200, 4)
    assert Adaptive().labels(nodes, wanted, 6.0) == cheapest_plan(nodes, wanted, 6.0).labels


def test_by_name() -> None:
    assert [policy_named(name) for name in ("all", "adaptive", "none")] == [KeepAll(), Adaptive(), KeepNone()]
    with pytest.raises(InputError) as caught:
        policy_named("most")
    assert (caught.value.value, caught.value.allowed) == ("most", "adaptive, all, none")
    with pytest.raises(InputError):
        Adaptive(horizon_days=0.0)
