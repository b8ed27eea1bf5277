"""What the catalog knows of costs and requests, brought to the decision that a policy takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from sqlalchemy import Connection

from transforms.graphs.graph import Node
from warehouse.config import WarehouseConfig
from warehouse.costs.cost_model import CostModel, load_cost_model, raw_bytes_per_row
from warehouse.costs.reuse import load_expected_requests
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord
from warehouse.planning.cheapest import Alternatives, DagNode, Label, NodeCost, Reuse, alternatives, cheapest_plan
from warehouse.planning.policy import Adaptive, Policy, policy_named
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Table

#: Which operations to keep, given those that are ready: the matching policy over one merged graph.
KeepDecision = Callable[[Collection[str]], Collection[str]]


@dataclass(frozen=True)
class Pricing:
    """A merged graph with what its nodes cost, and how often they are expected to be asked for."""

    graph: MergedGraph
    costs: CostModel
    reuse: Reuse = 1.0

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """What a read solution has to obtain: every root, each once."""
        return tuple(dict.fromkeys(root.identity for root in self.graph.roots))

    def dag(self, ready: Collection[str], *, keepable: bool) -> list[DagNode]:
        """The graph for a cut: ready memos can be loaded, and, where ``keepable``, any other operation kept."""
        return self.costs.dag(self.graph.nodes, ready, self.graph.operations if keepable else ())

    def reading(self, ready: Collection[str]) -> tuple[Mapping[str, Label], float]:
        """How to read once at the least cost, given what is ready; and CPU seconds a row."""
        plan = cheapest_plan(self.dag(ready, keepable=False), self.wanted)
        return plan.labels, plan.cost_secs

    def keeping(self, policy: Policy, ready: Collection[str]) -> tuple[str, ...]:
        """What the policy keeps of the operations that are not ready."""
        labels = policy.labels(self.dag(ready, keepable=True), self.wanted, self.reuse)
        return tuple(identity for identity in self.graph.operations if labels[identity] is Label.KEEP)

    def alternatives(self, fingerprint: str, ready: Collection[str]) -> Alternatives:
        """What one component adds to the cheapest plan of the others, by how it is obtained: CPU seconds a row over the horizon.

        Only inputs that share anything with it are priced: the others cost the same in all alternatives.
        """
        alike = self._sharing[fingerprint]
        graph = MergedGraph(tuple(root for root in self.graph.roots if root.identity in alike))
        nodes = self.costs.dag(graph.nodes, ready, graph.operations)
        reuse = self.reuse
        if isinstance(reuse, Mapping):
            reuse = {node.identity: reuse.get(node.identity, 1.0) for node in graph.nodes}
        wanted = tuple(dict.fromkeys(root.identity for root in graph.roots))
        others = cheapest_plan(nodes, [one for one in wanted if one != fingerprint], reuse).cost_secs
        whole = alternatives(nodes, wanted, fingerprint, reuse)
        return Alternatives(
            *(max(secs - others, 0.0) for secs in (whole.load_secs, whole.compute_secs, whole.keep_secs))
        )

    def requests(self, fingerprint: str) -> float:
        """How often a component is expected to be asked for over the horizon, this time included."""
        return self.reuse.get(fingerprint, 1.0) if isinstance(self.reuse, Mapping) else self.reuse

    @cached_property
    def _sharing(self) -> Mapping[str, frozenset[str]]:
        """For every root, the roots that it shares a node with, directly or through others, itself included."""
        leader: dict[str, str] = {}

        def find(identity: str) -> str:
            while leader.setdefault(identity, identity) != identity:
                leader[identity] = leader[leader[identity]]
                identity = leader[identity]
            return identity

        for node in self.graph.nodes:
            for arg in node.args:
                leader[find(arg.identity)] = find(node.identity)
        groups: dict[str, set[str]] = {}
        for root in self.graph.roots:
            groups.setdefault(find(root.identity), set()).add(root.identity)
        return {identity: frozenset(group) for group in groups.values() for identity in group}


@dataclass(frozen=True)
class Market:
    """Where the figures come from: the catalog, what the warehouse is configured to, and the data that is read."""

    connection: Connection
    config: WarehouseConfig
    table: Table
    fragments: Sequence[PlacedFragment]
    now: float

    @cached_property
    def rows(self) -> int:
        """Events in the fragments."""
        return sum(placed.fragment.rows for placed in self.fragments)

    def costs(self, nodes: Sequence[Node], horizon_days: float = 30.0) -> CostModel:
        """What nodes cost over these fragments."""
        size_bytes = sum(placed.fragment.size_bytes for placed in self.fragments)
        return load_cost_model(
            self.connection,
            nodes,
            raw_bytes=raw_bytes_per_row(self.table.file_columns, self.rows, size_bytes),
            rates=self.config.rates,
            prices=self.config.prices,
            horizon_days=horizon_days,
            fragment_rows=max(self.rows / max(len(self.fragments), 1), 1.0),
        )

    def pricing(self, graph: MergedGraph, policy: Policy, model: str) -> Pricing:
        """A graph's prices; under the adaptive policy with how often its nodes are expected to be asked for."""
        if not isinstance(policy, Adaptive):
            return Pricing(graph, self.costs(graph.nodes))
        requests = load_expected_requests(
            self.connection, self.table.name, graph.operations, asking=model, table_rows=self.rows, now=self.now,
            horizon_days=policy.horizon_days)  # fmt: skip
        # A column or a constant is asked for as often as what is asked for most among what reads it.
        reuse: dict[str, float] = dict(requests)
        for node in reversed(graph.nodes):
            for arg in node.args:
                reuse[arg.identity] = max(reuse.get(arg.identity, 1.0), reuse.get(node.identity, 1.0))
        return Pricing(graph, self.costs(graph.nodes, policy.horizon_days), reuse)

    def keeps(self, model: ModelRecord) -> Callable[[MergedGraph], KeepDecision]:
        """What a submitted model's policy keeps."""
        policy = policy_named(model.policy)
        return keeps_of(policy, lambda graph: self.pricing(graph, policy, model.name))


def keeps_of(policy: Policy, price: Callable[[MergedGraph], Pricing]) -> Callable[[MergedGraph], KeepDecision]:
    """What a policy keeps, as :func:`warehouse.matching.survey.survey` asks for it. Equal questions are decided once.

    ``price`` is asked only by a policy that weighs costs: for the others the components are all there is to know.
    """

    def of(graph: MergedGraph) -> KeepDecision:
        decide = partial(price(graph).keeping, policy) if policy.weighs_costs else partial(_uncosted, policy, graph)
        decided: dict[frozenset[str], tuple[str, ...]] = {}

        def keeps(ready: Collection[str]) -> tuple[str, ...]:
            known = frozenset(ready)
            if known not in decided:
                decided[known] = decide(known)
            return decided[known]

        return keeps

    return of


_READY, _MISSING = NodeCost(0.0, 0.0), NodeCost(0.0)


def _uncosted(policy: Policy, graph: MergedGraph, ready: Collection[str]) -> tuple[str, ...]:
    components = tuple(graph.components)
    nodes = [DagNode(identity, (), _READY if identity in ready else _MISSING) for identity in components]
    labels = policy.labels(nodes, components)
    return tuple(identity for identity in components if labels[identity] is Label.KEEP)
