"""Submit a model: check it against its table, match it, queue missing memos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from sqlalchemy import Connection, delete, select, update

from transforms.expressions.model import Model
from warehouse.catalog import schema
from warehouse.catalog.bulk import insert_rows
from warehouse.catalog.catalog import chunks, insert_absent, one_of
from warehouse.catalog.fragment_rows import unit_rows
from warehouse.config import WarehouseConfig
from warehouse.matching.checked_model import CheckedModel, check_client, check_models
from warehouse.matching.enqueue import Wait, queue_matches, replace_waits, write_submission
from warehouse.matching.join_checks import check_joins
from warehouse.matching.match import Requeue
from warehouse.matching.model_match import Counts, count_pairs, match_model
from warehouse.matching.paused_collection import collection_paused
from warehouse.matching.plan_context import PlanContext
from warehouse.memos.coverage import find_coverage
from warehouse.memos.memos import delete_memos
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import (
    ModelRecord,
    StoredInput,
    all_models,
    find_model,
    get_model,
    insert_model,
    stored_inputs,
    write_expectations,
)
from warehouse.models.new_components import write_components
from warehouse.models.new_joined_columns import write_joined_columns
from warehouse.models.pinned_analyses import UsedAnalysis, pin_analyses
from warehouse.planning.policy_names import PolicyName
from warehouse.scheduling.task_states import TaskState
from warehouse.tables.manifests import current_units, get_table
from warehouse.tables.table import Table
from warehouse.warehouse import Warehouse

#: Pairs of an input and a fragment that are matched at a time.
_BLOCK_PAIRS = 200_000


@dataclass(frozen=True)
class Submission:
    """The answer to a submission. The counts are numbers of (input, fragment) pairs; raw inputs are not counted.

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
        unjoined: A joined column that the input reads has no values there yet.
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
    unjoined: int = 0
    changes: tuple[str, ...] = ()
    analyses: tuple[UsedAnalysis, ...] = ()

    @property
    def misses(self) -> int:
        """Pairs whose memo is not ready."""
        return self.shared + self.queued + self.failed + self.computed + self.dropped + self.unjoined


def submit_model(
    warehouse: Warehouse, model: Model, *, table: str | None = None, policy: str | None = None
) -> Submission:
    """Submit ``model`` over ``table`` (default: the table it names), in one transaction.

    ``policy`` is the name of an admission policy (:mod:`warehouse.planning.policy`); default: that of the newest version, else
    "all". Submitting an unchanged model makes no new version; memos that are missing because of new data or eviction are
    queued. Full-pass operators keep their analyses until they are analyzed again. Raises :class:`UnknownColumn` with the
    nearest names, :class:`TypeMismatch` for a column whose stored type does not conform to the declared one,
    :class:`~warehouse.errors.NotAnalyzed` for full-pass operators without an analysis, :class:`~warehouse.errors.UnknownTable`
    and :class:`~warehouse.errors.NameTaken`.
    """
    (checked,) = check_models(warehouse, [model], table=table, policy=policy)
    return submit_checked(warehouse, checked)


def submit_checked(warehouse: Warehouse, checked: CheckedModel) -> Submission:
    """Submit a checked model, as :func:`submit_model` does.

    Its columns are checked again only if the table's columns have changed.
    """
    checked.require_analyses()
    now = warehouse.clock()

    def submit(connection: Connection) -> Submission:
        known = get_table(connection, checked.table.name)
        if known.columns != checked.table.columns:
            checked.check_columns(known)
        check_joins(connection, checked.model.name, known, checked.model.joins)
        before = find_model(connection, checked.model.name)
        record, unchanged = _write_model(connection, before, checked, known, now)
        pin_analyses(connection, record.name, record.version, checked.analyses)
        counts = _match(
            connection, warehouse.config, record, known, checked.inputs, checked.graph, unchanged=unchanged, now=now
        )
        return Submission(
            record.name, record.version, known.name, record.policy, unchanged, **asdict(counts),
            changes=settings_changed(before, record), analyses=checked.analyses,
        )  # fmt: skip

    return warehouse.catalog.run(submit, idempotent=True)


