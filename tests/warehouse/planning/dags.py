"""Random DAGs with costs, and a reference solver, for the tests of the cheapest plan."""

from __future__ import annotations

import random
from collections import deque

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from warehouse.planning.cheapest import DagNode, NodeCost
from warehouse.planning.minimum_cut import SINK, SOURCE, Ticks

SHAPES = ("wide", "chain", "prefixes", "random")


def by_networkx(ticks: Ticks) -> tuple[int, NDArray[np.bool_]]:
    """The reference: a maximum flow by networkx, and what its residual network reaches from the source."""
    graph = nx.DiGraph()
    graph.add_nodes_from([SOURCE, SINK])
    for tail, head, capacity in zip(ticks.tails.tolist(), ticks.heads.tolist(), ticks.capacities.tolist(), strict=True):
        known = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        graph.add_edge(tail, head, capacity=known + capacity)
    residual = nx.algorithms.flow.boykov_kolmogorov(graph, SOURCE, SINK)
    reached = np.zeros(ticks.vertices, np.bool_)
    reached[SOURCE] = True
    ahead = deque([SOURCE])
    while ahead:
        vertex = ahead.popleft()
        for other, edge in residual[vertex].items():
            if not reached[other] and edge["flow"] < edge["capacity"]:
                reached[other] = True
                ahead.append(other)
    return residual.graph["flow_value"], reached


def random_dag(shape: str, nodes: int, seed: int) -> tuple[list[DagNode], list[str]]:
    """``nodes`` nodes, a twentieth of them raw columns, and the ids of those that nobody reads."""
    chance = random.Random(f"{shape} {nodes} {seed}")
    raw = max(nodes // 20, 1)
    made: list[DagNode] = []
    for position in range(nodes):
        cost = _raw_cost(chance) if position < raw else _cost(chance)
        args = () if position < raw else tuple(f"n{at}" for at in sorted(_args(shape, position, raw, chance)))
        made.append(DagNode(f"n{position}", args, cost))
    read = {arg for node in made for arg in node.args}
    return made, [node.id for node in made[raw:] if node.id not in read]


def _args(shape: str, position: int, raw: int, chance: random.Random) -> set[int]:
    count = chance.randint(1, 3)
    match shape:
        case "wide":  # every node reads raw columns
            return {chance.randrange(raw) for _ in range(count)}
        case "chain":
            return {position - 1}
        case "prefixes":  # chains of ten over a few long ones that many share
            start = position - position % 10
            return {position - 1} if position > start >= raw else {chance.randrange(min(position, 2 * raw))}
        case _:
            return {chance.randrange(position) for _ in range(count)}


def _raw_cost(chance: random.Random) -> NodeCost:
    return NodeCost(float("inf"), load_secs=_secs(chance, -9, -7))


def _cost(chance: random.Random) -> NodeCost:
    return NodeCost(
        compute_secs=_secs(chance, -9, -6),
        load_secs=_secs(chance, -9, -7) if chance.random() < 0.3 else None,
        read_back_secs=_secs(chance, -9, -7),
        keep_secs=_secs(chance, -8, -5.5),
        keepable=chance.random() < 0.8,
    )


def _secs(chance: random.Random, low: float, high: float) -> float:
    return float(10.0 ** chance.uniform(low, high))
