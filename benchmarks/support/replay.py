"""Replay a history of data, submissions and reads under an admission policy, without a catalog. Pure.

The decisions are those of the warehouse, by the same functions; the costs are those of its cost model. A memo that is ready is
loaded, everything else is computed from raw columns or from memos of parts, and storage is paid for whole days. New data is
decided about once for all live models; the warehouse decides for each model by itself, which changes totals by less than 3 %
in the simulated weeks of churn and takes ten times as long.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transforms.expressions.model import Model
from transforms.graphs.graph import Node, Operation, RawColumn
from warehouse.costs.cost_model import CostModel
from warehouse.models.merged_graph import MergedGraph
from warehouse.planning.cheapest import DagNode
from warehouse.planning.forecast import DAY_SECS, AgedReads, Arrival, TimedRead, count_reads
from warehouse.planning.regret import Account, Advisor, Shares, charge, shares
from warehouse.planning.retention import MemoPrice, Outlook, requesters, worth_dropping, worth_keeping

_WINDOW_DAYS = 30.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment of the log; ``start_at`` is its partition's, in epoch seconds."""

    name: str
    start_at: float
    rows: int


@dataclass(frozen=True, slots=True)
class Read:
    """A read by a model of the pieces that start in ``[start_at, end_at)``."""

    model: str
    start_at: float = float("-inf")
    end_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class ReplayedDay:
    """A day: data arrives and expires, live models read, some are retired, new ones are submitted, models read again."""

    arrived: tuple[Piece, ...] = ()
    expired: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    retired: tuple[str, ...] = ()
    submitted: tuple[Model, ...] = ()
    later_reads: tuple[Read, ...] = ()


@dataclass(slots=True)
class Total:
    """CPU seconds by cause; storage in CPU seconds too."""

    computed_secs: float = 0.0
    recomputed_secs: float = 0.0
    loading_secs: float = 0.0
    storage_secs: float = 0.0
    hedged_days: int = 0

    @property
    def secs(self) -> float:
        return self.computed_secs + self.recomputed_secs + self.loading_secs + self.storage_secs


class Costs:
    """Costs per row of reading and making sets of operations, each worked out once."""

    def __init__(self, reading: CostModel, making: CostModel) -> None:
        self.reading_costs, self.making_costs = reading, making
        self.nodes: dict[str, Node] = {}
        self.prices: dict[str, MemoPrice] = {}
        self._numbers: dict[str, int] = {}
        self._secs: list[float] = []
        self._make_secs: list[float] = []
        self._load_secs: list[float] = []
        self._within: dict[str, int] = {}
        self._parts: dict[tuple[str, int], tuple[int, int]] = {}
        self._reading: dict[tuple[frozenset[str], int], tuple[float, float]] = {}
        self._making: dict[frozenset[str], float] = {}
        self._day_secs: dict[frozenset[str], float] = {}
        self._dag_nodes: dict[tuple[str, bool], DagNode] = {}

    def add(self, graph: MergedGraph) -> None:
        """Learn the nodes of a model."""
        for node in graph.nodes:
            if node.identity in self._numbers:
                continue
            self._numbers[node.identity] = len(self._secs)
            self.nodes[node.identity] = node
            cost = self.reading_costs.node_cost(node, ready=True, keepable=False)
            self._secs.append((cost.load_secs or 0.0) if isinstance(node, RawColumn) else cost.compute_secs)
            self._load_secs.append(cost.load_secs or 0.0)
            cost = self.making_costs.node_cost(node, ready=True, keepable=False)
            self._make_secs.append((cost.load_secs or 0.0) if isinstance(node, RawColumn) else cost.compute_secs)
            within = 1 << self._numbers[node.identity]
            for arg in node.args:
                within |= self._within[arg.identity]
            self._within[node.identity] = within
            if isinstance(node, Operation):
                self.prices[node.identity] = self.reading_costs.memo_price(node)

    def dag_node(self, node: Node, *, is_ready: bool) -> DagNode:
        """A node of the graph of a decision."""
        question = node.identity, is_ready
        if question not in self._dag_nodes:
            ready = (node.identity,) if is_ready else ()
            (self._dag_nodes[question],) = self.reading_costs.dag([node], ready, self.prices)
        return self._dag_nodes[question]

    def mask(self, operations: Iterable[str]) -> int:
        """A set of operations as bits."""
        found = 0
        for one in operations:
            found |= 1 << self._numbers[one]
        return found

    def read(self, inputs: frozenset[str], stored: int) -> tuple[float, float]:
        """Seconds per row of reading these inputs: loading memos, and computing the rest with its raw columns."""
        within = 0
        for one in inputs:
            within |= self._within[one]
        question = inputs, within & stored
        if question not in self._reading:
            computed = loaded = 0
            for one in inputs:
                more, loads = self._part(one, stored)
                computed |= more
                loaded |= loads
            loading = sum(self._load_secs[bit] for bit in _bits(loaded))
            self._reading[question] = loading, sum(self._secs[bit] for bit in _bits(computed))
        return self._reading[question]

    def _part(self, identity: str, stored: int) -> tuple[int, int]:
        question = identity, self._within[identity] & stored
        if question not in self._parts:
            bit = 1 << self._numbers[identity]
            if stored & bit:
                self._parts[question] = 0, bit
            else:
                computed, loaded = bit, 0
                for arg in self.nodes[identity].args:
                    more, loads = self._part(arg.identity, stored)
                    computed |= more
                    loaded |= loads
                self._parts[question] = computed, loaded
        return self._parts[question]

    def make(self, operations: frozenset[str]) -> float:
        """Seconds per row of computing operations together and writing their memos."""
        if operations not in self._making:
            within = 0
            for one in operations:
                within |= self._within[one]
            writing = sum(self.prices[one].write_secs for one in operations)
            self._making[operations] = writing + sum(self._make_secs[bit] for bit in _bits(within))
        return self._making[operations]

    def day_secs(self, operations: frozenset[str]) -> float:
        """The price per row of storing operations for a day."""
        if operations not in self._day_secs:
            self._day_secs[operations] = sum(self.prices[one].day_secs for one in operations)
        return self._day_secs[operations]


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(slots=True)
class _Held:
    """A piece with what is stored of it, and what the policy ``all`` would have stored."""

    piece: Piece
    arrived_at: float
    digest: str
    stored: frozenset[str] = frozenset()
    requested: frozenset[str] = frozenset()


