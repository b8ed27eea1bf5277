"""Small random catalogs, and naive searches and evictions over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from sqlalchemy import Connection, insert, update

import transforms.expressions.expression as hr
from transforms.comparison.pattern import find
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Node, operator_versions, raw_columns
from transforms.graphs.subgraphs import subgraphs
from warehouse import ComponentQuery, Warehouse
from warehouse.catalog import schema
from warehouse.files.column_files import NewFile
from warehouse.memos.coverage import add_coverage, count_live_bytes, enter_files
from warehouse.models.new_components import write_components
from warehouse.scheduling.task_states import MemoState

DAY = 86_400.0
HOURS = 4
TABLES = ("ads", "log")
STATES = (*MemoState, MemoState.READY, MemoState.READY, MemoState.READY)


def _components() -> tuple[Node, ...]:
    query, title = hr.text("query").lower(), hr.text("title")
    price = hr.float32("price").fill_null(0.0)
    made = (
        query.unigrams(),
        query.unigrams().hash_buckets(10),
        (query.unigrams() & title.unigrams()).hash_buckets(10),
        title.unigrams().hash_buckets(10),
        title.length(),
        price,
        price.log1p(),
    )
    return tuple(canonicalize(expression.node) for expression in made)


COMPONENTS = _components()
FINGERPRINTS = tuple(component.identity for component in COMPONENTS)


@dataclass(frozen=True)
class SomeModel:
    name: str
    version: int
    live: bool
    client: str
    table: str
    inputs: frozenset[int]  # positions in COMPONENTS
    submitted: tuple[float, ...]
    reads: tuple[tuple[float | None, float | None, float], ...]  # start, end, when; of its table


@dataclass(frozen=True)
class SomeMemo:
    component: int
    table: str
    hour: int
    state: MemoState
    file: int
    size_bytes: int
    secs: float
    created_at: float
    changed_at: float

    @property
    def key(self) -> str:
        return f"{self.component}-{self.table}-{self.hour}"


@dataclass(frozen=True)
class SmallCatalog:
    known: tuple[int, ...]
    created: tuple[float, ...]
    models: tuple[SomeModel, ...]
    memos: tuple[SomeMemo, ...]
    pins: tuple[tuple[str, frozenset[int], float], ...] = field(default=())

    def readers(self, component: int) -> list[SomeModel]:
        direct = [model for model in self.models if component in model.inputs]
        return direct or self.having(component)

    def having(self, component: int) -> list[SomeModel]:
        return [model for model in self.models if any(component in _inside(asked) for asked in model.inputs)]

    def ready(self, component: int) -> list[SomeMemo]:
        return [memo for memo in self.memos if memo.component == component and memo.state is MemoState.READY]

    def size_bytes(self, component: int) -> int:
        return sum(memo.size_bytes for memo in self.ready(component))

    def secs(self, component: int) -> float:
        return sum(memo.secs for memo in self.ready(component))

    def hits(self, component: int) -> int:
        return sum(len(model.submitted) + len(model.reads) for model in self.readers(component))

    def saved_secs(self, component: int) -> float:
        return self.secs(component) * max(sum(model.live for model in self.readers(component)) - 1, 0)

    def finds(self, query: ComponentQuery, component: int) -> bool:
        """Whether a component fulfils a query, word by word as :class:`ComponentQuery` says."""
        node = COMPONENTS[component]
        names = {"model": "name", "client": "client", "table": "table"}
        wanted = {theirs: getattr(query, ours) for ours, theirs in names.items() if getattr(query, ours) is not None}
        operators = operator_versions(node)
        checks: list[tuple[object, Callable[[], bool]]] = [
            (query.column, lambda: query.column in {column.name for column in raw_columns(node)}),
            (query.operator, lambda: query.operator in operators),
            (query.operator_version, lambda: operators[query.operator or ""] == query.operator_version),
            (query.subgraph, lambda: any(part.identity.startswith(query.subgraph or "") for part in subgraphs(node))),
            (query.pattern, lambda: query.pattern is not None and bool(find(query.pattern, node))),
            (query.fingerprint, lambda: node.identity.startswith(query.fingerprint or "")),
            (wanted or None, lambda: any(all(getattr(model, name) == value for name, value in wanted.items())
                                         for model in self.readers(component))),
            (query.created_before, lambda: self.created[component] < (query.created_before or 0)),
            (query.created_after, lambda: self.created[component] >= (query.created_after or 0)),
            (query.min_size_bytes, lambda: self.size_bytes(component) >= (query.min_size_bytes or 0)),
            (query.max_size_bytes, lambda: self.size_bytes(component) <= (query.max_size_bytes or 0)),
            (query.min_hits, lambda: self.hits(component) >= (query.min_hits or 0)),
            (query.min_saved_secs, lambda: self.saved_secs(component) >= (query.min_saved_secs or 0)),
            (query.state, lambda: any(memo.state is query.state for memo in self.memos if memo.component == component)),
        ]  # fmt: skip
        return all(holds() for given, holds in checks if given is not None)


def _inside(component: int) -> set[int]:
    parts = {part.identity for part in subgraphs(COMPONENTS[component])}
    return {position for position, fingerprint in enumerate(FINGERPRINTS) if fingerprint in parts}


_moments = st.integers(0, 40).map(lambda quarter: quarter * DAY / 4)

_hours = st.none() | st.integers(0, HOURS).map(lambda hour: hour * 3600.0)


@st.composite
def small_catalogs(draw: st.DrawFn) -> SmallCatalog:
    """A few models over two tables, memos of the components that they have, pins on some."""
    positions = st.integers(0, len(COMPONENTS) - 1)
    models = []
    for name in draw(st.lists(st.sampled_from(("a", "b", "c")), unique=True, min_size=1)):
        versions = draw(st.integers(1, 2))
        client, table = draw(st.sampled_from(("east", "west"))), draw(st.sampled_from(TABLES))
        for version in range(1, versions + 1):
            inputs = draw(st.frozensets(positions, min_size=1, max_size=4))
            submitted = draw(st.lists(_moments, min_size=1, max_size=3))
            reads = draw(st.lists(st.tuples(_hours, _hours, _moments), max_size=2))
            models.append(SomeModel(name, version, version == versions, client, table, inputs, tuple(submitted),
                                    tuple(reads)))  # fmt: skip
    asked = {position for model in models for given in model.inputs for position in _inside(given)}
    places = st.tuples(st.sampled_from(sorted(asked)), st.sampled_from(TABLES), st.integers(0, HOURS - 1))
    memos = [
        SomeMemo(component, table, hour, draw(st.sampled_from(STATES)), draw(st.integers(0, 1)),
                 draw(st.integers(1, 50)), draw(st.integers(0, 8)) / 4, draw(_moments), draw(_moments))
        for component, table, hour in draw(st.lists(places, unique=True, max_size=12))
    ]  # fmt: skip
    # Interior operations are components only where a policy kept one, which left a memo.
    known = {given for model in models for given in model.inputs} | {memo.component for memo in memos}
    created = tuple(draw(_moments) for _ in COMPONENTS)
    pins = draw(st.lists(st.tuples(st.sampled_from(("job 1", "job 2")), st.frozensets(positions, max_size=2),
                                   st.sampled_from((-1.0, 1.0))), max_size=2))  # fmt: skip
    return SmallCatalog(tuple(sorted(known)), created, tuple(models), tuple(memos), tuple(pins))


def partition(hour: int) -> str:
    return f"date=1970-01-01/hour={hour:02d}"


def file_of(memo: SomeMemo) -> str:
    return f"memos/{memo.table}-{memo.hour}-{memo.file}"


def write_catalog(warehouse: Warehouse, small: SmallCatalog, now: float) -> None:
    """Empty the catalog and write this one."""
    with warehouse.catalog.write() as connection:
        for table in reversed(schema.metadata.sorted_tables):
            connection.execute(table.delete())
        columns = [[name, "string"] for name in ("query", "title", "price", "unread")]
        row = {"root": "/x", "columns": columns, "version": 1, "registered_at": 0.0}
        connection.execute(insert(schema.tables), [{"name": name, **row} for name in TABLES])
        fragments = _write_fragments(connection)
        clients = sorted({model.client for model in small.models})
        connection.execute(insert(schema.clients), [{"name": c, "served": 0, "leased_tasks": 0} for c in clients])
        write_components(connection, {FINGERPRINTS[at]: COMPONENTS[at] for at in small.known}, 0.0)
        for at in small.known:
            named = schema.components.c.fingerprint == FINGERPRINTS[at]
            connection.execute(update(schema.components).where(named).values(created_at=small.created[at]))
        _write_models(connection, small)
        _write_memos(connection, small, fragments)
        for number, (holder, pinned, expires_in) in enumerate(small.pins):
            connection.execute(insert(schema.pins).values(id=str(number), holder=holder, model=1, table_name="log",
                                                          created_at=0.0, expires_at=now + expires_in))  # fmt: skip
            for at in pinned:
                connection.execute(insert(schema.pin_components).values(pin=str(number), fingerprint=FINGERPRINTS[at]))


def _write_fragments(connection: Connection) -> dict[tuple[str, int], int]:

    found: dict[tuple[str, int], int] = {}
    for table in TABLES:
        for hour in range(HOURS):
            made = insert(schema.fragments).values(fragment_id=f"{table}{hour}", table_name=table, path=f"{hour}",
                                                   partition=partition(hour),
                                                   row_groups=[0], rows=10, size_bytes=1, digests={})  # fmt: skip
            row = found[table, hour] = connection.execute(made.returning(schema.fragments.c.id)).scalar_one()
            manifest = insert(schema.manifests).values(
                table_name=table, partition=partition(hour), version=1, table_version=1, start_at=hour * 3600.0,
                end_at=hour * 3600.0 + 3600, current=True)  # fmt: skip
            number = connection.execute(manifest.returning(schema.manifests.c.id)).scalar_one()
            connection.execute(insert(schema.manifest_fragments).values(manifest=number, position=0, fragment=row))
    return found


def _write_models(connection: Connection, small: SmallCatalog) -> None:

    for number, model in enumerate(small.models, 1):
        connection.execute(insert(schema.models).values(
            id=number, name=model.name, version=model.version, client=model.client, priority=0, label="l",
            table_name=model.table, table_version=1, digest="d", live=model.live, submitted_at=0.0))  # fmt: skip
        # One input twice: what counts models must not count inputs.
        for position, at in enumerate((*sorted(model.inputs), min(model.inputs))):
            connection.execute(insert(schema.model_inputs).values(model=number, position=position, name=f"i{position}",
                                                                  fingerprint=FINGERPRINTS[at]))  # fmt: skip
        for start, end, at in model.reads:
            connection.execute(insert(schema.reads).values(model=number, table_name=model.table, start_at=start,
                                                           end_at=end, rows=1, read_at=at))  # fmt: skip
        for at in model.submitted:
            connection.execute(insert(schema.submissions).values(
                model=number, submitted_at=at, unchanged=False, hits=0, shared=0, queued=0, failed=0))  # fmt: skip


_TASKS = {
    MemoState.PENDING: {"state": "QUEUED"},
    MemoState.FAILED: {"state": "FAILED", "error": "no"},
    MemoState.DROPPED: {"state": "DROPPED"},
}
_LEASED = {"state": "LEASED", "worker": "w", "lease": "f" * 32, "lease_until": 1.0}


def _write_memos(connection: Connection, small: SmallCatalog, fragments: dict[tuple[str, int], int]) -> None:

    ready = [memo for memo in small.memos if memo.state is MemoState.READY]
    files = enter_files(connection, {NewFile(file_of(memo), "0" * 64, 10, 1000) for memo in ready}, 0.0)
    for memo in small.memos:
        stored, evicted = memo.state is MemoState.READY, memo.state is MemoState.EVICTED
        running = memo.state is MemoState.RUNNING
        task = None
        if memo.state not in (MemoState.READY, MemoState.EVICTED):
            made = insert(schema.tasks).values(
                fragment=fragments[memo.table, memo.hour], table_name=memo.table, partition=partition(memo.hour), fence=1,
                attempts=1, not_before=0.0, created_at=0.0, changed_at=0.0, **(_LEASED if running else _TASKS[memo.state]))  # fmt: skip
            task = connection.execute(made.returning(schema.tasks.c.id)).scalar_one()
        connection.execute(insert(schema.memos).values(
            task=task, memo_key=memo.key, fingerprint=FINGERPRINTS[memo.component], fragment=fragments[memo.table, memo.hour],
            state=MemoState.PENDING if running else memo.state, file=files[file_of(memo)] if stored else None, rows=10, size_bytes=memo.size_bytes,
            secs=memo.secs, created_at=memo.created_at, changed_at=memo.changed_at, queued_by=1,
            cause_code="never_seen", cause="new", evicted_at=0.0 if evicted else None,
            evicted_why="asked for" if evicted else None))  # fmt: skip
    places: dict[tuple[int, str], set[str]] = {}
    for memo in ready:
        place = (files[file_of(memo)], f"{memo.table}{memo.hour}")
        places.setdefault(place, set()).add(FINGERPRINTS[memo.component])
    if places:
        add_coverage(connection, places)
        count_live_bytes(connection, set(files.values()), 0.0)
