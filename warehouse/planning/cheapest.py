"""The cheapest plan over a merged DAG: load, compute or compute-and-keep for every node, exactly.

A plan serves this request and those that are expected over a horizon. With n requests of a node, this one included, it is

* computed and let go: its seconds n times, and its arguments are needed n times;
* computed and kept: its seconds once, its arguments once, the price of keeping it, and it is read back n - 1 times;
* loaded: read n times, where a memo (or, for a raw column, the raw file) is there;
* skipped: nobody needs it.

Four yes-or-no variables a node say this: *needed* and *computed*, at this request and at later ones. Every term of the
cost charges for "x and not y": needed and not computed is a read, computed is a cost whatever else holds, and computed
without its arguments needed is impossible. Such a sum is least at a minimum cut of a network with an edge x -> y for each term.
Without later requests two variables are left, and the cut is the choice between loading and computing of one run,
as Helix makes it (Xin et al., "Helix: Holistic Optimization for Accelerating Iterative Machine Learning", VLDB 2018).

Of several plans of the same cost the one is taken that needs and computes the least: load before compute, keep before compute
again and again. It does not depend on the order of anything (:mod:`warehouse.planning.minimum_cut`).

**Requests from elsewhere.** ``reuse`` may differ from node to node, since other models request a shared subgraph too. In
the DAG an argument is needed as often as what reads it; what ``reuse`` adds to that are requests from elsewhere. They
bear their share of the price of keeping: with n - 1 later requests, m of them in the DAG, m / (n - 1) of it is charged here. So a
subgraph is kept when keeping pays for all of them together, given that computing costs them what it costs here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from transforms.errors import InputError
from warehouse.planning.minimum_cut import SINK, Network, Solver, by_push_relabel, minimum_cut

__all__ = ["Alternatives", "CheapestPlan", "DagNode", "Label", "NodeCost", "Reuse", "alternatives", "cheapest_plan"]


class Label(StrEnum):
    """What is done about a node at this request."""

    SKIP = "skip"  # nobody needs it
    LOAD = "load"  # read its memo; of a raw column, the raw file
    COMPUTE = "compute"  # compute it, now and at every later request
    KEEP = "keep"  # compute it now and keep it; later requests load it
    COMPUTE_TRANSIENT = (
        "once"  # compute it now without keeping it: later requests do not need it, or load a memo that is there
    )


@dataclass(frozen=True, slots=True)
class NodeCost:
    """CPU seconds a row. ``compute_secs``: the operator alone, arguments in hand; infinite for a raw column.

    ``load_secs``: reading it where it is already, None if it is nowhere; for a raw column, reading the raw file.
    ``read_back_secs``: reading it if it is kept now. ``keep_secs``: writing it once and storing it over the horizon.
    """

    compute_secs: float
    load_secs: float | None = None
    read_back_secs: float = math.inf
    keep_secs: float = math.inf
    keepable: bool = False

    def __post_init__(self) -> None:
        for secs in (self.compute_secs, self.load_secs or 0.0, self.read_back_secs, self.keep_secs):
            if not secs >= 0:
                raise InputError("a cost is a number of seconds", where=str(self), value=secs, allowed="0 or more")

    @property
    def may_be_kept(self) -> bool:
        """Whether keeping it is a choice: it is allowed, has a finite price, and is not stored already."""
        return self.keepable and self.load_secs is None and math.isfinite(self.keep_secs + self.read_back_secs)


@dataclass(frozen=True, slots=True)
class DagNode:
    """A node, the nodes it reads, and its costs."""

    id: str
    args: tuple[str, ...]
    cost: NodeCost


@dataclass(frozen=True)
class CheapestPlan:
    """A label for every node, in the order given, and what the plan costs over the horizon, in CPU seconds a row."""

    labels: Mapping[str, Label]
    cost_secs: float


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What the whole plan costs, in CPU seconds a row over the horizon, if one node must be obtained one way.

    Infinite where it cannot be: loading what is not stored, keeping what is, or may not be.
    """

    load_secs: float
    compute_secs: float
    keep_secs: float


#: Expected requests over the horizon, this one included, so at least 1: of all nodes, or by node (1 for those left out).
Reuse = float | Mapping[str, float]


