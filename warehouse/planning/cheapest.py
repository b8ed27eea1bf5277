"""The cheapest plan over a merged DAG: load, compute or compute-and-keep for every node, exactly.

A plan serves this request and the expected requests over a horizon. With n requests of a node, this one included, the node is

* computed and not kept: its seconds and its arguments count n times;
* computed and kept: its seconds and its arguments count once, plus the price of keeping it and n - 1 reads of the memo;
* loaded: read n times, if there is a memo (or, for a raw column, the raw file);
* skipped: no wanted node needs it.

Each node has four boolean variables: *needed* and *computed*, at this request and at later ones. Every term of the
cost charges for "x and not y": needed and not computed is a read, computed is a cost in any case, and computed
without its arguments needed is impossible. Such a sum is minimal at a minimum cut of a network with an edge x -> y for each term.
Without later requests there are two variables, and the cut is the choice between loading and computing of one run,
as in Helix (Xin et al., "Helix: Holistic Optimization for Accelerating Iterative Machine Learning", VLDB 2018).

Of several plans of equal cost the result is the one that needs and computes the least: load before compute, keep before
repeated computation. It does not depend on any order (:mod:`warehouse.planning.minimum_cut`).

**Requests of other models.** ``reuse`` may differ between nodes, since other models request a shared subgraph too. In
the DAG an argument is needed as often as its readers; the rest of its ``reuse`` are requests of other models. They
carry their share of the price of keeping: with n - 1 later requests, m of them in the DAG, m / (n - 1) of it is charged here.
So a subgraph is kept if keeping it is cheaper for all of them together, provided that they compute it at the same cost.
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
    """How a node is obtained at this request."""

    SKIP = "skip"  # no wanted node needs it
    LOAD = "load"  # read its memo; for a raw column, the raw file
    COMPUTE = "compute"  # compute it, now and at every later request
    KEEP = "keep"  # compute it now and keep it; later requests load it
    COMPUTE_TRANSIENT = "once"  # compute it now, do not keep it; later requests load it or do not need it


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Costs of a node in CPU seconds per row.

    Attributes:
        compute_secs: The operator without its arguments; infinite for a raw column.
        load_secs: Reading its memo, or the raw file of a raw column; None if there is no memo.
        read_back_secs: Reading the memo that this plan keeps.
        keep_secs: Writing the memo once and storing it over the horizon.
        keepable: Whether a memo may be kept.
    """

    compute_secs: float
    load_secs: float | None = None
    read_back_secs: float = math.inf
    keep_secs: float = math.inf
    keepable: bool = False

    def __post_init__(self) -> None:
        for secs in (self.compute_secs, self.load_secs or 0.0, self.read_back_secs, self.keep_secs):
            if not secs >= 0:
                raise InputError(
                    "a cost must be a number of seconds >= 0", where=str(self), value=secs, allowed="0 or more"
                )

    @property
    def may_be_kept(self) -> bool:
        """Whether a plan can keep it: it is allowed, has a finite price and no memo yet."""
        return self.keepable and self.load_secs is None and math.isfinite(self.keep_secs + self.read_back_secs)


@dataclass(frozen=True, slots=True)
class DagNode:
    """A node, the nodes it reads, and its costs."""

    id: str
    args: tuple[str, ...]
    cost: NodeCost


