"""Survey what a model needs against what the catalog has, and queue what is missing. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from warehouse import schema
from warehouse.catalog import chunks, insert_absent
from warehouse.causes import Cause, find_causes
from warehouse.manifests import PlacedFragment, current_fragments
from warehouse.matching import Action, Match, match, wanted_memos
from warehouse.memos import find_memos, requeue_tasks
from warehouse.models import ModelRecord, StoredInput
from warehouse.task_states import MemoState, TaskState

#: What a model waits for. A quarantined memo too: once somebody retries it, it has to be computed.
_AWAITED = (Action.QUEUE, Action.WAIT, Action.QUARANTINED)


@dataclass(frozen=True)
class Survey:
    """Every component of a model over every fragment of its table. ``matches``: by fingerprint, in fragment order."""

    inputs: tuple[StoredInput, ...]
    fragments: tuple[PlacedFragment, ...]
    matches: Mapping[str, tuple[Match, ...]]

    @property
    def rows(self) -> frozenset[int]:
        """The fragments' rows in the catalog."""
        return frozenset(placed.row for placed in self.fragments)

    @property
    def all_matches(self) -> list[Match]:
        """One match for every component and fragment."""
        return [one for matches in self.matches.values() for one in matches]


def survey(
    connection: Connection,
    table: str,
    inputs: Sequence[StoredInput],
    fragments: tuple[PlacedFragment, ...] | None = None,
    *,
    requeue_evicted: bool = True,
) -> Survey:
    """Match the memoizable inputs against the table's current fragments, or against the ones given."""
    if fragments is None:
        fragments = current_fragments(connection, table)
    components = {item.fingerprint: item.columns for item in inputs if not item.is_raw}
    wanted = wanted_memos(components, fragments)
    memos = find_memos(connection, (item.memo_key for item in wanted))
    matches: dict[str, list[Match]] = {fingerprint: [] for fingerprint in components}
    for one in match(wanted, memos, requeue_evicted=requeue_evicted):
        matches[one.wanted.fingerprint].append(one)
    return Survey(tuple(inputs), fragments, {fingerprint: tuple(found) for fingerprint, found in matches.items()})


def queue_survey(connection: Connection, model: ModelRecord, found: Survey, now: float) -> dict[str, Cause]:
    """Queue what is missing, wait for what is under way, note that the rest was asked for. Returns the causes."""
    matches = found.all_matches
    missing = [one for one in matches if one.action is Action.QUEUE]
    causes = find_causes(connection, model.table, missing, found.inputs, found.rows)
    _write_memos(connection, model, missing, causes, now)
    awaited = {one.wanted.memo_key for one in matches if one.action in _AWAITED}
    _replace_waits(connection, model.id, awaited)
    _note_requests(connection, {one.wanted.memo_key for one in matches if one.record is not None}, now)
    _move_to_current(connection, matches, found.rows)
    return causes


def _write_memos(
    connection: Connection, model: ModelRecord, missing: Sequence[Match], causes: Mapping[str, Cause], now: float
) -> None:
    """Memos and tasks for what is missing: new rows, or the rows of evicted memos brought back."""
    new = [one.wanted for one in missing if one.record is None]
    insert_absent(connection, schema.memos, (
        {"memo_key": item.memo_key, "fingerprint": item.fingerprint, "fragment": item.placed.row,
         "state": MemoState.PENDING, "created_at": now, "changed_at": now, "requested_at": now, "requests": 1,
         "queued_by": model.id, "cause_code": causes[item.memo_key].code, "cause": causes[item.memo_key].text}
        for item in new
    ))  # fmt: skip
    insert_absent(connection, schema.tasks, (
        {"memo_key": item.memo_key, "table_name": model.table, "partition": item.placed.partition,
         "state": TaskState.QUEUED, "fence": 0, "attempts": 0, "not_before": now, "created_at": now, "changed_at": now}
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


def _replace_waits(connection: Connection, model: int, awaited: set[str]) -> None:
    """The model waits for exactly these memos; what it no longer needs (replaced data) is not waited for."""
    of = schema.waits.c
    before = set(connection.execute(select(of.memo_key).where(of.model == model)).scalars())
    for chunk in chunks(sorted(before - awaited)):
        connection.execute(delete(schema.waits).where(of.model == model, of.memo_key.in_(chunk)))
    insert_absent(connection, schema.waits, ({"memo_key": key, "model": model} for key in sorted(awaited - before)))


def _note_requests(connection: Connection, keys: set[str], now: float) -> None:
    of = schema.memos.c
    for chunk in chunks(sorted(keys)):
        connection.execute(
            update(schema.memos).where(of.memo_key.in_(chunk)).values(requests=of.requests + 1, requested_at=now)
        )


def _move_to_current(connection: Connection, matches: Sequence[Match], current: Set[int]) -> None:
    """A memo that waits to be computed from a file that is gone is computed from a copy that is there."""
    moved = [
        one.wanted
        for one in matches
        if one.action in (Action.WAIT, Action.QUARANTINED)
        and one.record is not None
        and one.record.fragment not in current
    ]
    if not moved:
        return
    pairs = [{"key": item.memo_key, "row": item.placed.row, "part": item.placed.partition} for item in moved]
    still_there = set(_current_rows(connection, {one.record.fragment for one in matches if one.record}))
    kept = {one.wanted.memo_key for one in matches if one.record and one.record.fragment in still_there}
    pairs = [pair for pair in pairs if pair["key"] not in kept]
    if pairs:
        of, tasks = schema.memos, schema.tasks
        connection.execute(update(of).where(of.c.memo_key == bindparam("key")).values(fragment=bindparam("row")), pairs)
        connection.execute(
            update(tasks).where(tasks.c.memo_key == bindparam("key")).values(partition=bindparam("part")), pairs
        )


def _current_rows(connection: Connection, rows: set[int]) -> list[int]:
    """Which of these fragments are part of some table's current data."""
    members, manifests = schema.manifest_fragments, schema.manifests
    found: list[int] = []
    for chunk in chunks(sorted(rows)):
        query = select(members.c.fragment).join(manifests, manifests.c.id == members.c.manifest)
        query = query.where(manifests.c.current.is_(True), members.c.fragment.in_(chunk))
        found += connection.execute(query).scalars()
    return found


def write_submission(
    connection: Connection, model: ModelRecord, found: Survey, *, unchanged: bool, now: float
) -> tuple[int, int, int]:
    """Record how much of a submission was there already; returns hits, shared and queued (input, fragment) pairs.

    ``shared`` pairs were queued by an earlier request, of this model or of another one. Two inputs of one component
    are two pairs: the second is a hit, or shared.
    """
    actions: dict[Action, int] = dict.fromkeys(Action, 0)
    for position, item in enumerate(found.inputs):
        again = any(other.fingerprint == item.fingerprint for other in found.inputs[:position])
        for one in found.matches.get(item.fingerprint, ()):
            action = Action.WAIT if again and one.action is Action.QUEUE else one.action
            actions[action] += 1
    counts = actions[Action.LOAD], actions[Action.WAIT], actions[Action.QUEUE]
    failed = actions[Action.QUARANTINED] + actions[Action.LEAVE]
    connection.execute(
        insert(schema.submissions).values(
            model=model.id, submitted_at=now, unchanged=unchanged, hits=counts[0], shared=counts[1],
            queued=counts[2], failed=failed)
    )  # fmt: skip
    connection.execute(
        update(schema.models).where(schema.models.c.id == model.id).values(table_version=model.table_version)
    )
    return counts
