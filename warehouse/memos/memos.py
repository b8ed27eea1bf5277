"""Memos in the catalog: finding, evicting and requeueing them, and recording damage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of, rows_of
from warehouse.catalog.fragment_rows import is_unit
from warehouse.catalog.task_rows import allows, change_values, computes
from warehouse.errors import MemoDamaged
from warehouse.memos.coverage import add_coverage, keep_removed, remove_coverage
from warehouse.memos.pending_aliases import contents_of_memo, known_contents, register_aliases
from warehouse.memos.task_members import delete_done, move_memos, queue_again, split, tasks_of
from warehouse.planning.policy_names import PolicyName
from warehouse.scheduling.task_states import MemoState, TaskEvent, TaskState, requeue_change
from warehouse.tables.manifests import fragment_of, fragment_schema, is_placed_unit, placed_units
from warehouse.tables.table import content_of, memo_key
from warehouse.warehouse import Warehouse

#: The reason of an eviction for the price of storage. Such a memo is queued again once it is worth it.
UNPAID = "its coming requests save less than its storage costs"


@dataclass(frozen=True, slots=True)
class MemoRecord:
    """A memo in the catalog; ``fragment`` is the row of the fragment that it is computed from."""

    memo_key: str
    fingerprint: str
    fragment: int
    state: MemoState
    file: int | None = None
    queued_by: int = 0
    cause_code: str = ""
    cause: str = ""
    changed_at: float = 0.0
    evicted_at: float | None = None
    evicted_why: str = ""


def find_memos(connection: Connection, keys: Iterable[str]) -> dict[str, MemoRecord]:
    """The records of the keys in the catalog."""
    of, tasks = schema.memos.c, schema.tasks.c
    query = select(of.memo_key, of.fingerprint, of.fragment, of.state, of.file, of.queued_by, of.cause_code, of.cause,
                   of.changed_at, of.evicted_at, of.evicted_why, tasks.state)  # fmt: skip
    query = query.outerjoin(schema.tasks, computes())
    found: dict[str, MemoRecord] = {}
    for chunk in chunks(sorted(set(keys))):
        for (
            key,
            fingerprint,
            fragment,
            state,
            file,
            queued_by,
            code,
            cause,
            changed_at,
            evicted_at,
            why,
            task_state,
        ) in rows_of(connection, query.where(one_of(connection, of.memo_key, chunk))):
            found[key] = MemoRecord(key, fingerprint, fragment, known_state(state, task_state), file, queued_by, code, cause, changed_at,
                                    evicted_at, why or "")  # fmt: skip
    return found


def known_state(stored: str, task_state: str | None) -> MemoState:
    """The state of a memo from that in its row and that of its task, which alone says that it is being computed."""
    return MemoState.RUNNING if task_state == TaskState.LEASED else _STATES[stored]


def with_running(stored: Mapping[str, int], running: int) -> dict[str, int]:
    """The number of memos by state, from that by stored state; ``running`` of the pending ones have a leased task."""
    counts = dict(stored)
    if running:
        counts[MemoState.RUNNING] = running
        counts[MemoState.PENDING] -= running
    return {state: count for state, count in sorted(counts.items()) if count}


#: States by name, since a lookup in the class is slow for many memos.
_STATES = {str(state): state for state in MemoState}


def mark_damaged(warehouse: Warehouse, memo: str, file: str, why: str) -> bool:
    """Record that the bytes of a ready memo in ``file`` are missing or wrong; ``memo``: its key, or its component's fingerprint.

    The memo is queued if a live model keeps it, and evicted otherwise. Returns False, without a change, if the memo is not ready
    (another reader was first) or is in another file now, as after a compaction.
    """
    of, files = schema.memos.c, schema.memo_files.c

    def mark(connection: Connection) -> bool:
        now = warehouse.clock()  # after the wait for other writers, whose pins it is compared with
        found = connection.execute(
            select(of.memo_key, of.fingerprint, of.file)
            .join(schema.memo_files, files.id == of.file)
            .where(or_(of.memo_key == memo, of.fingerprint == memo), of.state == MemoState.READY, files.path == file)
        ).first()
        if found is None:
            return False
        key = found.memo_key
        contents = contents_of_memo(connection, found.file, found.fingerprint)
        evict_memos(connection, {key: found.fingerprint}, {found.file: {found.fingerprint}}, f"damaged: {why}", now)
        if requeue_for_readers(connection, key, f"its bytes were damaged: {why}", now):
            register_aliases(connection, {(key, content) for content in contents})
        return True

    return warehouse.catalog.run(mark, idempotent=True)


def evict_memos(
    connection: Connection,
    memos: Mapping[str, str],
    files: Mapping[int, Collection[str]],
    why: str,
    now: float,
    *,
    eviction: int | None = None,
) -> tuple[int, ...]:
    """Turn ready memos (key to fingerprint) of these files into tombstones; returns the files that become unreferenced.

    ``eviction``: the row of the eviction, by which they can be restored while their files exist; None for memos that nothing may restore, such
    as damaged ones.
    """
    of = schema.memos.c
    undo = (
        {"eviction": None}
        if eviction is None
        else {"eviction": eviction, "evicted_file": of.file, "evicted_ready_at": of.changed_at}
    )
    values = {
        "state": MemoState.EVICTED,
        "evicted_at": now,
        "evicted_why": why,
        "changed_at": now,
        "file": None,
        **undo,
    }
    if eviction is not None:
        keep_removed(connection, files, eviction)
    for chunk in chunks(sorted(memos)):
        connection.execute(update(schema.memos).where(one_of(connection, of.memo_key, chunk)).values(**values))
    return remove_coverage(connection, files, now)


def damage_recorder(warehouse: Warehouse) -> Callable[[str, str, MemoDamaged], None]:
    """The ``on_damage`` of :func:`warehouse.reading.reader.read_fragment` that records damage in the catalog."""

    def record(memo: str, file: str, error: MemoDamaged) -> None:
        mark_damaged(warehouse, memo, file, error.what)

    return record


def requeue_for_readers(connection: Connection, key: str, cause: str, now: float) -> bool:
    """Queue an evicted memo again for the live models that keep it; returns whether there are any.

    These are models over a table that now has the memo's content, with the memo as an input or, if their admission policy keeps
    parts of inputs, as a part of one.
    """
    memos, models, inputs = schema.memos, schema.models.c, schema.model_inputs.c
    within = schema.component_subgraphs.c
    tables = {copy.table for copy in current_copies(connection, [key]).get(key, ())}
    is_kept = or_(
        and_(inputs.fingerprint == within.subgraph, models.policy != PolicyName.NONE),
        models.policy == PolicyName.ADAPTIVE,
    )
    readers = (
        connection.execute(
            select(models.id)
            .join(schema.model_inputs, inputs.model == models.id)
            .join(schema.component_subgraphs, within.fingerprint == inputs.fingerprint)
            .join(memos, memos.c.fingerprint == within.subgraph)
            .where(memos.c.memo_key == key, models.live.is_(True), models.table_name.in_(sorted(tables)), is_kept)
            .distinct()
        )
        .scalars()
        .all()
    )
    if readers:
        requeue_tasks(connection, [key], now)
        values = {"cause_code": "evicted", "cause": cause}
        connection.execute(update(memos).where(memos.c.memo_key == key).values(**values))
        tasks = schema.tasks.c
        place = connection.execute(
            select(memos.c.fingerprint, tasks.table_name).join(schema.tasks, computes()).where(memos.c.memo_key == key)
        ).one()
        waits = ({**place._mapping, "model": model} for model in readers)
        insert_absent(connection, schema.waits, waits)
    return bool(readers)


def requeue_tasks(connection: Connection, keys: Iterable[str], now: float) -> None:
    """Queue these memos again with all their attempts, over current data where there is any.

    Those without a task become pending; the tasks of failed, dropped and queued ones are queued, and leased ones do not change.
    """
    of, memos = schema.tasks.c, schema.memos.c
    for chunk in chunks(sorted(set(keys))):
        _move_to_current_copies(connection, chunk)
        mine = one_of(connection, memos.memo_key, chunk)
        idle = select(memos.memo_key).where(mine, memos.task.is_(None))
        queue_again(connection, connection.execute(idle).scalars().all(), now)
        held = select(memos.memo_key).join(schema.tasks, computes()).where(mine, allows(TaskEvent.REQUEUE))
        tasks = sorted(set(split(connection, [connection.execute(held).scalars().all()]).values()))
        connection.execute(delete(schema.failures).where(one_of(connection, schema.failures.c.task, tasks)))
        values = change_values(requeue_change(), now) | {"error": None}
        connection.execute(update(schema.tasks).where(one_of(connection, of.id, tasks)).values(values))


def _move_to_current_copies(connection: Connection, keys: Sequence[str]) -> None:
    """Move memos of fragments that are in no current table to a current fragment with equal content, if there is one.

    A file that was renamed, or registered in a second table, has the same fragment_id in another row; a rewritten file may have
    equal values in the columns that a memo reads.
    """
    memos = schema.memos.c
    lost = select(memos.memo_key).where(one_of(connection, memos.memo_key, keys), ~is_unit(memos.fragment))
    move_to_copies(connection, current_copies(connection, connection.execute(lost).scalars().all()))


@dataclass(frozen=True, slots=True)
class CurrentCopy:
    """A current fragment, by its row, over which a memo has its key; ``content``: that of the columns that the memo reads."""

    fragment: int
    table: str
    content: str


def current_copies(connection: Connection, keys: Sequence[str]) -> dict[str, list[CurrentCopy]]:
    """Current fragments over which memos have these keys.

    Candidates in all tables are the fragments with the memo's fragment_id and with contents for which the memo is found, or will
    be; further ones those of its fragment's table and partition.
    """
    memos, fragments = schema.memos.c, schema.fragments.c
    query = select(memos.memo_key, memos.fingerprint, fragments.fragment_id, fragments.table_name, fragments.partition)
    query = query.join(schema.fragments, fragments.id == memos.fragment)
    wanted = connection.execute(query.where(one_of(connection, memos.memo_key, keys))).all()
    parts, members, manifests = schema.merged_fragments, schema.manifest_fragments.c, schema.manifests.c
    first = and_(parts.c.merged == fragments.id, parts.c.position == 0)
    of_content = (
        select(schema.fragments)
        .outerjoin(parts, first)
        .join(schema.manifest_fragments, members.fragment == func.coalesce(parts.c.fragment, fragments.id))
        .join(schema.manifests, manifests.id == members.manifest)
        .where(manifests.current.is_(True), is_unit(fragments.id))
    )
    of_place = select(schema.fragments).select_from(placed_units()).where(is_placed_unit())
    found: dict[int, Any] = {}
    contents = known_contents(connection, keys)
    identities = sorted({memo.fragment_id for memo in wanted}.union(*contents.values()))
    for row in connection.execute(of_content.where(one_of(connection, fragments.fragment_id, identities))):
        found[row.id] = row
    for table in sorted({memo.table_name for memo in wanted}):
        partitions = sorted({memo.partition for memo in wanted if memo.table_name == table})
        here = (manifests.table_name == table, one_of(connection, manifests.partition, partitions))
        found |= {row.id: row for row in connection.execute(of_place.where(*here))}
    by_identity, by_place = defaultdict(list), defaultdict(list)
    for _, row in sorted(found.items()):
        by_identity[row.fragment_id].append(row)
        by_place[row.table_name, row.partition].append(row)
    columns = _columns_read(connection, {memo.fingerprint for memo in wanted})
    schemas = {table: fragment_schema(connection, table) for table in {row.table_name for row in found.values()}}
    fragments_found = {number: fragment_of(row, schemas[row.table_name]) for number, row in found.items()}
    copies: defaultdict[str, list[CurrentCopy]] = defaultdict(list)
    for memo in wanted:
        read = columns[memo.fingerprint]
        near = {row.id: row for row in by_place[memo.table_name, memo.partition]}
        for identity in {memo.fragment_id, *contents.get(memo.memo_key, ())}:
            near |= {row.id: row for row in by_identity[identity]}
        for number, row in sorted(near.items()):
            fragment = fragments_found[number]
            # A file with and without overlays has one fragment_id, so the columns that the memo reads are compared.
            if fragment.digests.keys() >= read and memo_key(memo.fingerprint, fragment.digests, read) == memo.memo_key:
                copy = CurrentCopy(number, row.table_name, content_of(fragment, read))
                copies[memo.memo_key].append(copy)
    return dict(copies)


def move_to_copies(connection: Connection, found: Mapping[str, Sequence[CurrentCopy]]) -> None:
    """Move memos and their tasks to the first fragments that :func:`current_copies` found; all of these have the memo."""
    of = schema.memos.c
    move_memos(connection, {key: copies[0].fragment for key, copies in found.items()})
    places: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    awaited: set[tuple[str, str]] = set()
    for chunk in chunks(sorted(found)):
        query = select(of.memo_key, of.fingerprint, of.file, of.state).where(one_of(connection, of.memo_key, chunk))
        for key, fingerprint, file, state in connection.execute(query):
            for copy in found[key]:
                if state == MemoState.READY:
                    places[file, copy.content].add(fingerprint)
                elif state == MemoState.PENDING and copy.content != found[key][0].content:
                    awaited.add((key, copy.content))
    if places:
        add_coverage(connection, places)
    register_aliases(connection, awaited)


def delete_memos(connection: Connection, keys: Sequence[str]) -> None:
    """Delete the rows of these memos, of tasks without others, and of what waits for them; coverage does not change."""
    tasks = set(tasks_of(connection, keys).values())
    for chunk in chunks(sorted(keys)):
        for table in (schema.awaited_contents, schema.memos):
            connection.execute(delete(table).where(one_of(connection, table.c.memo_key, chunk)))
    delete_done(connection, tasks)


def _columns_read(connection: Connection, fingerprints: Iterable[str]) -> dict[str, set[str]]:
    of = schema.component_columns.c
    found: dict[str, set[str]] = {fingerprint: set() for fingerprint in fingerprints}
    for chunk in chunks(sorted(found)):
        for row in connection.execute(
            select(of.fingerprint, of.column_name).where(one_of(connection, of.fingerprint, chunk))
        ):
            found[row.fingerprint].add(row.column_name)
    return found
