"""Survey what a model needs against what the catalog has, and queue what is missing. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from warehouse import schema
from warehouse.awaited import await_elsewhere
from warehouse.catalog import chunks, insert_absent, one_of
from warehouse.causes import Cause, find_causes
from warehouse.coverage import Coverage, cover, find_coverage
from warehouse.manifests import PlacedFragment, standing_rows
from warehouse.matching.match import AWAITED, Action, Match, match, wanted_memos
from warehouse.memos import find_memos, requeue_tasks
from warehouse.merged import MergedGraph
from warehouse.models import ModelRecord, StoredInput, write_components
from warehouse.table import content_of
from warehouse.task_states import MemoState, TaskState

#: Which operations to keep, given those that are ready: the matching policy over one merged graph.
Keeps = Callable[[Collection[str]], Collection[str]]


@dataclass(frozen=True)
class Survey:
    """A model's merged graph over fragments of its table.

    ``coverage``: what is ready, of every operation. ``kept``: for each pattern of it, what else should be kept.
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
    keeps: Callable[[MergedGraph], Keeps],
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
    kept = tuple(tuple(decide(pattern.slots)) for pattern in coverage.patterns)
    columns = [graph.columns(chosen) for chosen in kept]
    wanted = []
    positions = []
    for position, (placed, covered) in enumerate(zip(fragments, coverage.fragments, strict=True)):
        here = wanted_memos(columns[covered.pattern], (placed,))
        wanted += here
        positions += [position] * len(here)
    memos = find_memos(connection, (item.memo_key for item in wanted))
    matches: dict[str, dict[int, Match]] = {}
    for position, one in zip(positions, match(wanted, memos, requeue_evicted=requeue_evicted), strict=True):
        matches.setdefault(one.wanted.fingerprint, {})[position] = one
    return Survey(tuple(inputs), graph, fragments, coverage, kept, matches)


def queue_survey(connection: Connection, model: ModelRecord, found: Survey, now: float) -> set[str]:
    """Queue what is missing and note what is ready under another content. Returns the memos the model waits for."""
    matches = found.all_matches
    missing = [one for one in matches if one.action is Action.QUEUE]
    subgraphs = {one.wanted.fingerprint for one in missing} - found.graph.components.keys()
    write_components(connection, {name: found.graph.operations[name] for name in sorted(subgraphs)}, now)
    causes = find_causes(connection, model.table, missing, found.graph.operations, found.rows)
    _write_memos(connection, model, missing, causes, now)
    _cover_again(connection, found.graph, [one for one in matches if one.action is Action.LOAD])
    await_elsewhere(connection, found.graph.columns_of, matches)
    _move_to_current(connection, model.table, matches, found.rows)
    return {one.wanted.memo_key for one in matches if one.action in (Action.QUEUE, *AWAITED)}


def _cover_again(connection: Connection, graph: MergedGraph, ready: Sequence[Match]) -> None:
    """A memo that is ready under another content (a column that it does not read changed) is found at once from now on."""
    places: dict[tuple[int, str], set[str]] = {}
    for one in ready:
        assert one.record is not None
        assert one.record.file is not None
        columns = graph.columns_of[one.wanted.fingerprint]
        place = (one.record.file, content_of(one.wanted.placed.fragment, columns))
        places.setdefault(place, set()).add(one.wanted.fingerprint)
    if places:
        cover(connection, places)


