"""Costs and expected requests from the catalog, for the decisions of a policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import Connection

from transforms.graphs.graph import Node
from warehouse.config import WarehouseConfig
from warehouse.costs.accounts import load_account
from warehouse.costs.cost_model import CostModel, load_cost_model
from warehouse.costs.reuse import load_aged_reads, models_with
from warehouse.costs.value_bytes import raw_bytes_per_row
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord
from warehouse.planning.cheapest import Alternatives, DagNode, Label, NodeCost, Reuse, alternatives, cheapest_plan
from warehouse.planning.forecast import AGE_DAYS, AgedReads, Arrival, spans
from warehouse.planning.policy import Adaptive, AdmissionPolicy, policy_named
from warehouse.planning.regret import Advisor, Shares, shares
from warehouse.planning.retention import MemoPrice, Outlook, requesters, worth_keeping
from warehouse.tables.manifests import PlacedFragment, arrival_times
from warehouse.tables.merges import MergedPart, merged_parts
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
class AgedPricing:
    """The prices of a merged graph and its expected requests, by the age of the data.

    Attributes:
        costed: The graph with its costs.
        models: The live models with each component of the graph as an input, by fingerprint.
        aged: The reads of the table.
        arrived: When each fragment arrived, by its catalog row; epoch seconds.
        now: The time of the decision.
        shares: The parts of the fragments that the forecast and the fixed policies decide about.
        horizon_days: The longest time to look ahead.
    """

    costed: CostedGraph
    models: Mapping[str, frozenset[str]]
    aged: AgedReads
    arrived: Mapping[int, float]
    now: float
    shares: Shares
    horizon_days: float

    @cached_property
    def prices(self) -> Mapping[str, MemoPrice]:
        """The prices of all operations, by fingerprint."""
        return {name: self.costed.costs.memo_price(node) for name, node in self.costed.graph.operations.items()}

    def bucket(self, placed: PlacedFragment) -> int:
        """The bucket of the age of a fragment."""
        return self.aged.bucket(self.arrived.get(placed.row, self.now), self.now)

    def advisor(self, placed: PlacedFragment) -> Advisor:
        """What decides about a fragment."""
        return self.shares.advisor(placed.fragment.fragment_id)

    @cached_property
    def _arguments(self) -> Mapping[str, tuple[str, ...]]:
        return {node.identity: tuple(arg.identity for arg in node.args) for node in self.costed.graph.nodes}

    def rates(self, ready: Collection[str]) -> dict[str, tuple[float, ...]]:
        """By node, its expected requests a day by bucket of age, if these memos are ready."""
        found = requesters(self._arguments, self.models, ready)
        rates = {models: self.aged.requests_per_day(models) for models in set(found.values())}
        return {node: rates[models] for node, models in found.items()}

    def outlook(self, bucket: int, ready: Collection[str]) -> Outlook:
        """Prices and requests over data of one age with these memos."""
        return Outlook(self.prices, self.rates(ready), bucket, self.horizon_days)

    def keeping(self, ready: Collection[str], bucket: int, *, is_requested: bool) -> tuple[str, ...]:
        """The operations without ready memos that the forecast keeps."""
        nodes = self.costed.dag(ready, keepable=True)
        return worth_keeping(nodes, self.costed.wanted, self.outlook(bucket, ready), is_requested=is_requested)

    def storage_text(self, fingerprint: str, placed: PlacedFragment, ready: Collection[str]) -> str:
        """What storing a memo over a fragment with these memos costs and saves, as a sentence."""
        bucket, rows = self.bucket(placed), placed.fragment.rows
        outlook = self.outlook(bucket, ready)
        price, rate = self.prices[fingerprint], outlook.requests_per_day[fingerprint][bucket]
        hold = outlook.hold(fingerprint)
        held = f"storing pays for {hold.days:.3g} d" if hold.days else "storing does not pay"
        age = f"{AGE_DAYS[bucket]:.0f} d old" if bucket else "new"
        return (
            f"{rate:.2g} requests a day expected of data that is {age}; they save {rate * max(price.saving_secs, 0.0) * rows:.2g} s, "
            f"storing costs {price.day_secs * rows:.2g} s a day: {held}"
        )

    def requests(self, bucket: int, ready: Collection[str]) -> dict[str, float]:
        """The expected requests of every node over the horizon, a present one included."""
        parts = spans(bucket, self.horizon_days)
        return {
            name: 1.0 + sum(rates[part] * days for part, days in parts) for name, rates in self.rates(ready).items()
        }


@dataclass(frozen=True, slots=True)
class FragmentKind:
    """The bucket of a fragment's age, and what decides about it."""

    bucket: int
    advisor: Advisor


