"""Merge small fragments of a table, so that their memos are computed, stored and found together.

A merge changes no manifest and no file of the table. Its memos are the memos of its parts, one after another: they are read,
verified, joined and written to a file under a unique name, and one transaction enters the merged fragment with its memos and
removes the parts' memos. A killed process leaves an unreferenced file; the same command continues with the next group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from sqlalchemy import Connection, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of
from warehouse.catalog.fragment_rows import is_unit
from warehouse.catalog.task_rows import computes, waits_for
from warehouse.errors import MemoDamaged
from warehouse.files.column_files import MemoFile, MemoRef, NewFile
from warehouse.files.memo_file import memo_path, read_memo_file, write_memo_file
from warehouse.maintenance.progress import Progress, quiet
from warehouse.maintenance.small_fragments import MergePolicy, Piece, choose_merges
from warehouse.matching.submit import queue_missing
from warehouse.memos.coverage import add_coverage, count_live_bytes, enter_files, remove_coverage
from warehouse.memos.memos import (
    UNPAID,
    CurrentCopy,
    current_copies,
    delete_memos,
    known_state,
    mark_damaged,
    move_to_copies,
)
from warehouse.memos.pending_aliases import known_contents, pop_aliases
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.storage.layout import COMPACTION
from warehouse.tables.manifests import (
    PlacedFragment,
    current_fragment_rows,
    current_units,
    fragment_schema,
    fragments_by_row,
    get_table,
)
from warehouse.tables.merges import members_of_merged, write_merges
from warehouse.tables.table import Fragment, MemoKeys, content_of, merge_fragments
from warehouse.warehouse import Warehouse

#: Stored bytes of the parts whose columns are in memory together.
_FILE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """The effect of compacting a table.

    Attributes:
        table: The table.
        dry_run: It was only planned.
        rows: Events of the merged fragments.
        fragments: Units of computation before.
        fragments_after: Units of computation after.
        merged: Merged fragments that were made.
        parts: Units that became part of one.
        memos: Memos of the parts that were joined.
        memos_after: Memos of merged fragments that were made of them.
        written_bytes: Bytes that were written; of a plan about.
        incomplete: Groups that were left, because a component has memos of some parts, while others are missing or evicted.
        waiting: Groups that were left, because some of their memos are being computed.
        quarantined: Fragments that were left, because a task of theirs is quarantined or dropped.
        changed: Groups that were left, because another process changed them meanwhile.
        damaged: Damaged memos of parts, as "path, component: error".
        queued: Memos that were queued for live models after it.
    """

    table: str
    dry_run: bool
    rows: int
    fragments: int
    fragments_after: int
    merged: int
    parts: int
    memos: int
    memos_after: int
    written_bytes: int
    incomplete: int = 0
    waiting: int = 0
    quarantined: int = 0
    changed: int = 0
    damaged: tuple[str, ...] = ()
    queued: int = 0


def compact_table(
    warehouse: Warehouse,
    name: str,
    policy: MergePolicy | None = None,
    *,
    ended_before: float | None = None,
    dry_run: bool = False,
    progress: Progress = quiet,
) -> CompactedTable:
    """Merge the small fragments of a table, or only plan that; repeated, it merges nothing.

    ``ended_before``: the time, in epoch seconds, at which partitions must have ended. Raises
    :class:`~warehouse.errors.UnknownTable`, and :class:`~transforms.errors.StorageError` if a file cannot be written;
    earlier merges stay.
    """
    with warehouse.catalog.read() as connection:
        get_table(connection, name)
        units = current_units(connection, name)
        blocked = _quarantined(connection, name)
    open_units = [one for one in units if ended_before is None or one.end.timestamp() <= ended_before]
    pieces = [Piece(one.row, one.start, one.end, one.fragment.rows) for one in open_units if one.row not in blocked]
    by_row = {one.row: one for one in units}
    groups = [tuple(by_row[piece.row] for piece in group) for group in choose_merges(pieces, policy or MergePolicy())]
    done = CompactedTable(name, dry_run, 0, len(units), len(units), 0, 0, 0, 0, 0,
                          quarantined=sum(one.row in blocked for one in open_units))  # fmt: skip
    for number, group in enumerate(groups):
        progress(number, len(groups), group[0].partition)
        done = _add(done, _merge(warehouse, name, group, dry_run=dry_run), group)
        progress(number + 1, len(groups), "")
    # Also after a killed compaction, whose models were not matched again.
    return done if dry_run else replace(done, queued=queue_missing(warehouse))


@dataclass(frozen=True, slots=True)
class _Outcome:
    is_waiting: bool = False
    is_incomplete: bool = False
    is_changed: bool = False
    memos: int = 0
    memos_after: int = 0
    written_bytes: int = 0
    damaged: tuple[str, ...] = ()


def _add(done: CompactedTable, one: _Outcome, group: Sequence[PlacedFragment]) -> CompactedTable:
    damaged = done.damaged + one.damaged
    if one.is_waiting or one.is_incomplete or one.is_changed:
        return replace(
            done,
            waiting=done.waiting + one.is_waiting,
            incomplete=done.incomplete + one.is_incomplete,
            changed=done.changed + one.is_changed,
            damaged=damaged,
        )
    return replace(
        done,
        rows=done.rows + sum(placed.fragment.rows for placed in group),
        fragments_after=done.fragments_after - len(group) + 1,
        merged=done.merged + 1,
        parts=done.parts + len(group),
        memos=done.memos + one.memos,
        memos_after=done.memos_after + one.memos_after,
        written_bytes=done.written_bytes + one.written_bytes,
        damaged=damaged,
    )


def _quarantined(connection: Connection, table: str) -> set[int]:
    """The fragments with a quarantined or dropped task that a model waits for: it stays a task of few events."""
    tasks = schema.tasks.c
    query = (
        select(tasks.fragment)
        .join(schema.memos, computes())
        .where(tasks.table_name == table, tasks.state.in_((TaskState.FAILED, TaskState.DROPPED)))
        .where(select(schema.waits.c.model).where(waits_for()).exists())
    )
    return set(connection.execute(query.distinct()).scalars())


@dataclass(frozen=True, slots=True)
class _Part:
    """A memo of a part of a group; ``awaited``: a live model waits for it. Models come and go without changing the memo."""

    key: str
    state: MemoState
    awaited: bool = field(compare=False)
    file: int | None
    size_bytes: int
    secs: float
    queued_by: int
    cause_code: str
    cause: str
    evicted_at: float | None
    evicted_why: str


@dataclass(frozen=True)
class _Group:
    """Units to merge, with their memos.

    Attributes:
        units: The units, in time order.
        members: The rows of the fragments that they consist of.
        whole: The merged fragment.
        columns: The columns that each component reads.
        live: The components that a live model reads.
        parts: For each component, its memo of every unit; None where there is none.
        files: The memo files by row.
    """

    table: str
    units: tuple[PlacedFragment, ...]
    members: tuple[int, ...]
    whole: Fragment
    columns: Mapping[str, tuple[str, ...]]
    live: frozenset[str]
    parts: Mapping[str, tuple[_Part | None, ...]]
    files: Mapping[int, MemoRef]

    @property
    def complete(self) -> list[str]:
        """The components with ready memos of all units."""
        return [name for name, parts in self.parts.items() if all(_is_ready(part) for part in parts)]

    @property
    def is_waiting(self) -> bool:
        """Whether a memo is being computed, or only some memos of a component are ready and others are queued."""
        for parts in self.parts.values():
            states = {part.state for part in parts if part is not None and (part.awaited or _is_ready(part))}
            if MemoState.RUNNING in states or {MemoState.READY, MemoState.PENDING} <= states:
                return True
        return False

    @property
    def is_incomplete(self) -> bool:
        """Whether a merge would remove ready memos of a component, or compute evicted ones again."""
        for name, parts in self.parts.items():
            states = {None if part is None else part.state for part in parts}
            if MemoState.READY in states and len(states) > 1:
                return True
            is_missing = any(part is None and name in self.live for part in parts)
            is_awaited = any(part is not None and part.awaited and not _is_evicted(part) for part in parts)
            if MemoState.EVICTED in states and (is_missing or is_awaited):
                return True
        return False

    @property
    def evicted(self) -> list[str]:
        """The components whose memos of the units were evicted."""
        return [name for name, parts in self.parts.items() if any(_is_evicted(part) for part in parts)]


def _is_evicted(part: _Part | None) -> bool:
    return part is not None and part.state is MemoState.EVICTED


def _is_ready(part: _Part | None) -> bool:
    return part is not None and part.state is MemoState.READY


def _load(connection: Connection, table: str, units: Sequence[PlacedFragment]) -> _Group:
    rows = [one.row for one in units]
    merged = members_of_merged(connection, rows)
    members = tuple(member for row in rows for member in merged.get(row, (row,)))
    stored = fragments_by_row(connection, members)
    whole = fragment_schema(connection, table).of(merge_fragments([stored[row] for row in members]))
    live = _live_components(connection, table)
    columns = _components(connection, live, rows)
    keys: dict[str, list[str | None]] = {name: [] for name in columns}
    for one in units:
        of_unit = MemoKeys(one.fragment.digests)
        for name, read in columns.items():
            # A unit whose joined columns have no values yet has no memos of what reads them.
            keys[name].append(of_unit.key(name, read) if one.fragment.digests.keys() >= set(read) else None)
    found = _memos(connection, (key for listed in keys.values() for key in listed if key is not None))
    parts = {name: tuple(None if key is None else found.get(key) for key in listed) for name, listed in keys.items()}
    of = schema.memo_files.c
    files: dict[int, MemoRef] = {}
    for chunk in chunks(sorted({part.file for part in found.values() if part.file is not None})):
        query = select(of.id, of.path, of.checksum).where(one_of(connection, of.id, chunk))
        files |= {row.id: MemoRef(row.path, row.checksum) for row in connection.execute(query)}
    return _Group(table, tuple(units), members, whole, columns, live, parts, files)


def _live_components(connection: Connection, table: str) -> frozenset[str]:
    models, inputs = schema.models.c, schema.model_inputs.c
    live = select(inputs.fingerprint).join(schema.models, models.id == inputs.model)
    query = live.where(models.live.is_(True), models.table_name == table).distinct()
    return frozenset(connection.execute(query).scalars())


def _components(connection: Connection, live: frozenset[str], rows: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """The components with memos over these fragments, and the live ones, with the columns that they read."""
    memos = schema.memos.c
    names = set(live)
    for chunk in chunks(sorted(rows)):
        query = select(memos.fingerprint).where(one_of(connection, memos.fragment, chunk)).distinct()
        names.update(connection.execute(query).scalars())
    of = schema.component_columns.c
    columns: defaultdict[str, list[str]] = defaultdict(list)
    for names_chunk in chunks(sorted(names)):
        read = select(of.fingerprint, of.column_name).where(one_of(connection, of.fingerprint, names_chunk))
        for fingerprint, column in connection.execute(read):
            columns[fingerprint].append(column)
    return {name: tuple(sorted(columns[name])) for name in sorted(columns)}


def _memos(connection: Connection, keys: Iterable[str]) -> dict[str, _Part]:
    of, tasks, waits, models = schema.memos.c, schema.tasks.c, schema.waits.c, schema.models.c
    fragments = schema.fragments.c
    awaited = (
        select(waits.model)
        .join(schema.models, models.id == waits.model)
        .where(waits.fingerprint == of.fingerprint, waits.table_name == fragments.table_name, models.live.is_(True))
        .exists()
    )
    query = select(
        of.memo_key,
        of.state,
        awaited.label("awaited"),
        of.file,
        of.size_bytes,
        of.secs,
        of.queued_by,
        of.cause_code,
        of.cause,
        of.evicted_at,
        of.evicted_why,
        tasks.state.label("task_state"),
    )
    query = query.join(schema.fragments, fragments.id == of.fragment).outerjoin(schema.tasks, computes())
    return {
        row.memo_key: _Part(row.memo_key, known_state(row.state, row.task_state), bool(row.awaited), row.file, row.size_bytes or 0, row.secs or 0.0,
                            row.queued_by, row.cause_code, row.cause, row.evicted_at, row.evicted_why or "")
        for chunk in chunks(sorted(set(keys)))
        for row in connection.execute(query.where(one_of(connection, of.memo_key, chunk)))
    }  # fmt: skip


def _merge(warehouse: Warehouse, table: str, units: Sequence[PlacedFragment], *, dry_run: bool) -> _Outcome:
    with warehouse.catalog.read() as connection:
        if current_fragment_rows(connection, [one.row for one in units]) != {one.row for one in units}:
            return _Outcome(is_changed=True)
        group = _load(connection, table, units)
    if group.is_waiting or group.is_incomplete:
        return _Outcome(is_waiting=group.is_waiting, is_incomplete=not group.is_waiting)
    complete = group.complete
    if dry_run:
        written = sum(part.size_bytes for name in complete for part in group.parts[name] if part is not None)
        return _Outcome(memos=len(complete) * len(units), memos_after=len(complete), written_bytes=written)
    damaged: list[str] = []
    files: list[tuple[MemoFile, tuple[str, ...]]] = []
    for names in _batches(group, complete):
        columns = _join(warehouse, group, names, damaged)
        if columns and not damaged:
            files.append((_write(warehouse, group, columns), tuple(columns)))
    carried = None if damaged else _enter(warehouse, group, files)
    if carried is None:
        for file, _ in files:
            warehouse.storage.delete(file.path)
        if not damaged:
            return _Outcome(is_changed=True)
        # Of a damaged memo, only the part is computed again; without a live model, it is evicted.
        is_waiting = _is_waiting(warehouse, group)
        return _Outcome(is_waiting, not is_waiting, damaged=tuple(damaged))
    written = sum(file.size_bytes for file, _ in files)
    return _Outcome(memos=len(carried) * len(units), memos_after=len(carried), written_bytes=written)


def _is_waiting(warehouse: Warehouse, group: _Group) -> bool:
    with warehouse.catalog.read() as connection:
        return _load(connection, group.table, group.units).is_waiting


def _batches(group: _Group, names: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for name in names:
        size = sum(part.size_bytes for part in group.parts[name] if part is not None)
        if batch and held + size > _FILE_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(name)
        held += size
    if batch:
        yield batch


def _join(warehouse: Warehouse, group: _Group, names: Sequence[str], damaged: list[str]) -> dict[str, pa.Array]:
    """The columns of the whole group, without those of which a part is damaged."""
    read: dict[str, list[pa.Array]] = {name: [] for name in names}
    for position, unit in enumerate(group.units):
        by_file: defaultdict[int, list[str]] = defaultdict(list)
        for name in read:
            part = group.parts[name][position]
            assert part is not None
            assert part.file is not None
            by_file[part.file].append(name)
        for file, here in by_file.items():
            found, bad = _read(warehouse, group.files[file], here, unit.fragment.rows)
            for name, array in found.items():
                read[name].append(array)
            for name, error in bad.items():
                del read[name]
                part = group.parts[name][position]
                if part is not None and mark_damaged(warehouse, part.key, group.files[file].path, error.what):
                    damaged.append(f"{group.files[file].path}, component {name[:12]}: {error.what}")
    return {name: pa.concat_arrays(arrays) for name, arrays in read.items()}


def _read(
    warehouse: Warehouse, file: MemoRef, names: Sequence[str], rows: int
) -> tuple[Mapping[str, pa.Array], dict[str, MemoDamaged]]:
    try:
        found = read_memo_file(warehouse.storage, file.path, names, file.checksum, rows=rows)
        for array in found.values():
            if len(array) != rows:
                raise MemoDamaged(
                    "a memo must have the rows of its fragment", where=file.path, value=len(array), allowed=str(rows)
                )
    except MemoDamaged as error:
        if len(names) == 1:
            return {}, {names[0]: error}
        each = [_read(warehouse, file, [name], rows) for name in names]
        return {k: v for good, _ in each for k, v in good.items()}, {k: v for _, bad in each for k, v in bad.items()}
    return found, {}


def _write(warehouse: Warehouse, group: _Group, columns: Mapping[str, pa.Array]) -> MemoFile:
    keys = MemoKeys(group.whole.digests)
    named = [keys.key(name, group.columns[name]) for name in columns]
    lease = f"{COMPACTION}{uuid4().hex}"
    path = memo_path(group.table, group.units[0].partition, group.whole.fragment_id, named, lease)
    return write_memo_file(warehouse.storage, path, dict(sorted(columns.items())))


def _enter(
    warehouse: Warehouse, group: _Group, files: Sequence[tuple[MemoFile, tuple[str, ...]]]
) -> frozenset[str] | None:
    """Enter the merged fragment with its memos, and remove those of its parts; None if another process changed them.

    Returns the components whose memos are joined. Those that were all evicted or moved meanwhile are left out.
    """
    rows = {one.row for one in group.units}

    def enter(connection: Connection) -> frozenset[str] | None:
        now = warehouse.clock()  # after the wait for other writers, whose pins it is compared with
        if current_fragment_rows(connection, rows) != rows:
            return None
        if any(not warehouse.storage.exists(file.path) for file, _ in files):
            return None  # writing took so long that gc deleted it
        still = _load(connection, group.table, group.units)
        joined = {name for _, names in files for name in names if still.parts.get(name) == group.parts[name]}
        # A worker may have committed memos meanwhile, which would be removed.
        if still.is_waiting or still.is_incomplete or not joined.issuperset(still.complete):
            return None
        (number,) = write_merges(connection, group.table, [group.members])
        carried: set[str] = set()
        for file, names in files:
            same = [name for name in names if name in joined]
            carried.update(_enter_memos(connection, group, number, file, same, now))
        _enter_tombstones(connection, still, number, now)
        moved = carried | _remove_parts(connection, still, now)
        models, waits = schema.models.c, schema.waits.c
        waiting = select(waits.model).where(one_of(connection, waits.fingerprint, sorted(moved)))
        outdated = (or_(models.table_name == group.table, models.id.in_(waiting)), models.live.is_(True))
        connection.execute(update(schema.models).where(*outdated).values(table_version=-1))
        return frozenset(carried)

    return warehouse.catalog.run(enter)


def _enter_memos(
    connection: Connection, group: _Group, fragment: int, file: MemoFile, names: Sequence[str], now: float
) -> list[str]:
    """Enter the memos of one file, without those that are ready from an earlier merge, or being computed.

    Ready memos of replaced data belong to this fragment from now on. Returns the components whose merged memos are ready.
    """
    keys = MemoKeys(group.whole.digests)
    key_of = {name: keys.key(name, group.columns[name]) for name in names}
    known = _memos(connection, key_of.values())
    stays = (MemoState.READY, MemoState.RUNNING)
    entered = [name for name in names if key_of[name] not in known or known[key_of[name]].state not in stays]
    ids = enter_files(connection, [NewFile(file.path, file.checksum, group.whole.rows, file.size_bytes)], now)
    again = [key_of[name] for name in entered if key_of[name] in known]
    aliases = pop_aliases(connection, again)
    delete_memos(connection, again)
    insert_absent(
        connection,
        schema.memos,
        [_memo_row(group, name, key_of[name], fragment, file, ids[file.path], now) for name in entered],
    )
    places: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for name in entered:
        own = content_of(group.whole, group.columns[name])
        for content in {own, *aliases.get(key_of[name], ())}:
            places[ids[file.path], content].add(name)
    add_coverage(connection, places)
    count_live_bytes(connection, ids.values(), now)
    ready = [name for name in names if name not in entered and known[key_of[name]].state is MemoState.READY]
    _move_replaced(connection, group, fragment, {key_of[name]: name for name in ready})
    return [*entered, *ready]


def _move_replaced(connection: Connection, group: _Group, fragment: int, memos: Mapping[str, str]) -> None:
    """Assign these memos (key to component) to the merged fragment where their own fragment was replaced."""
    of = schema.memos.c
    query = select(of.memo_key).where(~is_unit(of.fragment))
    replaced = [
        key
        for chunk in chunks(sorted(memos))
        for key in connection.execute(query.where(one_of(connection, of.memo_key, chunk))).scalars()
    ]
    move_to_copies(connection, {
        key: [CurrentCopy(fragment, group.table, content_of(group.whole, group.columns[memos[key]]))]
        for key in replaced
    })  # fmt: skip


def _enter_tombstones(connection: Connection, group: _Group, fragment: int, now: float) -> None:
    """Let the merged memos of evicted parts be evicted too: they are queued again for a submission only, as their parts were."""
    keys = MemoKeys(group.whole.digests)
    rows = []
    for name in group.evicted:
        parts = [part for part in group.parts[name] if part is not None and _is_evicted(part)]
        # One that was evicted by hand is not queued again once it is worth its storage.
        reason = min(parts, key=lambda part: part.evicted_why.startswith(UNPAID)).evicted_why
        evicted = {"state": MemoState.EVICTED, "evicted_at": max(part.evicted_at or 0.0 for part in parts),
                   "evicted_why": reason}  # fmt: skip
        key = keys.key(name, group.columns[name])
        rows.append({**_row_of_parts(parts, key, name, fragment, now), **evicted})
    insert_absent(connection, schema.memos, rows)


def _memo_row(
    group: _Group, name: str, key: str, fragment: int, file: MemoFile, number: int, now: float
) -> dict[str, Any]:
    parts = [part for part in group.parts[name] if part is not None]
    stored = {"state": MemoState.READY, "file": number, "rows": group.whole.rows,
              "size_bytes": file.columns[name].size_bytes, "secs": sum(part.secs for part in parts)}  # fmt: skip
    return {**_row_of_parts(parts, key, name, fragment, now), **stored}


def _row_of_parts(parts: Sequence[_Part], key: str, name: str, fragment: int, now: float) -> dict[str, Any]:
    return {
        "memo_key": key,
        "fingerprint": name,
        "fragment": fragment,
        "created_at": now,
        "changed_at": now,
        "queued_by": parts[0].queued_by,
        "cause_code": parts[0].cause_code,
        "cause": parts[0].cause,
    }


def _remove_parts(connection: Connection, group: _Group, now: float) -> set[str]:
    """Remove the ready and the queued memos of the parts, without those that other current fragments need.

    The queued memos belong to such a fragment from now on. Returns the components of the queued ones among them.
    """
    removable = (MemoState.READY, MemoState.PENDING)
    parts = {part.key: (name, part) for name, found in group.parts.items() for part in found
             if part is not None and part.state in removable}  # fmt: skip
    copies: dict[str, list[CurrentCopy]] = {}
    for chunk in chunks(sorted(parts)):
        copies |= current_copies(connection, chunk)
    move_to_copies(connection, copies)
    kept = copies.keys() | _overlaid_elsewhere(connection, group, parts.keys() - copies.keys())
    gone = [key for key in parts if key not in kept]
    files: defaultdict[int, set[str]] = defaultdict(set)
    for key in gone:
        name, part = parts[key]
        if part.file is not None:
            files[part.file].add(name)
    delete_memos(connection, gone)
    remove_coverage(connection, files, now)
    return {name for key, (name, part) in parts.items() if key in kept and part.state is MemoState.PENDING}


def _overlaid_elsewhere(connection: Connection, group: _Group, keys: Collection[str]) -> set[str]:
    """The memos that fragments with overlays of the columns that they read may need: such a fragment is not found by its content."""
    own: defaultdict[str, set[str]] = defaultdict(set)
    for name, parts in group.parts.items():
        for unit, part in zip(group.units, parts, strict=True):
            if part is not None:
                own[part.key].add(content_of(unit.fragment, group.columns[name]))
    others = {key: held - own[key] for key, held in known_contents(connection, keys).items()}
    of = schema.fragments.c.fragment_id
    stored: set[str] = set()
    for chunk in chunks(sorted(set().union(*others.values()))):
        stored.update(connection.execute(select(of).where(one_of(connection, of, chunk))).scalars())
    return {key for key, held in others.items() if held - stored}
