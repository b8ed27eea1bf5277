"""A model compared with what is ready: its merged graph, what should be kept, and one match for each memo that is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from warehouse.matching.match import Action, Match, match, wanted_memos
from warehouse.matching.plan_context import KeepDecision
from warehouse.memos.coverage import Coverage, find_coverage
from warehouse.memos.memos import find_memos
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import StoredInput
from warehouse.tables.manifests import PlacedFragment


@dataclass(frozen=True)
class Survey:
    """A model's merged graph over fragments of its table.

    ``coverage``: what is ready, of every operation. ``kept``: for each layout of it, what else should be kept.
    ``matches``: what became of those, by fingerprint and the fragment's position; memos that turned out to be ready under
    another content are among them.
    """

    inputs: tuple[StoredInput, ...]
    graph: MergedGraph
    fragments: tuple[PlacedFragment, ...]
    coverage: Coverage
    kept: tuple[Collection[str], ...]
    matches: Mapping[str, Mapping[int, Match]]

    @property
    def rows(self) -> frozenset[int]:
        """The fragments' rows in the catalog."""
        return frozenset(placed.row for placed in self.fragments)

    @property
    def all_matches(self) -> list[Match]:
        """One match for every component that is wanted of a fragment and not ready there."""
        return [one for found in self.matches.values() for one in found.values()]

    def is_ready(self, fingerprint: str, position: int) -> bool:
        """Whether the component's memo over the fragment at ``position`` can be loaded."""
        if fingerprint in self.coverage.slots(position):
            return True
        one = self.matches.get(fingerprint, {}).get(position)
        return one is not None and one.action is Action.LOAD


def survey(
    connection: Connection,
    inputs: Sequence[StoredInput],
    fragments: tuple[PlacedFragment, ...],
    keeps: Callable[[MergedGraph], KeepDecision],
    *,
    graph: MergedGraph | None = None,
    coverage: Coverage | None = None,
    requeue_evicted: bool = True,
) -> Survey:
    """Match the model's graph against what is ready over the fragments, and look up what should be kept and is not.

    ``graph``: that of the inputs, and ``coverage`` of its operations over the fragments, where the caller has them.
    """
    graph = graph or MergedGraph(tuple(item.component for item in inputs))
    coverage = coverage or find_coverage(connection, graph.columns(graph.operations), fragments)
    decide = keeps(graph)
    kept = tuple(tuple(decide(layout.slots)) for layout in coverage.layouts)
    columns = [graph.columns(chosen) for chosen in kept]
    wanted = []
    positions = []
    for position, (placed, covered) in enumerate(zip(fragments, coverage.fragments, strict=True)):
        here = wanted_memos(columns[covered.layout], (placed,))
        wanted += here
        positions += [position] * len(here)
    memos = find_memos(connection, (item.memo_key for item in wanted))
    matches: dict[str, dict[int, Match]] = {}
    for position, one in zip(positions, match(wanted, memos, requeue_evicted=requeue_evicted), strict=True):
        matches.setdefault(one.wanted.fingerprint, {})[position] = one
    return Survey(tuple(inputs), graph, fragments, coverage, kept, matches)


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of (input, fragment) pairs. ``failed``: quarantined, or evicted and left so. ``computed``: the policy
    keeps no memo of them. ``dropped``: taken out of the queue for good.
    """

    hits: int = 0
    shared: int = 0
    queued: int = 0
    failed: int = 0
    computed: int = 0
    dropped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.hits + other.hits, self.shared + other.shared, self.queued + other.queued,
                      self.failed + other.failed, self.computed + other.computed, self.dropped + other.dropped)  # fmt: skip


def count_pairs(found: Survey) -> Counts:
    """Count the (input, fragment) pairs. Two inputs of one component are two: the second is a hit, or shared.

    ``shared`` pairs were queued by an earlier request, of this model or of another one.
    """
    counts = Counts()
    for one in count_inputs(found).values():
        counts += one
    return counts


def count_inputs(found: Survey) -> dict[str, Counts]:
    """:func:`count_pairs` of each input, by its name; a raw column has no pairs."""
    counts, seen = {}, set[str]()
    for item in found.inputs:
        again = item.fingerprint in seen
        seen.add(item.fingerprint)
        is_memoized = item.fingerprint in found.graph.components
        counts[item.name] = _count_input(found, item, again) if is_memoized else Counts()
    return counts


def _count_input(found: Survey, item: StoredInput, again: bool) -> Counts:
    actions: dict[Action, int] = dict.fromkeys(Action, 0)
    covered = sum(
        size
        for size, layout in zip(found.coverage.fragments_by_layout, found.coverage.layouts, strict=True)
        if item.fingerprint in layout.slots
    )
    matches = found.matches.get(item.fingerprint, {}).values()
    actions[Action.LOAD] += covered
    actions[Action.COMPUTE] += len(found.fragments) - covered - len(matches)
    for one in matches:
        actions[Action.WAIT if again and one.action is Action.QUEUE else one.action] += 1
    failed = actions[Action.QUARANTINED] + actions[Action.LEAVE]
    return Counts(actions[Action.LOAD], actions[Action.WAIT], actions[Action.QUEUE], failed, actions[Action.COMPUTE],
                  actions[Action.DROPPED])  # fmt: skip
