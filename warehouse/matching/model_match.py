"""Match a model: its merged graph, the memos that its policy keeps, and a match for each missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from warehouse.matching.match import MemoAction, MemoMatch, Requeue, match_memos, memo_requests
from warehouse.matching.plan_context import FragmentKind, KeepDecision
from warehouse.memos.coverage import Coverage, find_coverage
from warehouse.memos.memos import find_memos
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import StoredInput
from warehouse.tables.manifests import PlacedFragment


@dataclass(frozen=True)
class MatchResult:
    """The result of matching a model's merged graph over fragments of its table.

    Attributes:
        inputs: The model's inputs.
        graph: Their merged graph.
        fragments: The fragments.
        coverage: The ready memos of all operations.
        matches: The matches of the other memos that the policy keeps, by fingerprint and position of the fragment, also memos
            that are ready under another content.
        unjoined: By position of a fragment, the joined columns that have no values there yet.
    """

    inputs: tuple[StoredInput, ...]
    graph: MergedGraph
    fragments: tuple[PlacedFragment, ...]
    coverage: Coverage
    matches: Mapping[str, Mapping[int, MemoMatch]]
    unjoined: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def rows(self) -> frozenset[int]:
        """The catalog rows of the fragments."""
        return frozenset(placed.row for placed in self.fragments)

    @property
    def all_matches(self) -> list[MemoMatch]:
        """One match for every memo that the policy keeps and coverage does not list."""
        return [one for found in self.matches.values() for one in found.values()]

    def missing_joins(self, fingerprint: str, position: int) -> frozenset[str]:
        """The joined columns that an input's component reads, and that have no values over the fragment at ``position``."""
        if not self.unjoined:
            return frozenset()
        return self.unjoined.get(position, frozenset()).intersection(self.graph.columns_of[fingerprint])

    def is_ready(self, fingerprint: str, position: int) -> bool:
        """Whether the component has a ready memo over the fragment at ``position``."""
        if fingerprint in self.coverage.slots(position):
            return True
        one = self.matches.get(fingerprint, {}).get(position)
        return one is not None and one.action is MemoAction.LOAD


def match_model(
    connection: Connection,
    inputs: Sequence[StoredInput],
    fragments: tuple[PlacedFragment, ...],
    decision: KeepDecision,
    *,
    coverage: Coverage | None = None,
    requeue: Requeue = Requeue.ALL,
) -> MatchResult:
    """Match the inputs' merged graph against what is ready over the fragments, and look up what should be kept and is not.

    ``coverage``: of its operations over the fragments, where the caller has it.
    """
    graph = decision.graph
    coverage = coverage or find_coverage(connection, graph.columns(graph.operations), fragments)
    columns: dict[tuple[int, FragmentKind], dict[str, tuple[str, ...]]] = {}
    wanted = []
    positions = []
    unjoined = {
        at: lacking for at, placed in enumerate(fragments) if (lacking := graph.joined - placed.fragment.digests.keys())
    }
    for position, (placed, covered) in enumerate(zip(fragments, coverage.fragments, strict=True)):
        question = covered.layout, decision.kind(placed)
        if question not in columns:
            columns[question] = graph.columns(decision.choose(coverage.layouts[covered.layout].slots, question[1]))
        read = columns[question]
        if position in unjoined:
            read = {one: names for one, names in read.items() if unjoined[position].isdisjoint(names)}
        here = memo_requests(read, (placed,))
        wanted += here
        positions += [position] * len(here)
    memos = find_memos(connection, (item.memo_key for item in wanted))
    matches: dict[str, dict[int, MemoMatch]] = {}
    for position, one in zip(positions, match_memos(wanted, memos, requeue=requeue), strict=True):
        matches.setdefault(one.request.fingerprint, {})[position] = one
    return MatchResult(tuple(inputs), graph, fragments, coverage, matches, unjoined)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of (input, fragment) pairs.

    Attributes:
        hits: Their memo is ready.
        shared: Their memo is queued or being computed already.
        queued: Their memo is queued now.
        failed: Their task is quarantined, or the memo stays evicted.
        computed: The policy keeps no memo of them.
        dropped: Their task was dropped.
        unjoined: A joined column that they read has no values yet.
    """

    hits: int = 0
    shared: int = 0
    queued: int = 0
    failed: int = 0
    computed: int = 0
    dropped: int = 0
    unjoined: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.hits + other.hits, self.shared + other.shared, self.queued + other.queued,
                      self.failed + other.failed, self.computed + other.computed, self.dropped + other.dropped, self.unjoined + other.unjoined)  # fmt: skip


def count_pairs(found: MatchResult) -> Counts:
    """Count the (input, fragment) pairs. Two inputs of one component count twice; the second is a hit, or shared."""
    counts = Counts()
    for one in count_inputs(found).values():
        counts += one
    return counts


def count_inputs(found: MatchResult) -> dict[str, Counts]:
    """:func:`count_pairs` of each input, by its name; a raw column has no pairs but those that wait for its values."""
    counts, seen = {}, set[str]()
    for item in found.inputs:
        again = item.fingerprint in seen
        seen.add(item.fingerprint)
        is_memoized = item.fingerprint in found.graph.components
        counts[item.name] = (
            _count_input(found, item, again) if is_memoized else Counts(unjoined=_count_unjoined(found, item))
        )
    return counts


def _count_unjoined(found: MatchResult, item: StoredInput) -> int:
    return sum(bool(found.missing_joins(item.fingerprint, at)) for at in found.unjoined)


def _count_input(found: MatchResult, item: StoredInput, again: bool) -> Counts:
    actions: dict[MemoAction, int] = dict.fromkeys(MemoAction, 0)
    covered = sum(
        size
        for size, layout in zip(found.coverage.fragments_by_layout, found.coverage.layouts, strict=True)
        if item.fingerprint in layout.slots
    )
    matches = found.matches.get(item.fingerprint, {}).values()
    unjoined = _count_unjoined(found, item)
    actions[MemoAction.LOAD] += covered
    actions[MemoAction.COMPUTE] += len(found.fragments) - covered - len(matches) - unjoined
    for one in matches:
        actions[MemoAction.WAIT if again and one.action is MemoAction.QUEUE else one.action] += 1
    failed = actions[MemoAction.QUARANTINED] + actions[MemoAction.LEAVE]
    return Counts(actions[MemoAction.LOAD], actions[MemoAction.WAIT], actions[MemoAction.QUEUE], failed, actions[MemoAction.COMPUTE],
                  actions[MemoAction.DROPPED], unjoined)  # fmt: skip
