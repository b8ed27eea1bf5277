"""Queue the memos that a model needs and the catalog lacks. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from sqlalchemy import Connection, delete, insert, select, update

from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_alike, insert_rows, update_rows
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import computes
from warehouse.matching.causes import Cause, find_causes
from warehouse.matching.match import AWAITED, MemoAction, MemoMatch
from warehouse.matching.model_match import Counts, MatchResult
from warehouse.memos.coverage import add_coverage
from warehouse.memos.pending_aliases import register_aliases
from warehouse.memos.task_members import move_memos, new_tasks, queue_again
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import ModelRecord
from warehouse.models.new_components import write_components
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import current_fragment_rows, fragments_by_row
from warehouse.tables.table import content_of

#: A component, and the table over whose data its tasks are waited for.
Wait = tuple[str, str]


def queue_matches(connection: Connection, model: ModelRecord, found: MatchResult, now: float) -> set[Wait]:
    """Queue missing memos, and register those ready under another content. Returns what the model waits for."""
    matches = found.all_matches
    missing = [one for one in matches if one.action is MemoAction.QUEUE]
    subgraphs = {one.request.fingerprint for one in missing} - found.graph.components.keys()
    write_components(connection, {name: found.graph.operations[name] for name in sorted(subgraphs)}, now)
    causes = find_causes(connection, model.table, missing, found.graph.operations, found.rows)
    _write_memos(connection, model, missing, causes, now)
    _cover_again(connection, found.graph, [one for one in matches if one.action is MemoAction.LOAD])
    _register_aliases(connection, found.graph.columns_of, matches)
    _move_to_current(connection, matches, found.rows)
    return _waits(connection, model.table, matches)


def _waits(connection: Connection, table: str, matches: Sequence[MemoMatch]) -> set[Wait]:
    """The components to wait for. A memo may be computed from an equal fragment of another table."""
    awaited = [one for one in matches if one.action in (MemoAction.QUEUE, *AWAITED)]
    found = {(one.request.fingerprint, table) for one in awaited}
    keys = {one.request.memo_key for one in awaited if one.action in AWAITED and not _is_its_own(one)}
    memos, tasks = schema.memos.c, schema.tasks.c
    query = select(memos.fingerprint, tasks.table_name).join(schema.tasks, computes()).distinct()
    for chunk in chunks(sorted(keys)):
        elsewhere = query.where(one_of(connection, memos.memo_key, chunk))
        found.update((fingerprint, other) for fingerprint, other in connection.execute(elsewhere))
    return found


def _cover_again(connection: Connection, graph: MergedGraph, ready: Sequence[MemoMatch]) -> None:
    """Add coverage for memos that are ready under another content: a column that they do not read changed."""
    places: dict[tuple[int, str], set[str]] = {}
    for one in ready:
        assert one.record is not None
        assert one.record.file is not None
        columns = graph.columns_of[one.request.fingerprint]
        place = (one.record.file, content_of(one.request.placed.fragment, columns))
        places.setdefault(place, set()).add(one.request.fingerprint)
    if places:
        add_coverage(connection, places)


def _register_aliases(
    connection: Connection, columns: Mapping[str, Sequence[str]], matches: Sequence[MemoMatch]
) -> None:
    """Register the contents that wait for a memo of another content; ``columns`` by component."""

    def content(one: MemoMatch) -> str:
        return content_of(one.request.placed.fragment, columns[one.request.fingerprint])

    queued = {one.request.memo_key: one for one in matches if one.action is MemoAction.QUEUE}
    waiting = [one for one in matches if one.action in AWAITED and not _is_its_own(one)]
    rows = {one.record.fragment for one in waiting if one.record is not None}
    sources = fragments_by_row(connection, rows) if rows else {}
    noted = set()
    for one in waiting:
        key, here = one.request.memo_key, content(one)
        if key in queued:
            known = content(queued[key])
        else:
            assert one.record is not None  # it was queued before
            known = content_of(sources[one.record.fragment], columns[one.request.fingerprint])
        if here != known:
            noted.add((key, here))
    register_aliases(connection, noted)


def _is_its_own(one: MemoMatch) -> bool:
    """Whether the memo is computed from the requested fragment."""
    return one.record is not None and one.record.fragment == one.request.placed.row


def _write_memos(
    connection: Connection, model: ModelRecord, missing: Sequence[MemoMatch], causes: Mapping[str, Cause], now: float
) -> None:
    """Write memos and tasks for missing memos: new rows, or the rows of evicted memos."""
    # Rows of one fragment are adjacent, as they are leased and committed together.
    new = sorted((one.request for one in missing if one.record is None), key=lambda item: item.placed.row)
    tasks = new_tasks(connection, {item.placed.row: (model.table, item.placed.partition) for item in new}, now)
    insert_alike(connection, schema.memos, ("memo_key", "fingerprint", "fragment", "task", "cause_code", "cause"), (
        (item.memo_key, item.fingerprint, row := item.placed.row, tasks[row], (cause := causes[item.memo_key]).code, cause.text)
        for item in new
    ), state=MemoState.PENDING, created_at=now, changed_at=now, queued_by=model.id)  # fmt: skip
    back = [one.request for one in missing if one.record is not None]
    if back:
        update_rows(connection, schema.memos, "memo_key", (
            {"memo_key": item.memo_key, "fragment": item.placed.row, "cause_code": causes[item.memo_key].code,
             "cause": causes[item.memo_key].text}
            for item in back
        ), changed_at=now, queued_by=model.id)  # fmt: skip
        queue_again(connection, [item.memo_key for item in back], now)


def replace_waits(connection: Connection, model: int, awaited: set[Wait]) -> None:
    """Let the model wait for exactly these components."""
    of = schema.waits.c
    query = select(of.fingerprint, of.table_name).where(of.model == model)
    before = {(fingerprint, table) for fingerprint, table in connection.execute(query)}
    for table in sorted({table for _, table in before - awaited}):
        gone = sorted(fingerprint for fingerprint, other in before - awaited if other == table)
        mine = (of.model == model, of.table_name == table)
        for chunk in chunks(gone):
            connection.execute(delete(schema.waits).where(*mine, one_of(connection, of.fingerprint, chunk)))
    insert_rows(connection, schema.waits, (
        {"fingerprint": fingerprint, "table_name": table, "model": model} for fingerprint, table in sorted(awaited - before)
    ))  # fmt: skip


def _move_to_current(connection: Connection, matches: Sequence[MemoMatch], current: Set[int]) -> None:
    """Let pending memos of replaced fragments be computed from equal fragments of the model's table."""
    moved = [
        one.request
        for one in matches
        if one.action in AWAITED and one.record is not None and one.record.fragment not in current
    ]
    if not moved:
        return
    still_there = current_fragment_rows(connection, {one.record.fragment for one in matches if one.record})
    kept = {one.request.memo_key for one in matches if one.record and one.record.fragment in still_there}
    moved = list({item.memo_key: item for item in moved if item.memo_key not in kept}.values())
    move_memos(connection, {item.memo_key: item.placed.row for item in moved})


def write_submission(
    connection: Connection, model: ModelRecord, counts: Counts, *, unchanged: bool, now: float
) -> None:
    """Record the counts of a submission, and the table version that the model was matched with."""
    connection.execute(
        insert(schema.submissions).values(
            model=model.id, submitted_at=now, unchanged=unchanged, hits=counts.hits, shared=counts.shared,
            queued=counts.queued, failed=counts.failed)
    )  # fmt: skip
    connection.execute(
        update(schema.models).where(schema.models.c.id == model.id).values(table_version=model.table_version)
    )