@dataclass(frozen=True)
class CheapestPlan:
    """A label for every node, in the given order, and the plan's cost over the horizon in CPU seconds per row."""

    labels: Mapping[str, Label]
    cost_secs: float


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The cost of the plan if one node must be obtained in one way: CPU seconds per row over the horizon.

    Infinite if that is impossible: loading without a memo, keeping with one, or where keeping is not allowed.
    """

    load_secs: float
    compute_secs: float
    keep_secs: float


#: Expected requests over the horizon with this one, at least 1: of all nodes, or by node (1 for missing ones).
Reuse = float | Mapping[str, float]


def cheapest_plan(
    nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse = 1.0, solver: Solver = by_push_relabel
) -> CheapestPlan:
    """The plan of least cost that obtains every node of ``wanted``; ``nodes`` are in topological order.

    Raises :class:`InputError` for a duplicate or unknown node, an argument that is not before its reader, a reuse
    below 1, or a wanted node that can be neither loaded nor computed.
    """
    later = _later_requests(nodes, wanted, reuse)
    if isinstance(reuse, int | float) and not any(node.cost.may_be_kept for node in nodes):
        # Nothing can be kept, so all requests have the same plan.
        once = _solve(nodes, wanted, _later_requests(nodes, wanted, 1.0), solver)
        if once is not None:
            return CheapestPlan(once.labels, once.cost_secs * reuse)
    plan = _solve(nodes, wanted, later, solver)
    if plan is None:
        raise InputError("a wanted node must have a memo or be computable", value=_unobtainable(nodes, wanted))
    return plan


def alternatives(nodes: Sequence[DagNode], wanted: Collection[str], node: str, reuse: Reuse = 1.0) -> Alternatives:
    """The cost of the plan if ``node``, one of ``wanted``, is loaded, or computed at each request, or kept.

    Raises what :func:`cheapest_plan` raises, and :class:`InputError` for a node that is not wanted.
    """
    if node not in wanted:
        raise InputError("the node of alternatives must be a wanted one", value=node)
    later = _later_requests(nodes, wanted, reuse)

    def secs(label: Label) -> float:
        plan = _solve(nodes, wanted, later, by_push_relabel, (node, label))
        return math.inf if plan is None else plan.cost_secs

    return Alternatives(secs(Label.LOAD), secs(Label.COMPUTE), secs(Label.KEEP))


@dataclass(frozen=True, slots=True)
class _FutureRequests:
    """Later requests of a node in the DAG, and their share of the price of keeping."""

    requests: float
    cost_share: float


def _later_requests(nodes: Sequence[DagNode], wanted: Collection[str], reuse: Reuse) -> dict[str, _FutureRequests]:
    """Later requests by node; an argument has those of its most requested reader."""
    stated = {node.id: reuse if isinstance(reuse, int | float) else reuse.get(node.id, 1.0) for node in nodes}
    for name, requests in stated.items():
        if not (requests >= 1 and math.isfinite(requests)):
            raise InputError(
                "reuse of a node must be a finite number >= 1", where=name, value=requests, allowed="1 or more"
            )
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
            raise InputError("a node must be in the DAG once", value=node.id)
        for arg in node.args:
            if arg not in seen:
                raise InputError("an argument must be before the node that reads it", where=node.id, value=arg)
        seen.add(node.id)
    for name in wanted:
        if name not in seen:
            raise InputError("a wanted node must be in the DAG", value=name)


@dataclass(frozen=True, slots=True)
class _Variables:
    """Vertices of a node, on the source side if true: needed and computed, now and later. The sink is never true.

    Variables that must be equal share a vertex. Without later requests ``later`` is False and the last two are unused.
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
        if any(arg.needed == SINK for arg in args):  # an argument cannot be obtained
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
    """The costs of a node with a constraint; None if it cannot be fulfilled."""
    match label:
        case Label.LOAD:
            return None if cost.load_secs is None else NodeCost(math.inf, cost.load_secs)
        case Label.COMPUTE:
            return NodeCost(cost.compute_secs)
        case _:
            return cost if cost.may_be_kept else None


def _add_node(network: Network, cost: NodeCost, later: _FutureRequests, must_keep: bool) -> _Variables:
    """The vertices of a node; the edges between them are its costs."""
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
    """A node's label, and its part of the cost."""
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
    """The first wanted node, in the order of the DAG, that cannot be obtained."""
    given: set[str] = set()
    for node in nodes:
        computable = math.isfinite(node.cost.compute_secs) and all(arg in given for arg in node.args)
        if computable or (node.cost.load_secs is not None and math.isfinite(node.cost.load_secs)):
            given.add(node.id)
        elif node.id in wanted:
            return node.id
    raise AssertionError("every wanted node can be obtained, but there is no plan")
