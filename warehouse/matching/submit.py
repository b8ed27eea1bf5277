"""Submit a model: check it against its table, match it, queue missing memos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from sqlalchemy import Connection, delete, insert, select, update

from transforms.analysis.full_pass import is_full_pass, is_resolved
from transforms.analysis.target import Target
from transforms.columns.columns import conforms
from transforms.errors import InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Node, RawColumn, component_document, raw_columns
from transforms.types import Dense, DType
from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows
from warehouse.catalog.catalog import insert_absent
from warehouse.config import WarehouseConfig
from warehouse.errors import NameTaken
from warehouse.matching.enqueue import queue_matches, replace_waits, write_submission
from warehouse.matching.model_match import Counts, count_pairs, match_model
from warehouse.matching.plan_context import PlanContext
from warehouse.memos.coverage import find_coverage
from warehouse.models.analyses import resolve_model
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import (
    ModelRecord,
    StoredInput,
    all_models,
    find_model,
    get_model,
    stored_inputs,
    write_components,
)
from warehouse.models.pinned_analyses import UsedAnalysis, pin_analyses
from warehouse.planning.policy import policy_named
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.manifests import current_fragments, get_table
from warehouse.tables.readable_types import declared_types, unreadable_column
from warehouse.tables.table import ColumnSchema, Table
from warehouse.warehouse import Warehouse

#: Pairs of an input and a fragment that are matched at a time.
_BLOCK_PAIRS = 200_000
_LABEL_TYPES = tuple(Dense(dtype) for dtype in (DType.BOOL, DType.INT64, DType.FLOAT64))


@dataclass(frozen=True)
class Submission:
    """The answer to a submission. Counts are of (input, fragment) pairs; raw inputs are not counted.

    Attributes:
        model: The model's name.
        version: Its version.
        table: Its table.
        policy: Its admission policy.
        unchanged: The model equals its newest version, and no new version was made.
        hits: The memo is ready.
        shared: The memo is queued or being computed already.
        queued: The memo was queued by this submission.
        failed: The task is quarantined.
        computed: The policy keeps no memo: the input is computed at every read.
        dropped: The task was dropped.
        changes: Changed settings, such as ``policy: all -> adaptive``.
        analyses: The analyses that the model is resolved with, and whether the data of their ranges changed.
    """

    model: str
    version: int
    table: str
    policy: str
    unchanged: bool
    hits: int
    shared: int
    queued: int
    failed: int
    computed: int
    dropped: int = 0
    changes: tuple[str, ...] = ()
    analyses: tuple[UsedAnalysis, ...] = ()

    @property
    def misses(self) -> int:
        """Pairs whose memo is not ready."""
        return self.shared + self.queued + self.failed + self.computed + self.dropped


def submit_model(
    warehouse: Warehouse, model: Model, *, table: str | None = None, policy: str | None = None
) -> Submission:
    """Submit ``model`` over ``table`` (default: the table it names), in one transaction.

    ``policy`` is the name of an admission policy (:mod:`warehouse.planning.policy`); default: that of the newest version, else
    "all". Submitting an unchanged model makes no new version; memos that are missing because of new data or eviction are
    queued. Full-pass operators keep their analyses until they are analyzed again. Raises :class:`UnknownColumn` with the
    nearest names, :class:`TypeMismatch` for a column whose stored type does not conform to the declared one,
    :class:`~warehouse.errors.NotAnalyzed` for full-pass operators without an analysis, :class:`~warehouse.errors.UnknownTable`
    and :class:`NameTaken`.
    """
    name = table or model.table
    if not name:
        raise InputError("a model must name a table", where=f"model {model.name}",
                         next_step="Model(..., table=NAME), or submit it with --table NAME")  # fmt: skip
    if not model.inputs:
        raise InputError("a model must have at least one input", where=f"model {model.name}",
                         next_step='model.input("name", expression)')  # fmt: skip
    if policy is not None:
        policy_named(policy)
    now = warehouse.clock()
    graph = _graph(model)
    used: tuple[UsedAnalysis, ...] = ()
    if any(is_full_pass(node) for node in graph.nodes):
        model, used = resolve_with_analyses(warehouse, model, name)
        graph = _graph(model)

    def submit(connection: Connection) -> Submission:
        known = get_table(connection, name)
        check_model(model, known, graph)
        before = find_model(connection, model.name)
        record, unchanged = _write_model(connection, before, model, known, policy, now)
        pin_analyses(connection, model.name, record.version, used)
        inputs = [StoredInput(item.name, item.fingerprint, item.component) for item in model.inputs.values()]
        counts = _match(connection, warehouse.config, record, inputs, graph, unchanged=unchanged, now=now)
        changes = settings_changed(before, record)
        return Submission(
            model.name, record.version, known.name, record.policy, unchanged, **asdict(counts), changes=changes,
            analyses=used,
        )  # fmt: skip

    return warehouse.catalog.run(submit, idempotent=True)


def _match(
    connection: Connection,
    config: WarehouseConfig,
    record: ModelRecord,
    inputs: Sequence[StoredInput],
    graph: MergedGraph,
    *,
    unchanged: bool,
    now: float,
    requeue_evicted: bool = True,
) -> Counts:
    """Match the model by blocks of fragments, which bounds memory, and queue missing memos."""
    fragments = current_fragments(connection, record.table)
    context = PlanContext(connection, config, get_table(connection, record.table), fragments, now)
    coverage = find_coverage(connection, graph.columns(graph.operations), fragments)
    keeps = context.keeps(record)(graph)
    counts, awaited = Counts(), set[str]()
    for first, last in blocks(len(fragments), len(inputs)):
        found = match_model(
            connection,
            inputs,
            fragments[first:last],
            lambda _: keeps,
            graph=graph,
            coverage=coverage.part(first, last),
            requeue_evicted=requeue_evicted,
        )
        awaited |= queue_matches(connection, record, found, now)
        counts += count_pairs(found)
    replace_waits(connection, record.id, awaited)
    write_submission(connection, record, counts, unchanged=unchanged, now=now)
    return counts


def blocks(fragments: int, inputs: int) -> Iterator[tuple[int, int]]:
    """Ranges of fragments with a bounded number of (input, fragment) pairs."""
    size = max(1, _BLOCK_PAIRS // max(inputs, 1))
    for first in range(0, fragments, size):
        yield first, min(first + size, fragments)


def resolve_checked(warehouse: Warehouse, model: Model, table: str) -> Model:
    """``model`` without full-pass operators: see :func:`resolve_with_analyses`."""
    return resolve_with_analyses(warehouse, model, table)[0]


def resolve_with_analyses(warehouse: Warehouse, model: Model, table: str) -> tuple[Model, tuple[UsedAnalysis, ...]]:
    """``model`` without full-pass operators, and the analyses that replace them.

    The original model is checked first. Raises what :func:`check_model` and
    :func:`~warehouse.models.analyses.resolve_model` raise.
    """
    if is_resolved(item.component for item in model.inputs.values()):
        return model, ()
    with warehouse.catalog.read() as connection:
        check_model(model, get_table(connection, table))
    return resolve_model(warehouse, model, table)


def queue_missing(warehouse: Warehouse, model: str | None = None) -> int:
    """Queue the memos that live models (or one of them) need for new data; returns how many.

    A model with an unchanged table costs one query. Evicted memos stay evicted until the model is submitted.
    """
    queued = 0
    with warehouse.catalog.read() as connection:
        outdated = _outdated(connection, model)
    for name in outdated:
        action = partial(_queue_missing, config=warehouse.config, name=name, now=warehouse.clock())
        queued += warehouse.catalog.run(action, idempotent=True)
    return queued


def _outdated(connection: Connection, model: str | None) -> list[str]:
    chosen = [get_model(connection, model)] if model is not None else all_models(connection, live=True)
    versions = {
        row.name: row.version for row in connection.execute(select(schema.tables.c.name, schema.tables.c.version))
    }
    return [record.name for record in chosen if record.table_version != versions[record.table]]


def _queue_missing(connection: Connection, config: WarehouseConfig, name: str, now: float) -> int:
    record = get_model(connection, name)
    record = replace(record, table_version=get_table(connection, record.table).version)
    inputs = stored_inputs(connection, record.id)
    graph = MergedGraph(tuple(item.component for item in inputs))
    return _match(connection, config, record, inputs, graph, unchanged=True, now=now, requeue_evicted=False).queued


def check_model(model: Model, table: Table, graph: MergedGraph | None = None) -> None:
    """Raise unless ``table`` has every column that the model reads, with a type that conforms to the declared one.

    ``graph`` of the model's inputs is built unless the caller has it.
    """
    _check_target(model.target, table, f"model {model.name}, label")
    graph = graph or _graph(model)
    columns = [node for node in graph.nodes if isinstance(node, RawColumn)]
    if all(_is_stored(table, column) for column in columns) and all(
        graph.columns_of[root.identity] for root in graph.roots
    ):
        return  # every column was checked once
    for item in model.inputs.values():
        check_component(item.component, table, f"model {model.name}, input {item.name}")


def _check_target(target: Target, table: Table, where: str) -> None:
    if target.component is not None:
        check_component(target.component, table, where)
        return
    label = parse_arrow_type(_column(table, target.label, where))
    if label is None or not any(conforms(label, kind) for kind in _LABEL_TYPES):
        raise TypeMismatch("a label must be a boolean or a number", where=where, value=str(label), allowed="bool, int, float",
                           next_step='or an expression, such as label=hr.text("verdict") == "bought"')  # fmt: skip


def _graph(model: Model) -> MergedGraph:
    return MergedGraph(tuple(item.component for item in model.inputs.values()))


def _is_stored(table: Table, column: RawColumn) -> bool:
    """Whether the table has the column, with a type that conforms to the declared one."""
    stored = next((known.arrow_type for known in table.columns if known.name == column.name), None)
    found = None if stored is None else parse_arrow_type(stored)
    return found is not None and conforms(found, column.type)


def check_component(component: Node, table: Table, where: str) -> None:
    """Raise :class:`UnknownColumn` or :class:`TypeMismatch` unless ``table`` has the component's columns."""
    columns = raw_columns(component)
    if not columns:
        raise InputError("an input must read a column", where=where,
                         next_step="remove it: it is the same for every event")  # fmt: skip
    for column in columns:
        stored = _column(table, column.name, where)
        found = parse_arrow_type(stored)
        if found is None or not conforms(found, column.type):
            raise _not_as_declared(table.column(column.name), column, where)