def _match(
    connection: Connection,
    config: WarehouseConfig,
    record: ModelRecord,
    table: Table,
    inputs: Sequence[StoredInput],
    graph: MergedGraph,
    *,
    unchanged: bool,
    now: float,
    requeue: Requeue = Requeue.ALL,
) -> Counts:
    """Match the model by blocks of fragments, which bounds memory, and queue missing memos."""
    fragments = current_units(connection, table.name)
    context = PlanContext(connection, config, table, fragments, now)
    coverage = find_coverage(connection, graph.columns(graph.operations), fragments)
    decision = context.keep_decision(record, graph, is_requested=requeue is Requeue.ALL)
    counts, awaited = Counts(), set[Wait]()
    with collection_paused():
        for first, last in blocks(len(fragments), len(inputs)):
            found = match_model(
                connection,
                inputs,
                fragments[first:last],
                decision,
                coverage=coverage.part(first, last),
                requeue=requeue,
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


def queue_missing(warehouse: Warehouse, model: str | None = None) -> int:
    """Queue the memos that live models (or one of them) need for new data; returns how many.

    A model with an unchanged table costs one query. Evicted memos stay evicted until the model is submitted. Once every live
    model is matched with the new data, queued tasks over the data that it replaced are deleted.
    """
    queued = 0
    with warehouse.catalog.read() as connection:
        outdated = _outdated(connection, model)
    for name in outdated:
        action = partial(_queue_missing, config=warehouse.config, name=name, now=warehouse.clock())
        queued += warehouse.catalog.run(action, idempotent=True)
    if outdated:
        with warehouse.catalog.read() as connection:
            replaced = connection.execute(_REPLACED_TASKS.limit(1)).first()
        if replaced is not None:
            warehouse.catalog.run(_delete_replaced, idempotent=True)
    return queued


#: The queued tasks over replaced data.
_REPLACED_TASKS = select(schema.tasks.c.id).where(
    schema.tasks.c.state == TaskState.QUEUED, *(schema.tasks.c.fragment.not_in(rows) for rows in unit_rows())
)


def _delete_replaced(connection: Connection) -> None:
    """Delete the memos of queued tasks over replaced data, unless a live model is still to be matched with new data.

    Such a model may move some of them to equal data. Otherwise they are in the way of each lease, which looks for tasks over
    current data. Leased ones stay: their memos may be committed.
    """
    if _outdated(connection, None):
        return
    of = schema.memos.c
    for chunk in chunks(connection.execute(_REPLACED_TASKS).scalars().all()):
        keys = select(of.memo_key).where(one_of(connection, of.task, chunk))
        delete_memos(connection, connection.execute(keys).scalars().all())


def _outdated(connection: Connection, model: str | None) -> list[str]:
    chosen = [get_model(connection, model)] if model is not None else all_models(connection, live=True)
    versions = {
        row.name: row.version for row in connection.execute(select(schema.tables.c.name, schema.tables.c.version))
    }
    return [record.name for record in chosen if record.table_version != versions[record.table]]


def queue_worthwhile(warehouse: Warehouse, table: str) -> int:
    """Queue the memos of a table that its live models of the adaptive policy keep by now; returns how many.

    Memos that were dropped for the price of their storage are queued again; those evicted by hand are not.
    """
    queued = 0
    with warehouse.catalog.read() as connection:
        names = [
            record.name
            for record in all_models(connection, live=True)
            if record.table == table and record.policy == PolicyName.ADAPTIVE
        ]
    for name in names:
        action = partial(
            _queue_missing, config=warehouse.config, name=name, now=warehouse.clock(), requeue=Requeue.UNPAID
        )
        queued += warehouse.catalog.run(action, idempotent=True)
    return queued


def _queue_missing(
    connection: Connection, config: WarehouseConfig, name: str, now: float, requeue: Requeue = Requeue.NONE
) -> int:
    record = get_model(connection, name)
    table = get_table(connection, record.table)
    record = replace(record, table_version=table.version)
    inputs = stored_inputs(connection, record.id)
    graph = MergedGraph(tuple(item.component for item in inputs))
    return _match(connection, config, record, table, inputs, graph, unchanged=True, now=now, requeue=requeue).queued


def settings_changed(before: ModelRecord | None, now: ModelRecord) -> tuple[str, ...]:
    """The changed settings of a model, which need no new version."""
    if before is None:
        return ()
    settings = (("policy", before.policy, now.policy), ("priority", before.priority, now.priority))
    changed = [f"{name}: {old} -> {new}" for name, old, new in settings if old != new]
    return (*changed, *(() if before.live else ("retired -> live",)))


def _write_model(
    connection: Connection, before: ModelRecord | None, checked: CheckedModel, table: Table, now: float
) -> tuple[ModelRecord, bool]:
    """The record of this submission, and whether it is the newest version unchanged, which was ``before``."""
    model, policy = checked.model, checked.policy
    check_client(before, model)
    models = schema.models
    write_joined_columns(connection, table.name, model.joins, now)
    expectations = {name: one.expect.to_document() for name, one in model.inputs.items() if one.expect is not None}
    if before is not None and before.digest == checked.digest:
        chosen = policy or before.policy
        connection.execute(
            update(models).where(models.c.id == before.id).values(priority=model.priority, policy=chosen, live=True)
        )
        write_expectations(connection, before.id, expectations)
        return replace(before, priority=model.priority, policy=chosen, live=True, table_version=table.version), True
    write_components(connection, {item.fingerprint: item.component for item in checked.inputs}, now)
    insert_absent(connection, schema.clients, [{"name": model.client, "served": 0, "leased_tasks": 0}])
    if before is not None:
        connection.execute(update(models).where(models.c.name == model.name).values(live=False))
        connection.execute(delete(schema.waits).where(schema.waits.c.model == before.id))
    target = model.target
    record = insert_model(
        connection,
        name=model.name, version=before.version + 1 if before else 1, client=model.client, priority=model.priority,
        label=model.label, table_name=table.name, table_version=table.version, digest=checked.digest, live=True,
        submitted_at=now, policy=policy or (before.policy if before else "all"),
        label_component=target.document,
        task=target.task, classes=target.classes)  # fmt: skip
    insert_rows(connection, schema.model_inputs, [
        {"model": record.id, "position": position, "name": item.name, "fingerprint": item.fingerprint,
         "expect": expectations.get(item.name)}
        for position, item in enumerate(checked.inputs)
    ])  # fmt: skip
    return record, False
