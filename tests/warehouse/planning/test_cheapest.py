"""The cheapest plan, compared with every plan, and its laws."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.warehouse.planning.dags import SHAPES, by_networkx, random_dag
from tests.warehouse.scenes import REPOSITORY
from transforms.errors import InputError
from warehouse.planning.cheapest import DagNode, Label, NodeCost, Reuse, alternatives, cheapest_plan

INF = math.inf


# Every plan there is: at this request a node is skipped, loaded or computed; at later ones also read back.


def later_requests(nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse) -> dict[str, tuple[float, float]]:
    """By node: later requests in the DAG, and the share of the price of keeping. Follows every path down."""
    stated = {node.id: reuse if isinstance(reuse, float) else reuse[node.id] for node in nodes}
    args = {node.id: node.args for node in nodes}
    found = dict.fromkeys(stated, 0.0)

    def down(name: str, requests: float) -> None:
        found[name] = max(found[name], requests)
        for arg in args[name]:
            down(arg, requests)

    for name in wanted:
        down(name, stated[name] - 1)
    return {name: (m, min(1.0, m / (stated[name] - 1)) if stated[name] > 1 else 1.0) for name, m in found.items()}


def least_cost(
    nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse, only: Mapping[str, str] | None = None
) -> float:
    """By trying everything. ``only``: ways at this request and later that a node is bound to, such as "compute read"."""
    later = later_requests(nodes, wanted, reuse)
    best = INF

    def ways(node: DagNode, chosen: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str, float]]:
        cost, (requests, share) = node.cost, later[node.id]
        load = INF if cost.load_secs is None else cost.load_secs
        able = [all(chosen[arg][phase] != "skip" for arg in node.args) for phase in (0, 1)]
        now = {"skip": 0.0, "load": load, "compute": cost.compute_secs if able[0] else INF}
        for first, first_secs in now.items():
            then = {"skip": 0.0}
            if requests:
                then |= {"load": requests * load, "compute": requests * cost.compute_secs if able[1] else INF}
                if cost.keepable and cost.load_secs is None and first == "compute":
                    then["read"] = requests * cost.read_back_secs + share * cost.keep_secs
            for after, after_secs in then.items():
                yield first, after, first_secs + after_secs

    def search(position: int, chosen: dict[str, tuple[str, str]], so_far: float) -> None:
        nonlocal best
        if so_far >= best:
            return
        if position == len(nodes):
            best = so_far
            return
        node = nodes[position]
        for first, after, secs in ways(node, chosen):
            if node.id in wanted and (first == "skip" or (after == "skip" and later[node.id][0])):
                continue
            if only and only.get(node.id, f"{first} {after}") != f"{first} {after}":
                continue
            chosen[node.id] = (first, after)
            search(position + 1, chosen, so_far + secs)
        chosen.pop(node.id, None)

    search(0, {}, 0.0)
    return best


# Multiples of an eighth are exact in floats and in ticks, and small ones make ties.
SECS = st.integers(0, 24).map(lambda eighths: eighths / 8)


@st.composite
def costs(draw: st.DrawFn) -> NodeCost:
    return NodeCost(
        compute_secs=draw(st.one_of(SECS, SECS, SECS, st.just(INF))),
        load_secs=draw(st.one_of(st.none(), st.none(), SECS)),
        read_back_secs=draw(SECS),
        keep_secs=draw(SECS),
        keepable=draw(st.booleans()),
    )


@st.composite
def dags(draw: st.DrawFn, most: int = 6) -> tuple[list[DagNode], list[str]]:
    nodes = [DagNode(name, (), NodeCost(INF, draw(SECS))) for name in ("raw0", "raw1")]
    for position in range(draw(st.integers(1, most - 2))):
        args = draw(st.lists(st.sampled_from([node.id for node in nodes]), max_size=3, unique=True))
        nodes.append(DagNode(f"n{position}", tuple(args), draw(costs())))
    wanted = draw(st.lists(st.sampled_from([node.id for node in nodes]), min_size=1, max_size=3, unique=True))
    return nodes, wanted


@pytest.mark.slow
@settings(max_examples=scaled(400))
@given(dags(), st.sampled_from([1.0, 1.5, 2.0, 5.0]))
def test_no_plan_is_cheaper(drawn: tuple[list[DagNode], list[str]], reuse: float) -> None:
    nodes, wanted = drawn
    least = least_cost(nodes, wanted, reuse)
    if math.isinf(least):
        with pytest.raises(InputError) as caught:
            cheapest_plan(nodes, wanted, reuse)
        assert caught.value.value in wanted
    else:
        plan = cheapest_plan(nodes, wanted, reuse)
        assert plan.cost_secs == least
        assert plan == cheapest_plan(nodes, wanted, reuse, by_networkx)


@pytest.mark.medium
@settings(max_examples=scaled(300))
@given(dags(), st.data())
def test_no_plan_is_cheaper_when_nodes_are_reused_unequally(
    drawn: tuple[list[DagNode], list[str]], data: st.DataObject
) -> None:
    nodes, wanted = drawn
    reuse = {node.id: data.draw(st.sampled_from([1.0, 1.25, 2.0, 4.0, 9.0]), node.id) for node in nodes}
    least = least_cost(nodes, wanted, reuse)
    assume(math.isfinite(least))
    assert cheapest_plan(nodes, wanted, reuse).cost_secs == pytest.approx(least, rel=1e-12, abs=1e-12)


@pytest.mark.medium
@settings(max_examples=scaled(200))
@given(dags(), st.sampled_from([1.0, 2.0, 5.0]))
def test_alternatives_are_the_least_of_their_kind(drawn: tuple[list[DagNode], list[str]], reuse: float) -> None:
    nodes, wanted = drawn
    assume(math.isfinite(least_cost(nodes, wanted, reuse)))
    node = next(node for node in nodes if node.id == wanted[0])
    found = alternatives(nodes, wanted, node.id, reuse)
    later = reuse > 1
    assert found.load_secs == least_cost(nodes, wanted, reuse, {node.id: "load load" if later else "load skip"})
    assert found.compute_secs == least_cost(
        nodes, wanted, reuse, {node.id: "compute compute" if later else "compute skip"}
    )
    if later:
        assert found.keep_secs == least_cost(nodes, wanted, reuse, {node.id: "compute read"})
    elif node.cost.may_be_kept:
        assert found.keep_secs == found.compute_secs + node.cost.keep_secs
    assert cheapest_plan(nodes, wanted, reuse).cost_secs <= min(found.load_secs, found.compute_secs, found.keep_secs)


@pytest.mark.medium
@given(dags(), st.sampled_from([1.0, 3.0]))
def test_labels_can_be_carried_out(drawn: tuple[list[DagNode], list[str]], reuse: float) -> None:
    nodes, wanted = drawn
    assume(math.isfinite(least_cost(nodes, wanted, reuse)))
    labels = cheapest_plan(nodes, wanted, reuse).labels
    assert list(labels) == [node.id for node in nodes]
    for node in nodes:
        match labels[node.id]:
            case Label.SKIP:
                assert node.id not in wanted
            case Label.LOAD:
                assert node.cost.load_secs is not None
            case label:
                assert all(labels[arg] is not Label.SKIP for arg in node.args)
                assert label is not Label.KEEP or node.cost.may_be_kept


@settings(max_examples=scaled(60))
@given(dags(), st.sampled_from([1.0, 2.0, 5.0]), st.data())
def test_what_gets_cheaper_makes_no_plan_dearer(
    drawn: tuple[list[DagNode], list[str]], reuse: float, data: st.DataObject
) -> None:
    nodes, wanted = drawn
    assume(math.isfinite(least_cost(nodes, wanted, reuse)))
    before = cheapest_plan(nodes, wanted, reuse).cost_secs
    at = data.draw(st.integers(0, len(nodes) - 1))
    node = nodes[at]
    for cost in (
        replace(node.cost, compute_secs=node.cost.compute_secs / 2),
        replace(node.cost, load_secs=(node.cost.load_secs or 0) / 2) if node.cost.load_secs else node.cost,
        replace(node.cost, keep_secs=node.cost.keep_secs / 2, keepable=True),
    ):
        cheaper = [*nodes[:at], replace(node, cost=cost), *nodes[at + 1 :]]
        assert cheapest_plan(cheaper, wanted, reuse).cost_secs <= before
    assert cheapest_plan(nodes, wanted[1:], reuse).cost_secs <= before
    assert cheapest_plan(nodes, wanted, reuse + 1).cost_secs >= before


def chain(*costs: NodeCost) -> list[DagNode]:
    """raw <- n0 <- n1 ...; reading raw costs 1."""
    nodes = [DagNode("raw", (), NodeCost(INF, 1.0))]
    for position, cost in enumerate(costs):
        nodes.append(DagNode(f"n{position}", (nodes[-1].id,), cost))
    return nodes


def labels(nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0) -> str:
    return " ".join(cheapest_plan(nodes, wanted, reuse).labels.values())


def test_one_run_loads_or_computes() -> None:
    assert labels(chain(NodeCost(5.0, 2.0)), ["n0"]) == "skip load"
    assert labels(chain(NodeCost(0.5, 2.0)), ["n0"]) == "load compute"
    assert labels(chain(NodeCost(5.0, 2.0), NodeCost(1.0, 9.0)), ["n1"]) == "skip load compute"


def test_a_memo_is_left_alone_where_its_arguments_are_read_anyway() -> None:
    nodes = [*chain(NodeCost(1.5, 2.0)), DagNode("other", ("raw",), NodeCost(1.0))]
    assert labels(nodes, ["n0"]) == "skip load skip"
    assert labels(nodes, ["n0", "other"]) == "load compute compute"


def test_keeping_must_pay() -> None:
    kept = NodeCost(5.0, None, 1.0, 3.0, True)
    assert labels(chain(kept), ["n0"], 1.0) == "load compute"
    assert labels(chain(kept), ["n0"], 1.5) == "load compute"
    assert labels(chain(kept), ["n0"], 2.0) == "load keep"
    assert labels(chain(replace(kept, keepable=False)), ["n0"], 9.0) == "load compute"


def test_what_only_a_kept_node_reads_is_computed_once() -> None:
    nodes = chain(NodeCost(2.0), NodeCost(5.0, None, 1.0, 3.0, True))
    assert labels(nodes, ["n1"], 9.0) == "load once keep"


def test_a_shared_subgraph_is_kept_rather_than_what_is_made_of_it() -> None:
    words = NodeCost(8.0, None, 1.0, 4.0, True)
    cheap = NodeCost(0.25, None, 3.0, 4.0, True)
    nodes = [*chain(words), DagNode("a", ("n0",), cheap), DagNode("b", ("n0",), cheap)]
    assert labels(nodes, ["a", "b"], 10.0) == "load keep compute compute"


def test_requests_from_elsewhere_share_the_price_of_keeping() -> None:
    nodes = chain(NodeCost(2.0, None, 1.0, 5.0, True), NodeCost(0.25))
    # Two seconds saved at each later request, five to keep: alone it does not pay with two, with one other model it does.
    assert labels(nodes, ["n1"], 3.0) == "load compute compute"
    assert labels(nodes, ["n1"], {"raw": 5.0, "n0": 5.0, "n1": 3.0}) == "load keep compute"
    plan = cheapest_plan(nodes, ["n1"], {"raw": 5.0, "n0": 5.0, "n1": 3.0})
    assert plan.cost_secs == (1 + 2 + 0.25) + 2 * (1.0 + 0.25) + 5.0 * 2 / 4


def test_a_memo_may_be_left_for_later() -> None:
    # p is there now, because q is computed; later q is read back, and then the memo of r is the cheapest way to r.
    nodes = [
        DagNode("raw", (), NodeCost(INF, 1.0)),
        DagNode("p", ("raw",), NodeCost(9.0)),
        DagNode("q", ("p",), NodeCost(1.0, None, 0.5, 0.5, True)),
        DagNode("r", ("p",), NodeCost(1.0, 1.5)),
    ]
    assert labels(nodes, ["q", "r"], 2.0) == "load once keep once"
    assert labels(nodes, ["r"], 2.0) == "skip skip skip load"


def test_equal_costs_have_one_plan() -> None:
    assert labels(chain(NodeCost(1.0, 2.0)), ["n0"]) == "skip load"
    assert labels(chain(NodeCost(2.0, None, 1.0, 2.0, True)), ["n0"], 2.0) == "load keep"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reuse", [1.0, 8.5])
def test_large_dags_as_the_reference(shape: str, reuse: float) -> None:
    nodes, wanted = random_dag(shape, 600, 3)
    assert cheapest_plan(nodes, wanted, reuse) == cheapest_plan(nodes, wanted, reuse, by_networkx)


@pytest.mark.slow
def test_a_deep_chain_is_no_limit() -> None:
    cost = NodeCost(1e-6, None, 1e-7, 1e-3, True)
    nodes = chain(*(cost for _ in range(5_000)))
    plan = cheapest_plan(nodes, ["n4999"], 4.0)
    assert plan.labels["n4999"] is Label.KEEP
    assert set(plan.labels.values()) == {Label.LOAD, Label.COMPUTE_TRANSIENT, Label.KEEP}
    assert labels(nodes, ["n4999"], 1.0).count("compute") == 5_000


def test_hash_seeds_do_not_show() -> None:
    code = (
        "from tests.warehouse.planning.dags import *\nfrom warehouse.planning.cheapest import *\n"
        "nodes, wanted = random_dag('random', 200, 5)\nprint(cheapest_plan(nodes, set(wanted), 4.0))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)},
                       check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1] != ""


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (lambda nodes: (nodes[::-1], ["n0"], 1.0), "raw"),
        (lambda nodes: ([*nodes, nodes[0]], ["n0"], 1.0), "raw"),
        (lambda nodes: (nodes, ["n7"], 1.0), "n7"),
        (lambda nodes: (nodes, ["n0"], 0.5), 0.5),
        (lambda nodes: (nodes, ["n0"], {"n0": math.nan}), math.nan),
    ],
)
def test_what_is_refused(change: object, value: object) -> None:
    with pytest.raises(InputError) as caught:
        cheapest_plan(*change(chain(NodeCost(1.0))))  # type: ignore[operator]
    assert repr(caught.value.value) == repr(value)


def test_negative_costs_are_refused() -> None:
    with pytest.raises(InputError):
        NodeCost(1.0, keep_secs=-1.0)
    with pytest.raises(InputError):
        alternatives(chain(NodeCost(1.0)), ["n0"], "raw")
