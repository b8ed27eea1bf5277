"""Events that wait in the catalog until they are sent.

An event is written in the transaction that commits what it reports, so a killed process loses none and invents none. Senders of several processes
take events in turns: an event that was taken is left alone by others for a while, and is sent again if it is not marked then. An event of the same key
is written once, for as long as the sent one is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.lineage.documents import LineageEvent

#: How long an event is left to the process that took it.
TAKEN_SECS = 60.0
#: How long a sent event is kept, so that the same one is not sent again.
KEPT_SECS = 7 * 86_400.0
#: The most events that wait; older ones are dropped.
MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event that was taken: its row, and its JSON."""

    number: int
    document: str


def write_events(connection: Connection, events: Sequence[LineageEvent], now: float) -> None:
    """Write those of ``events`` that are not there, in the caller's transaction."""
    of, known = schema.lineage_events.c, set[str]()
    for keys in chunks([one.key for one in events]):
        known |= set(connection.execute(select(of.key).where(of.key.in_(keys))).scalars())
    rows = [
        {"key": one.key, "document": one.document, "recorded_at": now}
        for one in {event.key: event for event in events}.values()
        if one.key not in known
    ]
    if rows:
        connection.execute(insert(schema.lineage_events), rows)


def count_waiting(connection: Connection) -> int:
    """The events that are not sent."""
    of = schema.lineage_events.c
    return int(connection.execute(select(func.count()).where(of.sent_at.is_(None))).scalar_one())


def take_events(connection: Connection, now: float, limit: int) -> tuple[WaitingEvent, ...]:
    """The oldest events that wait and that no other sender has, for :data:`TAKEN_SECS`."""
    events, of = schema.lineage_events, schema.lineage_events.c
    is_free = or_(of.taken_at.is_(None), of.taken_at < now - TAKEN_SECS)
    query = select(of.id, of.document).where(of.sent_at.is_(None), is_free).order_by(of.id).limit(limit)
    found = tuple(WaitingEvent(row.id, row.document) for row in connection.execute(query))
    for numbers in chunks([one.number for one in found]):
        connection.execute(update(events).where(of.id.in_(numbers)).values(taken_at=now))
    return found


def mark_sent(connection: Connection, numbers: Sequence[int], others: Sequence[int], now: float) -> None:
    """Mark events as sent, release ``others``, and forget events that were sent long ago."""
    events, of = schema.lineage_events, schema.lineage_events.c
    for part in chunks(numbers):
        connection.execute(update(events).where(of.id.in_(part)).values(sent_at=now, document=""))
    for part in chunks(others):
        connection.execute(update(events).where(of.id.in_(part)).values(taken_at=None))
    connection.execute(delete(events).where(of.sent_at < now - KEPT_SECS))


def drop_oldest(connection: Connection, most: int = MOST_WAITING) -> int:
    """Drop the oldest events, so that at most ``most`` wait; returns their number."""
    events, of = schema.lineage_events, schema.lineage_events.c
    newest = select(of.id).where(of.sent_at.is_(None)).order_by(of.id.desc()).offset(most).limit(1)
    last = connection.execute(newest).scalar()
    if last is None:
        return 0
    return connection.execute(delete(events).where(of.sent_at.is_(None), of.id <= last)).rowcount