def cheapest_plan(
    nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0, solver: Solver = by_push_relabel
) -> CheapestPlan:
    """The plan of least cost that obtains every node of ``wanted``. ``nodes`` stand in topological order.

    Raises :class:`InputError` for a node that is twice or not there, reads what does not stand before it, has a reuse
    below 1, or can be neither loaded nor computed though it is wanted.
    """
    later = _later_requests(nodes, wanted, reuse)
    if isinstance(reuse, int | float) and not any(node.cost.may_be_kept for node in nodes):
        # Every request is served alike: the plan of one, as often as there are requests.
        once = _solve(nodes, wanted, _later_requests(nodes, wanted, 1.0), solver)
        if once is not None:
            return CheapestPlan(once.labels, once.cost_secs * reuse)
    plan = _solve(nodes, wanted, later, solver)
    if plan is None:
        raise InputError("a wanted node can be neither loaded nor computed", value=_unobtainable(nodes, wanted))
    return plan


def alternatives(
    nodes: Sequence[DagNode], wanted: Collection[str], node: str, reuse: Reuse = 1.0, solver: Solver = by_push_relabel
) -> Alternatives:
    """What the plan would cost if ``node``, one of ``wanted``, were loaded, or computed at each request, or kept.

    Raises what :func:`cheapest_plan` raises, and :class:`InputError` for a node that is not wanted.
    """
    if node not in wanted:
        raise InputError("alternatives are those of a wanted node", value=node)
    later = _later_requests(nodes, wanted, reuse)

    def secs(label: Label) -> float:
        plan = _solve(nodes, wanted, later, solver, (node, label))
        return math.inf if plan is None else plan.cost_secs

    return Alternatives(secs(Label.LOAD), secs(Label.COMPUTE), secs(Label.KEEP))


@dataclass(frozen=True, slots=True)
class _FutureRequests:
    """Later requests of a node: how many the DAG accounts for, and the share of the price of keeping it bears."""

    requests: float
    cost_share: float


def _later_requests(nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse) -> dict[str, _FutureRequests]:
    """By node. An argument is needed at later requests as often as the node that reads it and is requested most."""
    stated = {node.id: reuse if isinstance(reuse, int | float) else reuse.get(node.id, 1.0) for node in nodes}
    for name, requests in stated.items():
        if not (requests >= 1 and math.isfinite(requests)):
            raise InputError("a node is requested at least this once", where=name, value=requests, allowed="1 or more")
    _check_order(nodes, wanted)
    in_dag = dict.fromkeys(stated, 0.0)
    for name in wanted:
        in_dag[name] = stated[name] - 1
    for node in reversed(nodes):
        for arg in node.args:
            in_dag[arg] = max(in_dag[arg], in_dag[node.id])
    return {
        name: _FutureRequests(requests, requests / (stated[name] - 1) if stated[name] - 1 > requests else 1.0)
        for name, requests in in_dag.items()
    }