def _not_as_declared(stored: ColumnSchema, column: RawColumn, where: str) -> TypeMismatch:
    """The error of a column whose stored type does not conform to the declared one."""
    unreadable, kinds = unreadable_column(stored), declared_types(stored.arrow_type)
    what = f"column {column.name!r} is not stored as it is declared"
    step = "declare the stored type and cast it, or store the declared type"
    if unreadable is not None:
        what, step = f"column {column.name!r} cannot be read: {unreadable.why}", f"store {unreadable.cast}"
    elif kinds:
        step = f"declare it as {kinds[0]} and cast it, or store the declared type"
    return TypeMismatch(what, where=where, value=f"stored {stored.arrow_type}", allowed=f"declared {column.type}",
                        next_step=step)  # fmt: skip


def _column(table: Table, name: str, where: str) -> str:
    try:
        return table.column(name).arrow_type
    except UnknownColumn as error:
        raise UnknownColumn(error.what, where=where, value=name, allowed=error.allowed,
                            next_step=f"headrace table show {table.name} lists the columns") from None  # fmt: skip


def settings_changed(before: ModelRecord | None, now: ModelRecord) -> tuple[str, ...]:
    """The changed settings of a model, which need no new version."""
    if before is None:
        return ()
    settings = (("policy", before.policy, now.policy), ("priority", before.priority, now.priority))
    changed = [f"{name}: {old} -> {new}" for name, old, new in settings if old != new]
    return (*changed, *(() if before.live else ("retired -> live",)))


