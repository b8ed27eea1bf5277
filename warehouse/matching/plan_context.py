"""Costs and expected requests from the catalog, for the decisions of a policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection

from transforms.graphs.graph import Node
from warehouse.config import WarehouseConfig
from warehouse.costs.cost_model import CostModel, load_cost_model, raw_bytes_per_row
from warehouse.costs.reuse import load_expected_requests
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord
from warehouse.planning.cheapest import Alternatives, DagNode, Label, NodeCost, Reuse, alternatives, cheapest_plan
from warehouse.planning.policy import Adaptive, AdmissionPolicy, policy_named
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Table

_READY, _MISSING = NodeCost(0.0, 0.0), NodeCost(0.0)


@dataclass(frozen=True)
class CostedGraph:
    """A merged graph with the costs of its nodes and their expected requests."""

    graph: MergedGraph
    costs: CostModel
    reuse: Reuse = 1.0

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The roots that a read solution obtains, each once."""
        return tuple(dict.fromkeys(root.identity for root in self.graph.roots))

    def dag(self, ready: Collection[str], *, keepable: bool) -> list[DagNode]:
        """The graph for a cut: ready memos can be loaded, and other operations kept if ``keepable``."""
        return self.costs.dag(self.graph.nodes, ready, self.graph.operations if keepable else ())

    def reading(self, ready: Collection[str]) -> tuple[Mapping[str, Label], float]:
        """The cheapest labels for one read, given the ready memos, and their CPU seconds per row."""
        plan = cheapest_plan(self.dag(ready, keepable=False), self.wanted)
        return plan.labels, plan.cost_secs

    def keeping(self, policy: AdmissionPolicy, ready: Collection[str]) -> tuple[str, ...]:
        """The operations without ready memos that the policy keeps."""
        labels = policy.labels(self.dag(ready, keepable=True), self.wanted, self.reuse)
        return tuple(identity for identity in self.graph.operations if labels[identity] is Label.KEEP)

    def alternatives(self, fingerprint: str, ready: Collection[str]) -> Alternatives:
        """The cost of one component beyond the others, by how it is obtained: CPU seconds per row over the horizon.

        Only inputs that share nodes with it are counted: the others cost the same in all alternatives.
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
        """The expected requests of a component over the horizon, this one included."""
        return self.reuse.get(fingerprint, 1.0) if isinstance(self.reuse, Mapping) else self.reuse

    @cached_property
    def _sharing(self) -> Mapping[str, frozenset[str]]:
        """For every root, the roots that share nodes with it, directly or through others, itself included."""
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
class KeepDecision:
    """Which operations of one merged graph a policy keeps; ``pricing`` is None for a policy that weighs no costs."""

    policy: AdmissionPolicy
    graph: MergedGraph
    pricing: CostedGraph | None
    _decided: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def choose(self, ready: Collection[str]) -> tuple[str, ...]:
        """What to keep beside what is ready. Equal questions are decided once."""
        known = frozenset(ready)
        if known not in self._decided:
            self._decided[known] = self._decide(known)
        return self._decided[known]

    def _decide(self, ready: Collection[str]) -> tuple[str, ...]:
        if self.pricing is not None:
            return self.pricing.keeping(self.policy, ready)
        components = tuple(self.graph.components)
        nodes = [DagNode(identity, (), _READY if identity in ready else _MISSING) for identity in components]
        labels = self.policy.labels(nodes, components)
        return tuple(identity for identity in components if labels[identity] is Label.KEEP)


@dataclass(frozen=True)
class PlanContext:
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
        """The costs of nodes over these fragments."""
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

    def cost_graph(self, graph: MergedGraph, policy: AdmissionPolicy, model: str) -> CostedGraph:
        """The graph with its costs; under the adaptive policy also with expected requests."""
        if not isinstance(policy, Adaptive):
            return CostedGraph(graph, self.costs(graph.nodes))
        requests = load_expected_requests(
            self.connection, self.table.name, graph.operations, asking=model, table_rows=self.rows, now=self.now,
            horizon_days=policy.horizon_days)  # fmt: skip
        # A column or a constant has the requests of its most requested reader.
        reuse: dict[str, float] = dict(requests)
        for node in reversed(graph.nodes):
            for arg in node.args:
                reuse[arg.identity] = max(reuse.get(arg.identity, 1.0), reuse.get(node.identity, 1.0))
        return CostedGraph(graph, self.costs(graph.nodes, policy.horizon_days), reuse)

    def keep_decision(self, model: ModelRecord, graph: MergedGraph) -> KeepDecision:
        """What a submitted model's policy keeps of its merged graph.

        Costs are looked up only for a policy that weighs them: for the others the components are all there is to know.
        """
        policy = policy_named(model.policy)
        return KeepDecision(policy, graph, self.cost_graph(graph, policy, model.name) if policy.weighs_costs else None)