class Replay:
    """One policy over a history, day by day."""

    def __init__(self, policy: str, costs: Costs, horizon_days: float = 30.0) -> None:
        self.policy, self.costs, self.horizon_days = policy, costs, horizon_days
        self.total = Total()
        self.account = Account()
        self.shares = Shares()
        self._now = 0.0
        self._held: dict[str, _Held] = {}
        self._live: dict[str, frozenset[str]] = {}
        self._submitted: dict[str, float] = {}
        self._graphs: dict[str, MergedGraph] = {}
        self._reads: list[TimedRead] = []
        self._roots: dict[str, set[str]] = defaultdict(set)  # live models with a component
        self._parts: dict[tuple[Node, ...], MergedGraph] = {}
        self._period = Total()
        self._all_secs = self._none_secs = 0.0

    def run(self, days: Sequence[ReplayedDay], start_at: float) -> Total:
        """Replay all days."""
        for number, day in enumerate(days):
            self._now = start_at + number * DAY_SECS
            self._day(day)
        return self.total

    def _day(self, day: ReplayedDay) -> None:
        self._settle()
        for name in day.expired:
            del self._held[name]
        self._arrive(day.arrived)
        for read in day.reads:
            self._read(read)
        for name in day.retired:
            self._retire(name)
        for model in day.submitted:
            self._submit(model)
        for read in day.later_reads:
            self._read(read)
        for held in self._held.values():
            self._period.storage_secs += self.costs.day_secs(held.stored) * held.piece.rows
            self._all_secs += self.costs.day_secs(held.requested) * held.piece.rows
        self._charge()

    def _charge(self) -> None:
        period, total = self._period, self.total
        total.computed_secs += period.computed_secs
        total.recomputed_secs += period.recomputed_secs
        total.loading_secs += period.loading_secs
        total.storage_secs += period.storage_secs
        making = sum(self.costs.make(held.requested) * held.piece.rows for held in self._held.values())
        self.account = charge(
            self.account, own_secs=period.secs, all_secs=self._all_secs, none_secs=self._none_secs, making_secs=making
        )
        self._period, self._all_secs, self._none_secs = Total(), 0.0, 0.0

    # decisions

    def _settle(self) -> None:
        """Drop what is not worth its storage any more, and make what is by now."""
        if self.policy != "adaptive":
            return
        self.shares = shares(self.account)
        self.total.hedged_days += self.shares.forecast == 0
        self._aged = self._aged_reads()
        self._rates: dict[frozenset[str], tuple[float, ...]] = {}
        live = self._live_graph()
        dropped: dict[tuple[int, frozenset[str]], frozenset[str]] = {}
        for held in self._held.values():
            match self.shares.advisor(held.digest):
                case Advisor.NONE:
                    held.stored = frozenset()
                case Advisor.FORECAST if held.stored:
                    age = self._aged.bucket(held.arrived_at, self._now)
                    question = age, held.stored
                    if question not in dropped:
                        found = self._requesters(live, held.stored)
                        found |= {name: frozenset() for name in held.stored - found.keys()}
                        dropped[question] = frozenset(worth_dropping(held.stored, self._outlook(found, age)))
                    held.stored -= dropped[question]
        graph, decided = self._live_graph(), dict[object, frozenset[str]]()
        for held in self._held.values():
            self._make(held, self._kept(graph, held, decided, is_requested=False), frozenset())

    def _live_graph(self) -> MergedGraph:
        roots: dict[str, Node] = {}
        for graph in self._graphs.values():
            roots.update(graph.components)
        return MergedGraph(tuple(roots.values()))

    def _aged_reads(self) -> AgedReads:
        arrivals = [Arrival(held.piece.start_at, held.arrived_at, held.piece.rows) for held in self._held.values()]
        since = self._now - _WINDOW_DAYS * DAY_SECS
        self._reads = [read for read in self._reads if read.read_at > since]
        return count_reads(arrivals, self._reads, self._submitted, self._now, since)

    def _requesters(self, graph: MergedGraph, stored: frozenset[str]) -> dict[str, frozenset[str]]:
        arguments = {node.identity: tuple(arg.identity for arg in node.args) for node in graph.nodes}
        return requesters(arguments, self._roots, stored)

    def _outlook(self, requesters: dict[str, frozenset[str]], bucket: int) -> Outlook:
        prices, rates = {}, {}
        for one, models in requesters.items():
            if one in self.costs.prices:
                prices[one] = self.costs.prices[one]
                if models not in self._rates:
                    self._rates[models] = self._aged.requests_per_day(models)
                rates[one] = self._rates[models]
        return Outlook(prices, rates, bucket, self.horizon_days)

    def _kept(
        self, graph: MergedGraph, held: _Held, decided: dict[object, frozenset[str]], *, is_requested: bool
    ) -> frozenset[str]:
        """The operations that the policy keeps of a graph over a piece, beside the stored ones."""
        advisor = Advisor(self.policy) if self.policy != "adaptive" else self.shares.advisor(held.digest)
        if advisor is Advisor.NONE:
            return frozenset()
        if advisor is Advisor.ALL:
            return frozenset(graph.components) - held.stored
        age = self._aged.bucket(held.arrived_at, self._now)
        ready = held.stored.intersection(graph.operations)
        question = age, ready
        if question not in decided:
            # What is ready is loaded, so only the rest of the roots is decided about.
            graph = self._missing(graph, ready)
            nodes = [self.costs.dag_node(node, is_ready=node.identity in ready) for node in graph.nodes]
            wanted = tuple(graph.components)
            outlook = self._outlook(self._requesters(graph, ready), age)
            decided[question] = frozenset(worth_keeping(nodes, wanted, outlook, is_requested=is_requested))
        return decided[question]

    def _missing(self, graph: MergedGraph, ready: frozenset[str]) -> MergedGraph:
        roots = tuple(root for name, root in graph.components.items() if name not in ready)
        if roots not in self._parts:
            self._parts[roots] = MergedGraph(roots)
        return self._parts[roots]

    # events

    def _arrive(self, pieces: Iterable[Piece]) -> None:
        graph, decided = self._live_graph(), dict[object, frozenset[str]]()
        for piece in pieces:
            held = self._held[piece.name] = _Held(piece, self._now, hashlib.sha256(piece.name.encode()).hexdigest())
            self._make(held, self._kept(graph, held, decided, is_requested=False), frozenset(graph.components))

    def _submit(self, model: Model) -> None:
        graph = MergedGraph(tuple(item.component for item in model.inputs.values()))
        self.costs.add(graph)
        self._graphs[model.name] = graph
        self._live[model.name] = frozenset(graph.components)
        self._submitted[model.name] = self._now
        for one in graph.components:
            self._roots[one].add(model.name)
        if self.policy == "adaptive":
            self._aged = self._aged_reads()
            self._rates = {}
        decided: dict[object, frozenset[str]] = {}
        for held in self._held.values():
            self._make(held, self._kept(graph, held, decided, is_requested=True), frozenset(graph.components))

    def _retire(self, name: str) -> None:
        del self._live[name], self._submitted[name]
        for one in self._graphs.pop(name).components:
            self._roots[one].discard(name)

    def _make(self, held: _Held, kept: frozenset[str], requested: frozenset[str]) -> None:
        rows = held.piece.rows
        if kept:
            self._period.computed_secs += self.costs.make(kept) * rows
            held.stored |= kept
        if new := requested - held.requested:
            self._all_secs += self.costs.make(new) * rows
            held.requested |= new

    def _read(self, read: Read) -> None:
        inputs = self._live[read.model]
        every = self.costs.mask(inputs)
        masks: dict[frozenset[str], int] = {}
        for held in self._held.values():
            if not read.start_at <= held.piece.start_at < read.end_at:
                continue
            if held.stored not in masks:
                masks[held.stored] = self.costs.mask(held.stored)
            loading, computing = self.costs.read(inputs, masks[held.stored])
            self._period.loading_secs += loading * held.piece.rows
            self._period.recomputed_secs += computing * held.piece.rows
            self._all_secs += sum(self.costs.read(inputs, every)) * held.piece.rows
            self._none_secs += sum(self.costs.read(inputs, 0)) * held.piece.rows
        self._reads.append(TimedRead(read.model, read.start_at, read.end_at, self._now))


def replay(policy: str, days: Sequence[ReplayedDay], costs: Costs, start_at: float) -> Replay:
    """A finished replay of all days."""
    one = Replay(policy, costs)
    one.run(days, start_at)
    return one
