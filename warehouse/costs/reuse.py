"""Reads of tables by models, as the catalog records them, for the forecast of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, insert, select

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.planning.forecast import DAY_SECS, AgedReads, Arrival, TimedRead, count_reads

#: Older reads do not count.
WINDOW_DAYS = 30.0


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Estimated CPU seconds of a read: as it was read, and if all or no memos of its inputs were ready."""

    secs: float = 0.0
    all_secs: float = 0.0
    none_secs: float = 0.0


def record_read(
    connection: Connection,
    model: int,
    table: str,
    start_at: float | None,
    end_at: float | None,
    rows: int,
    now: float,
    costs: ReadCosts = ReadCosts(),
) -> None:
    """Record a read of a model's row for training; times are epoch seconds."""
    connection.execute(insert(schema.reads).values(
        model=model, table_name=table, start_at=start_at, end_at=end_at, rows=rows, read_at=now, secs=costs.secs,
        all_secs=costs.all_secs, none_secs=costs.none_secs))  # fmt: skip


def models_with(
    connection: Connection, table: str, components: Collection[str], asking: str = ""
) -> dict[str, frozenset[str]]:
    """The names of the live models of a table with each component as an input, and ``asking``, if any, for every one."""
    found: dict[str, set[str]] = {one: {asking} if asking else set() for one in sorted(components)}
    models, inputs = schema.models, schema.model_inputs
    for chunk in chunks(sorted(found)):
        query = (
            select(inputs.c.fingerprint, models.c.name)
            .distinct()
            .join(models, and_(models.c.id == inputs.c.model, models.c.live.is_(True), models.c.table_name == table))
            .where(inputs.c.fingerprint.in_(chunk))
        )
        for one, name in connection.execute(query):
            found[one].add(name)
    return {one: frozenset(names) for one, names in found.items()}


def load_aged_reads(
    connection: Connection, table: str, arrivals: Iterable[Arrival], now: float, asking: str = ""
) -> AgedReads:
    """The reads of a table in the last :data:`WINDOW_DAYS`, by the age of the data; ``arrivals``: its current data.

    ``asking``: the model that is submitted or read, live or not. A model's reads are those of all its versions.
    """
    models, reads = schema.models.c, schema.reads.c
    names = select(models.name).where(models.live.is_(True), models.table_name == table)
    first = select(models.name, func.min(models.submitted_at)).where(models.name.in_(names)).group_by(models.name)
    live = {name: float(at) for name, at in connection.execute(first)}
    if asking:
        live.setdefault(asking, now)
    since = now - WINDOW_DAYS * DAY_SECS
    query = (
        select(models.name, reads.start_at, reads.end_at, reads.read_at)
        .join(schema.models, models.id == reads.model)
        .where(reads.table_name == table, reads.read_at > since)
        .order_by(reads.id)
    )
    timed = [
        TimedRead(name, float("-inf") if start is None else start, float("inf") if end is None else end, at)
        for name, start, end, at in connection.execute(query)
    ]
    return count_reads(arrivals, timed, live, now, since)