_ANY_KIND = FragmentKind(0, Advisor.FORECAST)


@dataclass(frozen=True)
class KeepDecision:
    """Which operations of one merged graph a policy keeps; ``pricing`` is None for a policy that weighs no costs.

    ``is_requested``: the graph is requested now, as by a submission; otherwise only expected requests count.
    """

    policy: AdmissionPolicy
    graph: MergedGraph
    pricing: AgedPricing | None = None
    is_requested: bool = True
    _decided: dict[tuple[frozenset[str], FragmentKind], tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def kind(self, placed: PlacedFragment) -> FragmentKind:
        """The kind of a fragment; fragments of one kind with the same ready memos have one decision."""
        if self.pricing is None:
            return _ANY_KIND
        return FragmentKind(self.pricing.bucket(placed), self.pricing.advisor(placed))

    def choose(self, ready: Collection[str], kind: FragmentKind) -> tuple[str, ...]:
        """What to keep beside what is ready over fragments of a kind. Equal questions are decided once."""
        question = frozenset(ready), kind
        if question not in self._decided:
            self._decided[question] = self._decide(*question)
        return self._decided[question]

    def _decide(self, ready: frozenset[str], kind: FragmentKind) -> tuple[str, ...]:
        if self.pricing is not None and kind.advisor is Advisor.FORECAST:
            return self.pricing.keeping(ready, kind.bucket, is_requested=self.is_requested)
        policy = self.policy if self.pricing is None else policy_named(kind.advisor)
        components = tuple(self.graph.components)
        nodes = [DagNode(identity, (), _READY if identity in ready else _MISSING) for identity in components]
        labels = policy.labels(nodes, components)
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

    def costs(self, nodes: Sequence[Node]) -> CostModel:
        """The costs of nodes over these fragments."""
        size_bytes = sum(placed.fragment.size_bytes for placed in self.fragments)
        return load_cost_model(
            self.connection,
            nodes,
            raw_bytes=raw_bytes_per_row(self.table.file_columns, self.rows, size_bytes),
            rates=self.config.rates,
            prices=self.config.prices,
            fragment_rows=max(self.rows / max(len(self.fragments), 1), 1.0),
        )

    @cached_property
    def arrived(self) -> Mapping[int, float]:
        """When the fragments of the table arrived, by their catalog rows."""
        return arrival_times(self.connection, self.table.name)

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """The fragments as arrivals of rows; parts of a merged one each by itself, since a read may cover some of them."""
        merged = merged_parts(self.connection) if any(one.is_merged for one in self.fragments) else {}
        return tuple(
            Arrival(part.start, self.arrived.get(part.row, self.now), part.rows)
            for one in self.fragments
            for part in merged.get(one.row) or (MergedPart(one.row, one.start.timestamp(), one.fragment.rows),)
        )

    def aged_pricing(self, graph: MergedGraph, asking: str = "") -> AgedPricing:
        """The graph with costs and expected requests by age; ``asking``: the model that is submitted, live or not."""
        aged = load_aged_reads(self.connection, self.table.name, self.arrivals, self.now, asking)
        models = models_with(self.connection, self.table.name, graph.components, asking)
        account, _ = load_account(self.connection, self.table.name)
        return AgedPricing(CostedGraph(graph, self.costs(graph.nodes)), models, aged, self.arrived, self.now,
                           shares(account), Adaptive().horizon_days)  # fmt: skip

    def keep_decision(self, model: ModelRecord, graph: MergedGraph, *, is_requested: bool = True) -> KeepDecision:
        """What a model's policy keeps of its merged graph; ``is_requested``: by a submission, not only by new data.

        Costs are looked up only for a policy that weighs them: for the others the components are all there is to know.
        """
        policy = policy_named(model.policy)
        pricing = self.aged_pricing(graph, model.name) if policy.weighs_costs else None
        return KeepDecision(policy, graph, pricing, is_requested)
