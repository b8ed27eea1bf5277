"""Writes the events of what a transaction commits, if the warehouse has a receiver of lineage (:attr:`~warehouse.config.WarehouseConfig.lineage`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sqlalchemy import Connection, select

from transforms.graphs.graph import Node, component_from_document, raw_columns
from transforms.render.text import expression_text
from warehouse.catalog import schema
from warehouse.lineage.documents import ColumnSource, Dataset, EventKind, Run, lineage_event
from warehouse.lineage.names import VALUES, component_name, namespace_of, run_folder_name, source_dataset
from warehouse.lineage.outbox import write_events
from warehouse.warehouse import Warehouse

#: Changes of tables that change their life; others alter nothing but data.
_LIVES = {"drop": "DROP", "overlay": "ALTER"}
#: Changes that bring no rows.
_REMOVALS = frozenset({"drop", "delete"})
_MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class CommittedMemo:
    """A memo that a transaction makes ready, or an attempt at one that failed.

    Attributes:
        key: what tells it from every other attempt at the memo.
        table: the table of its fragment.
        fingerprint: of its component.
        component: the component's document.
        rows, size_bytes: of the memo.
        error: why the attempt failed; "" if it did not.
    """

    key: str
    table: str
    fingerprint: str
    component: Mapping[str, Any]
    rows: int = 0
    size_bytes: int = 0
    error: str = ""


def record_memos(connection: Connection, warehouse: Warehouse, memos: Iterable[CommittedMemo], now: float) -> None:
    """Write the events of one run for each table whose memos are committed, or failed, together."""
    if not warehouse.config.lineage:
        return
    by_table: defaultdict[tuple[str, bool], list[CommittedMemo]] = defaultdict(list)
    for one in memos:
        by_table[one.table, bool(one.error)].append(one)
    for (table, has_failed), found in by_table.items():
        _write(connection, _memo_run(connection, warehouse, table, found), EventKind.FAIL if has_failed else EventKind.COMPLETE, now,
               error="; ".join(list(dict.fromkeys(one.error for one in found if one.error))[:_MOST_FAILURES]))  # fmt: skip


def _memo_run(connection: Connection, warehouse: Warehouse, table: str, memos: Sequence[CommittedMemo]) -> Run:
    namespace = namespace_of(warehouse.storage.root)
    by_component: defaultdict[str, list[CommittedMemo]] = defaultdict(list)
    for one in memos:
        by_component[one.fingerprint].append(one)
    outputs = []
    for fingerprint, found in sorted(by_component.items()):
        root = component_from_document(dict(found[0].component))
        written = () if found[0].error else (sum(one.rows for one in found), sum(one.size_bytes for one in found))
        outputs.append(_component(namespace, table, fingerprint, root, *written))
    return Run(sorted(one.key for one in memos), namespace, f"memoize/{table}", "MEMOIZE",
               (_table(connection, namespace, table),), outputs, _release())  # fmt: skip


def _component(
    namespace: str, table: str, fingerprint: str, root: Node, rows: int | None = None, size_bytes: int | None = None
) -> Dataset:
    sources = _sources(namespace, table, root)
    return Dataset(namespace, component_name(table, fingerprint), {VALUES: str(root.type)}, {VALUES: sources} if sources else {},
                   description=expression_text(root), rows=rows, size_bytes=size_bytes)  # fmt: skip


def _sources(namespace: str, table: str, root: Node) -> list[ColumnSource]:
    return [ColumnSource(namespace, table, name) for name in dict.fromkeys(one.name for one in raw_columns(root))]


def _table(connection: Connection, namespace: str, name: str) -> Dataset:
    """A table at its version in the caller's transaction."""
    of = schema.tables.c
    row = connection.execute(select(of.columns, of.version).where(of.name == name)).one()
    columns = {str(column[0]): str(column[1]) for column in row.columns}
    return Dataset(namespace, name, columns, version=str(row.version))


