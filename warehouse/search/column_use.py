"""What reads a column of a table, and which files hold its values: the questions before a column is removed, and for a request of deletion.

Answered from the catalog, and from a listing of the home for files that it does not name. A file is named if it may hold values of the column: a Parquet file of the
table has other columns, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Column, Connection, func, or_, select

from transforms.analysis.target import target_of
from transforms.comparison.pattern import Pattern
from transforms.errors import InputError, UnknownColumn, nearest
from transforms.graphs.graph import raw_columns
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.files.artifacts import artifact_path
from warehouse.files.own_files import HomeFiles, list_home
from warehouse.models.joined_columns import JoinedRecord, joined_columns
from warehouse.scheduling.task_states import TaskState
from warehouse.storage.layout import ANALYSIS, ARTIFACTS, BATCHES, MEMOS, ROWS
from warehouse.tables.manifests import get_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse

HoldingKind = Literal[
    "files of the table",
    "overlays",
    "memos",
    "unreferenced memos",
    "artifacts",
    "contributions",
    "batch files",
    "rows by key",
]


@dataclass(frozen=True, slots=True)
class HoldingFile:
    """A file that may hold values of a column; ``path``: absolute, or relative to the home."""

    kind: HoldingKind
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ColumnModel:
    """A version of a model that reads a column: by these inputs, and maybe by its label."""

    name: str
    version: int
    is_live: bool
    inputs: tuple[str, ...]
    by_label: bool


@dataclass(frozen=True)
class ColumnUse:
    """What reads a column, and what holds its values.

    Attributes:
        table: The table.
        column: The column.
        type: Its Arrow type.
        roles: What else needs it: times, the identity of rows of a lake, joined columns that are computed from it.
        models: The versions of models that read it, or what is joined from it, live ones first.
        components: The components that read it, or what is joined from it, over any table.
        queued_tasks: Unfinished tasks of those components over the tables that have the columns.
        failed_tasks: Failed ones; the sample of a failure holds values.
        sketches: Sketches of its values in the catalog, for drift.
        statistics: Statistics of features in the catalog, with their most frequent ids.
        files: The files that may hold values, by kind and path.
    """

    table: str
    column: str
    type: str
    roles: tuple[str, ...]
    models: tuple[ColumnModel, ...]
    components: int
    queued_tasks: int
    failed_tasks: int
    sketches: int
    statistics: int
    files: tuple[HoldingFile, ...]


def column_use(warehouse: Warehouse, table: str, column: str) -> ColumnUse:
    """What reads a column of a table, and which files may hold its values.

    Raises :class:`~warehouse.errors.UnknownTable` and :class:`~transforms.errors.UnknownColumn`, with the nearest names.
    """
    with warehouse.catalog.read() as connection:
        known = get_table(connection, table)
    types = {one.name: one.arrow_type for one in known.columns}
    if column not in types:
        raise UnknownColumn(
            "the table has no such column", where=f"table {table}", value=column, allowed=nearest(column, types)
        )
    home = list_home(warehouse.storage, (ARTIFACTS, ANALYSIS, f"{BATCHES}/{table}", f"{ROWS}/{table}"))
    with warehouse.catalog.read() as connection:
        joined = [(one.table, one.column) for one in joined_columns(connection) if _is_made_of(one, known, column)]
    homes = {
        name: list_home(warehouse.storage, (f"{BATCHES}/{name}",)) for name in {name for name, _ in joined} - {table}
    } | {table: home}
    with warehouse.catalog.read() as connection:
        of = schema.component_columns.c
        places = [(table, column), *joined]
        reading = {
            each: sorted(connection.execute(select(of.fingerprint).where(of.column_name == each)).scalars())
            for each in dict.fromkeys(each for _, each in places)
        }
        fingerprints = sorted({one for found in reading.values() for one in found})
        tasks = Counter[str]()
        for name in homes:
            tasks.update(
                _tasks(
                    connection, name, sorted({one for other, each in places if other == name for one in reading[each]})
                )
            )
        files = set(_files(connection, home, table, column, reading[column]))
        for name, each in joined:
            files.update(
                one
                for one in _files(connection, homes[name], name, each, reading[each])
                if one.kind != "files of the table"
            )
        return ColumnUse(
            table=table,
            column=column,
            type=types[column],
            roles=(
                *_roles(connection, table, known.time_column, column),
                *(f"joined column {each} of table {name}" for name, each in joined),
            ),
            models=_merged([one for name, each in places for one in _models(connection, name, each)]),
            components=len(fingerprints),
            queued_tasks=tasks.get(TaskState.QUEUED, 0) + tasks.get(TaskState.LEASED, 0),
            failed_tasks=tasks.get(TaskState.FAILED, 0),
            sketches=_count(connection, schema.value_sketches.c.fingerprint, fingerprints),
            statistics=_count(connection, schema.feature_statistics.c.fingerprint, fingerprints),
            files=_files_once(files),
        )


def _files_once(files: Iterable[HoldingFile]) -> tuple[HoldingFile, ...]:
    """Each file once, with the bytes of all of its columns; by kind and path."""
    sizes = Counter[tuple[HoldingKind, str]]()
    for one in files:
        sizes[one.kind, one.path] += one.size_bytes
    return tuple(HoldingFile(*place, size_bytes) for place, size_bytes in sorted(sizes.items()))


def _merged(models: Iterable[ColumnModel]) -> tuple[ColumnModel, ...]:
    """Each version of a model once, with all of its inputs; live ones first."""
    found: dict[tuple[str, int], ColumnModel] = {}
    for one in models:
        before = found.get((one.name, one.version), one)
        inputs = tuple(dict.fromkeys((*before.inputs, *one.inputs)))
        found[one.name, one.version] = replace(one, inputs=inputs, by_label=before.by_label or one.by_label)
    return tuple(sorted(found.values(), key=lambda one: (not one.is_live, one.name, -one.version)))


def _is_made_of(record: JoinedRecord, table: Table, column: str) -> bool:
    """Whether values of a joined column follow from those of a column."""
    own = record.table == table.name and column in {*record.own_columns, table.time_column}
    return own or (record.other_table == table.name and column in {*record.other_columns, table.time_column})


def _roles(connection: Connection, table: str, time_column: str | None, column: str) -> Iterator[str]:
    if column == time_column:
        yield "the times of its events"
    keys = connection.execute(select(schema.lakes.c["keys"]).where(schema.lakes.c.table_name == table)).scalar()
    if column in (keys or ()):
        yield "the identity of rows of its lake"


def _models(connection: Connection, table: str, column: str) -> tuple[ColumnModel, ...]:
    of, inputs, columns = schema.models.c, schema.model_inputs.c, schema.component_columns.c
    read = select(inputs.model, inputs.name).join(schema.component_columns, columns.fingerprint == inputs.fingerprint)
    read = read.join(schema.models, of.id == inputs.model).where(columns.column_name == column, of.table_name == table)
    names: defaultdict[int, list[str]] = defaultdict(list)
    for model, name in connection.execute(read.order_by(inputs.model, inputs.position)):
        names[model].append(name)
    found = []
    query = select(of.id, of.name, of.version, of.live, of.label, of.label_component, of.task, of.classes).where(
        of.table_name == table
    )
    for row in connection.execute(query):
        by_label = column in _label_columns(row.label, row.label_component, row.task, row.classes)
        if by_label or row.id in names:
            found.append(ColumnModel(row.name, row.version, row.live, tuple(names[row.id]), by_label))
    return tuple(sorted(found, key=lambda one: (not one.is_live, one.name, -one.version)))


def _label_columns(label: str, component: Any, task: str | None, classes: int) -> set[str]:
    return {
        name
        for _, one in target_of(label, component, task, classes).each
        for name in ([one.label] if one.component is None else [read.name for read in raw_columns(one.component)])
    }


def _tasks(connection: Connection, table: str, fingerprints: list[str]) -> dict[str, int]:
    """The tasks over a table with memos of these components, by state."""
    memos, tasks = schema.memos.c, schema.tasks.c
    found: defaultdict[str, set[int]] = defaultdict(set)
    for chunk in chunks(fingerprints):
        query = (
            select(tasks.id, tasks.state).join(schema.memos, memos.task == tasks.id).where(tasks.table_name == table)
        )
        for number, state in connection.execute(query.where(one_of(connection, memos.fingerprint, chunk)).distinct()):
            found[state].add(number)
    return {state: len(numbers) for state, numbers in found.items()}


def _count(connection: Connection, of: Column[Any], fingerprints: list[str]) -> int:
    return sum(
        int(connection.execute(select(func.count()).where(one_of(connection, of, chunk))).scalar_one())
        for chunk in chunks(fingerprints)
    )


def _files(
    connection: Connection, home: HomeFiles, table: str, column: str, fingerprints: list[str]
) -> Iterator[HoldingFile]:
    files, overlays, changes = schema.files.c, schema.overlays.c, schema.changes.c
    for path, size_bytes in connection.execute(select(files.path, files.size_bytes).where(files.table_name == table)):
        yield HoldingFile("files of the table", path, size_bytes)
    made = select(overlays.path, overlays.size_bytes).join(schema.changes, changes.id == overlays.change)
    for path, size_bytes in connection.execute(made.where(changes.table_name == table, overlays.column_name == column)):
        yield HoldingFile("overlays", path, size_bytes)
    yield from _memo_files(connection, table, fingerprints)
    yield from _analysis_files(connection, home, table, column)
    for file in home.own["batch files"]:
        yield HoldingFile("batch files", file.path, file.size_bytes)
    for file in home.own["rows by key"]:
        yield HoldingFile("rows by key", file.path, file.size_bytes)


def _memo_files(connection: Connection, table: str, fingerprints: list[str]) -> Iterator[HoldingFile]:
    """Files with memos of these components over the table: ready ones, evicted ones that can be restored, and those that gc deletes."""
    files, members = schema.memo_files.c, schema.set_members.c
    fragments = select(schema.fragments.c.fragment_id).where(schema.fragments.c.table_name == table)
    of_table = files.path.startswith(f"{MEMOS}/{table}/", autoescape=True)
    sets: set[int] = set()
    for chunk in chunks(fingerprints):
        holding = select(members.column_set).where(one_of(connection, members.fingerprint, chunk))
        sets.update(connection.execute(holding).scalars())
    found: dict[str, HoldingFile] = {}
    for of in (schema.coverage, schema.evicted_coverage):
        query = select(files.path, files.size_bytes, files.condemned_at).join(of, of.c.file == files.id)
        query = query.where(
            or_(of_table, of.c.content.in_(fragments))
        ).distinct()  # equal data of another table has the same memos
        for some in chunks(sorted(sets)):
            for path, size_bytes, condemned_at in connection.execute(
                query.where(one_of(connection, of.c.column_set, some))
            ):
                found[path] = HoldingFile("memos" if condemned_at is None else "unreferenced memos", path, size_bytes)
    gone = select(files.path, files.size_bytes).where(files.condemned_at.is_not(None), of_table)
    for path, size_bytes in connection.execute(gone):
        found[path] = HoldingFile("unreferenced memos", path, size_bytes)
    yield from found.values()


def _analysis_files(connection: Connection, home: HomeFiles, table: str, column: str) -> Iterator[HoldingFile]:
    """The results of full passes over expressions that read the column, and what partitions contributed to them."""
    of = schema.analyses.c
    artifacts: set[str] = set()
    contributions: set[str] = set()
    for row in connection.execute(select(of.expression, of.artifact, of.partitions).where(of.table_name == table)):
        if _reads(row.expression, column):
            artifacts.add(artifact_path(row.artifact))
            contributions.update(contribution for _, contribution in row.partitions)
    for file in home.own["artifacts"]:
        if file.path in artifacts:
            yield HoldingFile("artifacts", file.path, file.size_bytes)
    for file in home.own["contributions"]:
        if file.path.rpartition("/")[2].partition(".")[0] in contributions:
            yield HoldingFile("contributions", file.path, file.size_bytes)


def _reads(expression: str, column: str) -> bool:
    """Whether a printed expression reads a column; True if it is too long to be read again."""
    try:
        return column in Pattern.parse(expression).columns
    except InputError:
        return True


def sizes_by_kind(files: Iterable[HoldingFile]) -> dict[HoldingKind, tuple[int, int]]:
    """Numbers of files and of bytes by kind."""
    found: defaultdict[HoldingKind, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in files:
        count, size_bytes = found[one.kind]
        found[one.kind] = count + 1, size_bytes + one.size_bytes
    return dict(sorted(found.items()))