def _check_order(nodes: Sequence[DagNode], wanted: Collection[str]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.id in seen:
            raise InputError("a node stands twice in the DAG", value=node.id)
        for arg in node.args:
            if arg not in seen:
                raise InputError("a node reads what does not stand before it", where=node.id, value=arg)
        seen.add(node.id)
    for name in wanted:
        if name not in seen:
            raise InputError("a wanted node is not in the DAG", value=name)


@dataclass(frozen=True, slots=True)
class _Variables:
    """Vertices of a node, on the source side when true: needed and computed, now and later. The sink is never true.

    Variables that must be equal share a vertex. Without later requests ``later`` is False and the last two mean nothing.
    """

    needed: int
    computed: int
    later: bool = False
    needed_later: int = SINK
    computed_later: int = SINK


def _solve(
    nodes: Sequence[DagNode],
    wanted: Collection[str],
    later: Mapping[str, _FutureRequests],
    solver: Solver,
    constraint: tuple[str, Label] | None = None,
) -> CheapestPlan | None:
    """The cheapest plan in which one node may be given a label by ``constraint``; None if there is no plan."""
    network = Network()
    variables: dict[str, _Variables] = {}
    costs: dict[str, NodeCost] = {}
    for node in nodes:
        cost, must_keep = node.cost, False
        if constraint is not None and constraint[0] == node.id:
            only = _constrained_cost(cost, constraint[1])
            if only is None:
                return None
            cost, must_keep = only, constraint[1] is Label.KEEP
        args = [variables[arg] for arg in node.args]
        if any(arg.needed == SINK for arg in args):  # nothing gives an argument
            cost = replace(cost, compute_secs=math.inf)
        costs[node.id] = cost
        at = variables[node.id] = _add_node(network, cost, later[node.id], must_keep)
        for arg in args:
            network.edge(at.computed, arg.needed, math.inf)
            network.edge(at.computed_later, arg.needed_later, math.inf)
    needed = [variables[name].needed for name in wanted]
    needed += [variables[name].needed_later for name in wanted if variables[name].later]
    if SINK in needed:
        return None
    true = minimum_cut(network, needed, solver).tolist()
    labels: dict[str, Label] = {}
    secs: list[float] = []
    for node in nodes:
        labels[node.id], node_secs = _outcome(costs[node.id], variables[node.id], later[node.id], true)
        secs += node_secs
    if constraint is not None and constraint[1] is Label.KEEP and not variables[constraint[0]].later:
        labels[constraint[0]] = Label.KEEP
        secs.append(costs[constraint[0]].keep_secs)
    return CheapestPlan(labels, math.fsum(secs))


def _constrained_cost(cost: NodeCost, label: Label) -> NodeCost | None:
    """The costs of a node that may be obtained in one way only; None if it cannot."""
    match label:
        case Label.LOAD:
            return None if cost.load_secs is None else NodeCost(math.inf, cost.load_secs)
        case Label.COMPUTE:
            return NodeCost(cost.compute_secs)
        case _:
            return cost if cost.may_be_kept else None


def _add_node(network: Network, cost: NodeCost, later: _FutureRequests, must_keep: bool) -> _Variables:
    """A node's vertices and the edges between them, which are its costs."""
    computable = math.isfinite(cost.compute_secs)
    load_secs = math.inf if cost.load_secs is None else cost.load_secs
    computed = network.vertex() if computable else SINK
    needed = computed if math.isinf(load_secs) else network.vertex()
    network.edge(needed, computed, load_secs)
    network.edge(computed, SINK, cost.compute_secs)
    if not later.requests:
        return _Variables(needed, computed)
    read_secs = later.requests * load_secs
    if cost.may_be_kept and computable:
        read_secs = later.requests * cost.read_back_secs + later.cost_share * cost.keep_secs
    computed_later = network.vertex() if computable and not must_keep else SINK
    needed_later = computed_later if math.isinf(read_secs) else network.vertex()
    network.edge(needed_later, computed_later, read_secs)
    network.edge(computed_later, SINK, later.requests * cost.compute_secs)
    network.edge(needed_later, needed, math.inf)
    network.edge(computed_later, computed, math.inf)
    return _Variables(needed, computed, True, needed_later, computed_later)


def _outcome(cost: NodeCost, at: _Variables, later: _FutureRequests, true: Sequence[bool]) -> tuple[Label, list[float]]:
    """A node's label, and what the plan pays for it."""
    if not true[at.needed]:
        return Label.SKIP, []
    load_secs = math.inf if cost.load_secs is None else cost.load_secs
    secs = [cost.compute_secs if true[at.computed] else load_secs]
    label = Label.COMPUTE if true[at.computed] else Label.LOAD
    if not at.later:
        return label, secs
    if not true[at.needed_later]:
        return (Label.COMPUTE_TRANSIENT if label is Label.COMPUTE else label), secs
    if true[at.computed_later]:
        return label, [*secs, later.requests * cost.compute_secs]
    if not cost.may_be_kept:
        return (Label.COMPUTE_TRANSIENT if label is Label.COMPUTE else label), [*secs, later.requests * load_secs]
    return Label.KEEP, [*secs, later.requests * cost.read_back_secs, later.cost_share * cost.keep_secs]


def _unobtainable(nodes: Sequence[DagNode], wanted: Collection[str]) -> str:
    """The first wanted node, in the order of the DAG, that nothing gives."""
    given: set[str] = set()
    for node in nodes:
        computable = math.isfinite(node.cost.compute_secs) and all(arg in given for arg in node.args)
        if computable or (node.cost.load_secs is not None and math.isfinite(node.cost.load_secs)):
            given.add(node.id)
        elif node.id in wanted:
            return node.id
    raise AssertionError("every wanted node can be obtained, and no plan was found")