def check_client(before: ModelRecord | None, model: Model) -> None:
    """Raise :class:`NameTaken` if the model belongs to another client."""
    if before is not None and before.client != model.client:
        raise NameTaken("client must be the one that the model belongs to", where=f"model {model.name}", value=model.client,
                        allowed=before.client, next_step="choose another name")  # fmt: skip


def _write_model(
    connection: Connection, before: ModelRecord | None, model: Model, table: Table, policy: str | None, now: float
) -> tuple[ModelRecord, bool]:
    """Write the model; returns its record, and whether it equals ``before``, the newest version."""
    check_client(before, model)
    identity = model_digest(model, table.name)
    models = schema.models
    if before is not None and before.digest == identity:
        chosen = policy or before.policy
        connection.execute(
            update(models).where(models.c.id == before.id).values(priority=model.priority, policy=chosen, live=True)
        )
        return replace(before, priority=model.priority, policy=chosen, live=True, table_version=table.version), True
    write_components(connection, {item.fingerprint: item.component for item in model.inputs.values()}, now)
    insert_absent(connection, schema.clients, [{"name": model.client, "served": 0, "leased_tasks": 0}])
    if before is not None:
        connection.execute(update(models).where(models.c.name == model.name).values(live=False))
        connection.execute(delete(schema.waits).where(schema.waits.c.model == before.id))
    target = model.target
    connection.execute(insert(models).values(
        name=model.name, version=before.version + 1 if before else 1, client=model.client, priority=model.priority,
        label=model.label, table_name=table.name, table_version=table.version, digest=identity, live=True,
        submitted_at=now, policy=policy or (before.policy if before else "all"),
        label_component=None if target.component is None else component_document(target.component),
        task=target.task, classes=target.classes))  # fmt: skip
    record = get_model(connection, model.name)
    insert_rows(connection, schema.model_inputs, [
        {"model": record.id, "position": position, "name": item.name, "fingerprint": item.fingerprint}
        for position, item in enumerate(model.inputs.values())
    ])  # fmt: skip
    return record, False


def model_digest(model: Model, table: str) -> str:
    """The identity of a model version: table, label, and the inputs in order; not its priority or policy."""
    inputs = [[item.name, item.fingerprint] for item in model.inputs.values()]
    return digest({"table": table, "label": model.target.identity, "inputs": inputs})
