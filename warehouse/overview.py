"""The status of the warehouse: stored memos, queues, and what sharing saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from warehouse.catalog import schema
from warehouse.catalog.task_rows import computes, is_running
from warehouse.memos.memos import with_running
from warehouse.models.models import ModelRecord, all_models
from warehouse.queue.depths import QueueDepth, read_depths
from warehouse.queue.fair_queue import shares_now
from warehouse.scheduling.task_states import MemoState
from warehouse.storage.layout import BATCHES
from warehouse.tables.table_sizes import TableStatus, read_table_statuses
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Requests:
    """(Input, fragment) pairs of all submissions that made a new model version.

    Attributes:
        hits: The memo was ready.
        shared: The memo was queued or being computed already.
        queued: The memo was queued for the submission.
    """

    hits: int
    shared: int
    queued: int

    @property
    def hit_rate(self) -> float:
        """The share of pairs that needed no computation of their own; 0 without pairs."""
        total = self.hits + self.shared + self.queued
        return (self.hits + self.shared) / total if total else 0.0


@dataclass(frozen=True)
class Status:
    """The warehouse at one moment.

    Attributes:
        tables: The tables.
        models: The live models.
        memos: The number of memos by state.
        memo_bytes: Bytes of the ready memos.
        memo_secs: Computing seconds of the ready memos.
        saved_bytes: Bytes that separate copies of every live model would add.
        saved_secs: Computing seconds that they would add.
        batch_files: The number of files of batches; only a local home has any.
        batch_bytes: Their bytes.
        requests: The pairs of all submissions.
        queues: The clients' queues.
        shares: The current shares of the clients with leasable tasks.
    """

    tables: tuple[TableStatus, ...]
    models: tuple[ModelRecord, ...]
    memos: Mapping[str, int]
    memo_bytes: int
    memo_secs: float
    saved_bytes: int
    saved_secs: float
    requests: Requests
    queues: tuple[QueueDepth, ...]
    shares: Mapping[str, float]
    batch_files: int = 0
    batch_bytes: int = 0


def status(warehouse: Warehouse) -> Status:
    """The status of the warehouse, read in one transaction."""
    now, storage = warehouse.clock(), warehouse.storage
    batches = storage.list(BATCHES) if storage.is_local else ()
    with warehouse.catalog.read() as connection:
        of = schema.memos.c
        counted = connection.execute(select(of.state, func.count()).group_by(of.state).order_by(of.state))
        running = select(func.count()).select_from(schema.tasks).join(schema.memos, computes()).where(is_running())
        memos = with_running({row[0]: row[1] for row in counted}, connection.execute(running).scalar_one())
        size_bytes, secs, saved_bytes, saved_secs = _sharing(connection)
        return Status(
            tables=read_table_statuses(connection),
            models=all_models(connection, live=True),
            memos=memos,
            memo_bytes=size_bytes,
            memo_secs=secs,
            saved_bytes=saved_bytes,
            saved_secs=saved_secs,
            requests=_requests(connection),
            queues=read_depths(connection),
            shares=shares_now(connection, now, warehouse.config),
            batch_files=len(batches),
            batch_bytes=sum(one.size_bytes for one in batches),
        )


def list_tables(warehouse: Warehouse) -> tuple[TableStatus, ...]:
    """Every table with its size, by name."""
    with warehouse.catalog.read() as connection:
        return read_table_statuses(connection)


def list_models(warehouse: Warehouse, *, live: bool = True) -> tuple[ModelRecord, ...]:
    """The newest version of every model, or every version, by name and version."""
    with warehouse.catalog.read() as connection:
        return all_models(connection, live=live)


def model_memos(warehouse: Warehouse) -> dict[int, tuple[int, dict[str, int]]]:
    """The number of input components of every live model, by id, and their memos by state."""
    models, memos = schema.models.c, schema.memos.c
    inputs = schema.model_inputs.c
    asked = (
        select(inputs.model, inputs.fingerprint)
        .join(schema.models, models.id == inputs.model)
        .where(models.live.is_(True))
        .distinct()
        .subquery()
    )
    with warehouse.catalog.read() as connection:
        sizes = select(asked.c.model, func.count()).group_by(asked.c.model)
        inputs_of = {row[0]: row[1] for row in connection.execute(sizes)}
        of_model = asked.join(schema.memos, memos.fingerprint == asked.c.fingerprint)
        states = select(asked.c.model, memos.state, func.count()).select_from(of_model)
        stored: dict[int, dict[str, int]] = {}
        for model, state, count in connection.execute(states.group_by(asked.c.model, memos.state)):
            stored.setdefault(model, {})[state] = count
        counted = select(asked.c.model, func.count()).select_from(of_model.join(schema.tasks, computes()))
        counted = counted.where(is_running()).group_by(asked.c.model)
        running = {row[0]: row[1] for row in connection.execute(counted)}
    return {
        model: (components, with_running(stored.get(model, {}), running.get(model, 0)))
        for model, components in inputs_of.items()
    }


def _sharing(connection: Connection) -> tuple[int, float, int, float]:
    """Bytes and seconds of the ready memos, and those that sharing saved."""
    of, models, inputs = schema.memos.c, schema.models.c, schema.model_inputs.c
    counted = connection.execute(
        select(inputs.fingerprint, func.count(models.id.distinct()))
        .join(schema.models, models.id == inputs.model)
        .where(models.live.is_(True))
        .group_by(inputs.fingerprint)
    )
    others = {row[0]: row[1] - 1 for row in counted}
    sums = connection.execute(
        select(of.fingerprint, func.sum(of.size_bytes), func.sum(of.secs))
        .where(of.state == MemoState.READY)
        .group_by(of.fingerprint)
    ).all()
    return (
        sum(int(size) for _, size, _ in sums),
        sum(float(secs) for _, _, secs in sums),
        sum(int(size) * others.get(fingerprint, 0) for fingerprint, size, _ in sums),
        sum(float(secs) * others.get(fingerprint, 0) for fingerprint, _, secs in sums),
    )


def _requests(connection: Connection) -> Requests:
    of = schema.submissions.c
    query = select(func.sum(of.hits), func.sum(of.shared), func.sum(of.queued)).where(of.unchanged.is_(False))
    hits, shared, queued = connection.execute(query).one()
    return Requests(int(hits or 0), int(shared or 0), int(queued or 0))