def _write_memos(
    connection: Connection, model: ModelRecord, missing: Sequence[Match], causes: Mapping[str, Cause], now: float
) -> None:
    """Memos and tasks for what is missing: new rows, or the rows of evicted memos brought back."""
    new = [one.wanted for one in missing if one.record is None]
    insert_absent(connection, schema.memos, (
        {"memo_key": item.memo_key, "fingerprint": item.fingerprint, "fragment": item.placed.row,
         "state": MemoState.PENDING, "created_at": now, "changed_at": now,
         "queued_by": model.id, "cause_code": causes[item.memo_key].code, "cause": causes[item.memo_key].text}
        for item in new
    ))  # fmt: skip
    insert_absent(connection, schema.tasks, (
        {"memo_key": item.memo_key, "table_name": model.table, "partition": item.placed.partition,
         "state": TaskState.QUEUED, "fence": 0, "attempts": 0, "not_before": 0.0, "created_at": now, "changed_at": now}
        for item in new
    ))  # fmt: skip
    back = [one.wanted for one in missing if one.record is not None]
    if back:
        of = schema.memos.c
        connection.execute(
            update(schema.memos)
            .where(of.memo_key == bindparam("key"), of.state == MemoState.EVICTED)
            .values(state=MemoState.PENDING, changed_at=now, queued_by=model.id, fragment=bindparam("row"),
                    cause_code=bindparam("code"), cause=bindparam("text")),
            [{"key": item.memo_key, "row": item.placed.row, "code": causes[item.memo_key].code,
              "text": causes[item.memo_key].text} for item in back],
        )  # fmt: skip
        requeue_tasks(connection, [item.memo_key for item in back], now)


def replace_waits(connection: Connection, model: int, awaited: set[str]) -> None:
    """The model waits for exactly these memos; what it no longer needs (replaced data) is not waited for."""
    of = schema.waits.c
    before = set(connection.execute(select(of.memo_key).where(of.model == model)).scalars())
    for chunk in chunks(sorted(before - awaited)):
        connection.execute(delete(schema.waits).where(of.model == model, one_of(connection, of.memo_key, chunk)))
    insert_absent(connection, schema.waits, ({"memo_key": key, "model": model} for key in sorted(awaited - before)))


def _move_to_current(connection: Connection, table: str, matches: Sequence[Match], current: Set[int]) -> None:
    """A memo that waits to be computed from a file that is gone is computed from a copy that is there, in ``table``."""
    moved = [
        one.wanted
        for one in matches
        if one.action in AWAITED and one.record is not None and one.record.fragment not in current
    ]
    if not moved:
        return
    pairs = [{"key": item.memo_key, "row": item.placed.row, "part": item.placed.partition} for item in moved]
    still_there = standing_rows(connection, {one.record.fragment for one in matches if one.record})
    kept = {one.wanted.memo_key for one in matches if one.record and one.record.fragment in still_there}
    pairs = [pair for pair in pairs if pair["key"] not in kept]
    if pairs:
        of, tasks = schema.memos, schema.tasks
        connection.execute(update(of).where(of.c.memo_key == bindparam("key")).values(fragment=bindparam("row")), pairs)
        place = {"table_name": table, "partition": bindparam("part")}
        connection.execute(update(tasks).where(tasks.c.memo_key == bindparam("key")).values(**place), pairs)


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
        for size, pattern in zip(found.coverage.fragments_of_patterns, found.coverage.patterns, strict=True)
        if item.fingerprint in pattern.slots
    )
    matches = found.matches.get(item.fingerprint, {}).values()
    actions[Action.LOAD] += covered
    actions[Action.COMPUTE] += len(found.fragments) - covered - len(matches)
    for one in matches:
        actions[Action.WAIT if again and one.action is Action.QUEUE else one.action] += 1
    failed = actions[Action.QUARANTINED] + actions[Action.LEAVE]
    return Counts(actions[Action.LOAD], actions[Action.WAIT], actions[Action.QUEUE], failed, actions[Action.COMPUTE],
                  actions[Action.DROPPED])  # fmt: skip


def write_submission(
    connection: Connection, model: ModelRecord, counts: Counts, *, unchanged: bool, now: float
) -> None:
    """Record how much of a submission was there already, and up to which version of its table the model was matched."""
    connection.execute(
        insert(schema.submissions).values(
            model=model.id, submitted_at=now, unchanged=unchanged, hits=counts.hits, shared=counts.shared,
            queued=counts.queued, failed=counts.failed)
    )  # fmt: skip
    connection.execute(
        update(schema.models).where(schema.models.c.id == model.id).values(table_version=model.table_version)
    )