def record_table_version(
    connection: Connection,
    warehouse: Warehouse,
    table: str,
    version: int,
    kind: str,
    source: str,
    rows: int,
    now: float,
    from_table: tuple[str, int] | None = None,
) -> None:
    """Write the events of the change that makes a version of a table.

    Args:
        connection: of the transaction that makes it.
        warehouse: the warehouse.
        table: the table.
        version: its new version.
        kind: of the change.
        source: where its rows are from.
        rows: those that it affects.
        now: seconds since the epoch.
        from_table: the table that they are computed from, with its version; None: they are given.
    """
    if not warehouse.config.lineage:
        return
    namespace = namespace_of(warehouse.storage.root)
    changed = replace(
        _table(connection, namespace, table),
        version=str(version),
        change="CREATE" if version == 1 else _LIVES.get(kind, ""),
        rows=None if kind in _REMOVALS else rows,
    )
    inputs = () if kind in _REMOVALS else source_dataset(source)
    if from_table is not None:
        inputs = (replace(_table(connection, namespace, from_table[0]), version=str(from_table[1])),)
    run = Run([str(version)], namespace, f"{kind}/{table}", "IMPORT", inputs, (changed,), _release())
    _write(connection, run, EventKind.COMPLETE, now)


@dataclass(frozen=True, slots=True)
class TrainingLineage:
    """What a training reads and writes.

    Attributes:
        folder: the run directory.
        model, model_version: what is trained.
        table, table_version: what it reads.
        last_partition: the last partition of its range; with the folder and the versions it says which training this is.
        inputs: the component of each input of the model.
        loaded: the fingerprints of components whose memos are loaded.
    """

    folder: str
    model: str
    model_version: int
    table: str
    table_version: int
    last_partition: str
    inputs: Mapping[str, Node]
    loaded: Sequence[str] = ()

    def run(self, namespace: str, events: int | None = None, checkpoint: str = "") -> Run:
        """The run, which is the same when a killed training goes on. Pure."""
        by_fingerprint = {root.identity: root for root in self.inputs.values()}
        memos = [
            _component(namespace, self.table, one, by_fingerprint[one]) if one in by_fingerprint
            else Dataset(namespace, component_name(self.table, one))
            for one in self.loaded
        ]  # fmt: skip
        output = Dataset(
            namespace,
            run_folder_name(self.model, self.model_version),
            {name: str(root.type) for name, root in self.inputs.items()},
            {name: found for name, root in self.inputs.items() if (found := _sources(namespace, self.table, root))},
            version=checkpoint,
            description=f"checkpoints in {self.folder}",
            rows=events,
        )
        key = [self.folder, str(self.model_version), str(self.table_version), self.last_partition]
        table = Dataset(namespace, self.table, version=str(self.table_version))
        return Run(key, namespace, f"train/{self.model}", "TRAIN", (table, *memos), (output,), _release())


def record_training(
    warehouse: Warehouse,
    training: TrainingLineage,
    kind: EventKind,
    *,
    events: int | None = None,
    checkpoint: str = "",
    error: str = "",
) -> None:
    """Write an event of a training, in a transaction of its own; with its START where that is not there.

    Args:
        warehouse: the warehouse.
        training: the training.
        kind: its state.
        events: those that it has trained.
        checkpoint: its newest checkpoint.
        error: why it failed.
    """
    if not warehouse.config.lineage:
        return
    run, now = training.run(namespace_of(warehouse.storage.root), events, checkpoint), warehouse.clock()
    part = checkpoint if kind is EventKind.RUNNING else ""
    warehouse.catalog.run(
        lambda connection: _write(connection, run, kind, now, error=error, part=part), idempotent=True
    )


def _write(connection: Connection, run: Run, kind: EventKind, now: float, *, error: str = "", part: str = "") -> None:
    """Write an event of a run, after its START unless that is there."""
    start = lineage_event(replace(run, outputs=()), EventKind.START, now)
    last = () if kind is EventKind.START else (lineage_event(run, kind, now, error=error, part=part),)
    write_events(connection, [start, *last], now)


def _release() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:  # a checkout on the path
        return ""
