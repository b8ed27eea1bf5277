"""Drop a table: remove its data from the catalog, evict its memos, keep its history.

It is one transaction. The table's own files are kept; ``gc`` deletes memo files and overlays that become unreferenced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, func, or_, select, update

from transforms.errors import Busy
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import computes
from warehouse.memos.memos import current_copies, evict_memos, move_to_copies
from warehouse.models.joined_columns import joined_columns, wanted_columns
from warehouse.reading.pins import read_live_pins
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.tables.table import Table
from warehouse.tables.versions import ChangeNote, check_version, record_change
from warehouse.warehouse import Warehouse

#: Memos that are evicted, or moved to equal data of another table, at a time.
_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """The effect of dropping a table, planned or ``done``.

    Attributes:
        table: its name.
        version: its last version.
        root: the folder of its files, which are kept.
        partitions: its partitions.
        fragments: its fragments.
        rows: its rows.
        size_bytes: the compressed bytes of its files.
        memos: ready memos of its data that are evicted.
        memo_bytes: their bytes, shared ones included.
        shared_memos: ready memos that are kept, since another table holds equal data.
        models: live models that read it, which are retired.
        running_tasks: leased tasks over its data.
        queued_tasks: queued tasks over its data.
        readers: jobs that read it now.
        done: whether the table was dropped.
    """

    table: str
    version: int
    root: str
    partitions: int
    fragments: int
    rows: int
    size_bytes: int
    memos: int
    memo_bytes: int
    shared_memos: int
    models: tuple[str, ...]
    running_tasks: int
    queued_tasks: int
    readers: tuple[str, ...]
    done: bool

    @property
    def in_use(self) -> bool:
        """Whether models, tasks or jobs need the table."""
        return bool(self.models or self.running_tasks or self.readers)


def plan_drop(warehouse: Warehouse, name: str) -> DroppedTable:
    """The effect that :func:`drop_table` would have. Raises :class:`~warehouse.errors.UnknownTable`."""
    with warehouse.catalog.read() as connection:
        return _plan(connection, get_table(connection, name), warehouse.clock())


def drop_table(warehouse: Warehouse, name: str, *, why: str = "", force: bool = False) -> DroppedTable:
    """Remove a table's data and evict its memos; with ``force`` also if models, tasks or jobs need it.

    Live models that read it are retired. Memos of data that another table also holds are kept. The name can be registered
    again; its versions continue. Raises :class:`Busy` if the table is in use, and :class:`~warehouse.errors.UnknownTable`;
    nothing is changed then.
    """

    def drop(connection: Connection) -> DroppedTable:
        table, now = get_table(connection, name), warehouse.clock()
        check_version(connection, name, table.version, warehouse.catalog.where)
        planned = _plan(connection, table, now)
        if planned.in_use and not force:
            raise _in_use(planned)
        keys = _ready_memos(connection, name)
        _forget_data(connection, name)
        _retire_models(connection, name)
        for chunk in chunks(keys, _AT_ONCE):
            _evict(connection, chunk, f"table {name} was dropped" + (f": {why}" if why else ""), now)
        note = ChangeNote("drop", (), planned.rows, planned.fragments, table.root, why)
        record_change(connection, warehouse, name, table.version + 1, note, now)
        of = schema.tables
        connection.execute(update(of).where(of.c.name == name).values(version=table.version + 1, dropped_at=now))
        return replace(planned, done=True)

    return warehouse.catalog.run(drop)


def _in_use(planned: DroppedTable) -> Busy:
    needs = [f"live model {model}" for model in planned.models[:3]]
    needs += [f"{len(planned.models) - 3} more models"] if len(planned.models) > 3 else []
    needs += [f"running tasks: {planned.running_tasks}"] if planned.running_tasks else []
    needs += [f"a job that reads it: {holder}" for holder in planned.readers[:3]]
    return Busy("a table to drop must not be in use", where=f"table {planned.table}",
                value=", ".join(needs), next_step="retire the models (headrace model retire MODEL --yes) and let tasks "
                "and jobs end, or drop it anyway, which retires them: --force")  # fmt: skip


def _plan(connection: Connection, table: Table, now: float) -> DroppedTable:
    current = current_fragments(connection, table.name)
    models, tasks = schema.models.c, schema.tasks.c
    live = select(models.name).where(models.id.in_(_live_readers(connection, table.name))).order_by(models.name)
    counted = select(tasks.state, func.count()).join(schema.memos, computes())
    counted = counted.where(tasks.table_name == table.name).group_by(tasks.state)
    counts = {row[0]: int(row[1]) for row in connection.execute(counted)}
    keys = _ready_memos(connection, table.name)
    shared = sum(len(_copies(connection, chunk, table.name)) for chunk in chunks(keys, _AT_ONCE))
    readers = {pin.holder for pin in read_live_pins(connection, now) if pin.table == table.name}
    return DroppedTable(
        table=table.name,
        version=table.version,
        root=table.root,
        partitions=len({placed.partition for placed in current}),
        fragments=len(current),
        rows=sum(placed.fragment.rows for placed in current),
        size_bytes=sum(placed.fragment.size_bytes for placed in current),
        memos=len(keys) - shared,
        memo_bytes=_memo_bytes(connection, table.name),
        shared_memos=shared,
        models=tuple(connection.execute(live).scalars()),
        running_tasks=counts.get(TaskState.LEASED, 0),
        queued_tasks=counts.get(TaskState.QUEUED, 0),
        readers=tuple(sorted(readers)),
        done=False,
    )


def _live_readers(connection: Connection, table: str) -> list[int]:
    """The rows of the live models over a table, and of those that read columns joined from it."""
    of = schema.models.c
    wanted = wanted_columns(connection)
    joined = {
        model
        for one in joined_columns(connection, other_table=table)
        for model in wanted.get((one.table, one.column), ())
    }
    query = select(of.id).where(of.live.is_(True), or_(of.table_name == table, of.name.in_(sorted(joined))))
    return list(connection.execute(query).scalars())


def _ready_memos(connection: Connection, table: str) -> list[str]:
    """The keys of the ready memos over fragments of any version of the table."""
    memos, fragments = schema.memos.c, schema.fragments.c
    query = select(memos.memo_key).join(schema.fragments, fragments.id == memos.fragment)
    query = query.where(fragments.table_name == table, memos.state == MemoState.READY).order_by(memos.memo_key)
    return list(connection.execute(query).scalars())


def _memo_bytes(connection: Connection, table: str) -> int:
    memos, fragments = schema.memos.c, schema.fragments.c
    total = func.coalesce(func.sum(memos.size_bytes), 0)
    query = select(total).join(schema.fragments, fragments.id == memos.fragment)
    query = query.where(fragments.table_name == table, memos.state == MemoState.READY)
    return int(connection.execute(query).scalar_one())


def _copies(connection: Connection, keys: Sequence[str], table: str) -> dict[str, object]:
    """For each memo whose data another table also holds, the first such fragment."""
    found: dict[str, object] = {}
    for key, copies in current_copies(connection, keys).items():
        elsewhere = [copy for copy in copies if copy.table != table]
        if elsewhere:
            found[key] = elsewhere[0]
    return found


def _evict(connection: Connection, keys: Sequence[str], why: str, now: float) -> None:
    of = schema.memos.c
    copies = current_copies(connection, keys)
    move_to_copies(connection, copies)
    gone = [key for key in keys if key not in copies]
    query = select(of.memo_key, of.fingerprint, of.file)
    files: defaultdict[int, set[str]] = defaultdict(set)
    memos: dict[str, str] = {}
    for chunk in chunks(gone):
        for row in connection.execute(query.where(one_of(connection, of.memo_key, chunk))):
            files[row.file].add(row.fingerprint)
            memos[row.memo_key] = row.fingerprint
    evict_memos(connection, memos, files, why, now)


def _retire_models(connection: Connection, table: str) -> None:
    of = schema.models.c
    live = _live_readers(connection, table)
    connection.execute(update(schema.models).where(of.id.in_(live)).values(live=False))
    connection.execute(delete(schema.waits).where(schema.waits.c.model.in_(live)))


def _forget_data(connection: Connection, table: str) -> None:
    """Remove all versions of the table's data and its references to files. Fragments are kept, since memos refer to them."""
    changes, manifests, members = schema.changes.c, schema.manifests.c, schema.manifest_fragments
    parts, fragments = schema.merged_fragments, schema.fragments.c
    stored = select(fragments.id).where(fragments.table_name == table)
    connection.execute(delete(parts).where(parts.c.fragment.in_(stored)))
    mine = select(manifests.id).where(manifests.table_name == table)
    connection.execute(delete(members).where(members.c.manifest.in_(mine)))
    connection.execute(delete(schema.manifests).where(manifests.table_name == table))
    lakes, topics = (schema.lakes, schema.lake_files, schema.lake_parts), (schema.kafka_topics, schema.kafka_offsets)
    for of_table in (schema.files, *lakes, *topics):
        connection.execute(delete(of_table).where(of_table.c.table_name == table))
    made = select(changes.id).where(changes.table_name == table)
    connection.execute(delete(schema.overlays).where(schema.overlays.c.change.in_(made)))
    of = schema.fragments
    overlaid = select(of.c.id, of.c.overlays).where(of.c.table_name == table, of.c.overlays.is_not(None))
    for row in connection.execute(overlaid).all():
        without = dict.fromkeys(row.overlays, "")  # not null: the digests are not those of the file
        connection.execute(update(of).where(of.c.id == row.id).values(overlays=without))
