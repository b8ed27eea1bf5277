"""Retire a model: nothing is computed for it any more; its memos are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, Integer, and_, cast, delete, exists, func, select, update

from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, is_current, waits_for
from warehouse.models.models import ModelRecord, get_model
from warehouse.scheduling.task_states import MemoState, TaskState
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Retirement:
    """The effect of retiring a model, planned or ``done``.

    Attributes:
        model: its name.
        version: its newest version.
        client: its client.
        table: its table.
        live: whether it was live; otherwise there is nothing to do.
        done: whether it was retired.
        queued_tasks: queued tasks for this model alone, which are not leased any more.
        shared_tasks: queued tasks for which other models also wait.
        memos: ready memos of its inputs, which are kept.
        bytes: their bytes.
        own_memos: those that are inputs of no other live model.
        own_bytes: their bytes.
    """

    model: str
    version: int
    client: str
    table: str
    live: bool
    done: bool
    queued_tasks: int
    shared_tasks: int
    memos: int
    bytes: int
    own_memos: int
    own_bytes: int


def retire_model(warehouse: Warehouse, name: str, *, dry_run: bool = False) -> Retirement:
    """Make no version of the model live and remove its waits.

    Its memos are kept until they are evicted; tasks for this model alone are not leased. Submitting the model again makes it live.
    Raises :class:`~warehouse.errors.UnknownModel`.
    """
    if dry_run:
        with warehouse.catalog.read() as connection:
            return _plan(connection, name)

    def retire(connection: Connection) -> Retirement:
        planned = _plan(connection, name)
        of = schema.models.c
        live = connection.execute(select(of.id).where(of.name == name, of.live.is_(True))).scalars().all()
        connection.execute(update(schema.models).where(of.id.in_(live)).values(live=False))
        connection.execute(delete(schema.waits).where(schema.waits.c.model.in_(live)))
        return replace(planned, done=True)

    return warehouse.catalog.run(retire, idempotent=True)


def _plan(connection: Connection, name: str) -> Retirement:
    record = get_model(connection, name)
    alone, shared = _queued(connection, record)
    memos, size_bytes, own_memos, own_bytes = _memos(connection, record)
    return Retirement(record.name, record.version, record.client, record.table, record.live, False,
                      alone, shared, memos, size_bytes, own_memos, own_bytes)  # fmt: skip


def _queued(connection: Connection, record: ModelRecord) -> tuple[int, int]:
    """Queued tasks for this model: alone, and shared with others."""
    tasks, waits, others = schema.tasks.c, schema.waits.c, schema.waits.alias().c
    same = (others.fingerprint == waits.fingerprint, others.table_name == waits.table_name)
    shared = exists().where(*same, others.model != record.id)
    memos = schema.memos.c
    pending = and_(memos.fingerprint == waits.fingerprint, memos.state == MemoState.PENDING)
    joined = schema.waits.join(schema.memos, pending)
    joined = joined.join(schema.tasks, and_(computes(), waits_for()))
    query = (
        select(func.count(), _sum(cast(shared, Integer)))
        .select_from(joined)
        .where(waits.model == record.id, tasks.state == TaskState.QUEUED, is_current())
    )
    queued, with_others = connection.execute(query).one()
    return queued - int(with_others), int(with_others)


def _memos(connection: Connection, record: ModelRecord) -> tuple[int, int, int, int]:
    """Ready memos of the model's inputs and their bytes: all, then those of no other live model."""
    memos, inputs = schema.memos.c, schema.model_inputs.c
    mine = select(inputs.fingerprint).where(inputs.model == record.id)
    of, models = schema.model_inputs.alias().c, schema.models.c
    elsewhere = (
        select(of.fingerprint)
        .join(schema.models, models.id == of.model)
        .where(models.live.is_(True), models.id != record.id)
    )
    ready = (memos.state == MemoState.READY, memos.fingerprint.in_(mine))
    counts: list[int] = []
    own: tuple[ColumnElement[bool], ...] = (~memos.fingerprint.in_(elsewhere),)
    for where in (ready, ready + own):
        row = connection.execute(select(func.count(), _sum(memos.size_bytes)).where(*where)).one()
        counts += [int(row[0]), int(row[1])]
    return counts[0], counts[1], counts[2], counts[3]


def _sum(values: ColumnElement[int]) -> ColumnElement[int]:
    return func.coalesce(func.sum(values), 0)
