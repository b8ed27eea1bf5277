"""Pins: leases on what a running job reads. Its memos are not evicted, and its files not deleted.

A pin covers components with all of their memos, in all partitions: equal content in another place is the
same memo. It expires at ``expires_at``, which heartbeats of its holder extend. Times are those of the clock of the
process that writes or checks them. Clocks may differ by less than half of ``pin_ttl_secs``: heartbeats come every third
of it, and a pin also keeps files that became unreferenced up to one ``pin_ttl_secs`` before it was made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select, update

from transforms.graphs.graph import RawColumn
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, insert_absent, one_of
from warehouse.models.models import get_model
from warehouse.solution.solution import ReadSolution
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class Pin:
    """One job's pin on the memos of ``fingerprints``. Times are epoch seconds.

    ``start`` and ``end`` are the requested range of its solution, None for an open end.
    """

    id: str
    holder: str
    model: str
    model_version: int
    table: str
    start: datetime | None
    end: datetime | None
    created_at: float
    expires_at: float
    fingerprints: frozenset[str] = field(repr=False)

    def expires_in_secs(self, now: float) -> float:
        """Seconds until it expires without a heartbeat."""
        return self.expires_at - now


def pin_solution(warehouse: Warehouse, solution: ReadSolution, holder: str, ttl_secs: float | None = None) -> Pin:
    """Pin an existing solution for ``ttl_secs``, by default that of the configuration.

    The reader computes memos that were evicted before. :func:`~warehouse.reading.pinned.pinned_solution` has no such gap.
    Raises :class:`~warehouse.errors.UnknownModel`.
    """
    starts = [partition.start for partition in solution.partitions]
    ends = [partition.end for partition in solution.partitions]

    def pin(connection: Connection) -> Pin:
        return make_pin(
            connection,
            warehouse,
            solution.model,
            holder,
            read_fingerprints(solution),
            version=solution.model_version,
            start=min(starts, default=None),
            end=max(ends, default=None),
            ttl_secs=ttl_secs,
        )

    return warehouse.catalog.run(pin)


def read_fingerprints(solution: ReadSolution) -> frozenset[str]:
    """The components that a solution may load: its inputs, and the subgraphs that its plans load."""
    loaded = (fingerprint for plan in solution.plans for fingerprint in plan.loads)
    return frozenset(loaded).union(item.fingerprint for item in solution.inputs if not isinstance(item.root, RawColumn))


def make_pin(
    connection: Connection,
    warehouse: Warehouse,
    model_name: str,
    holder: str,
    fingerprints: Collection[str],
    *,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    ttl_secs: float | None = None,
) -> Pin:
    """Pin components for a job over a model, inside the caller's write transaction."""
    now = warehouse.clock()
    model = get_model(connection, model_name, version)
    lasts_secs = warehouse.config.pin_ttl_secs if ttl_secs is None else ttl_secs
    pin = Pin(uuid4().hex, holder, model.name, model.version, model.table, start, end, now, now + lasts_secs,
              frozenset(fingerprints))  # fmt: skip
    _write(connection, pin, model.id, pin.expires_at)
    return pin


def narrow_pin(warehouse: Warehouse, pin: Pin, fingerprints: Collection[str]) -> Pin:
    """Release the components that are not read."""
    of = schema.pin_components.c
    kept = pin.fingerprints.intersection(fingerprints)

    def narrow(connection: Connection) -> None:
        for chunk in chunks(sorted(pin.fingerprints - kept)):
            connection.execute(delete(schema.pin_components).where(of.pin == pin.id, of.fingerprint.in_(chunk)))

    warehouse.catalog.run(narrow, idempotent=True)
    return Pin(**{**vars(pin), "fingerprints": kept})


def heartbeat_pin(warehouse: Warehouse, pin: Pin) -> bool:
    """Renew a pin for its full time. False if it had expired: memos may have been evicted meanwhile.

    An expired pin that was removed is made again.
    """
    of, now = schema.pins.c, warehouse.clock()
    until = now + (pin.expires_at - pin.created_at)

    def beat(connection: Connection) -> bool:
        before = connection.execute(select(of.expires_at).where(of.id == pin.id)).scalar()
        if before is None:
            _write(connection, pin, get_model(connection, pin.model, pin.model_version).id, until)
        else:
            connection.execute(update(schema.pins).where(of.id == pin.id).values(expires_at=until))
        return before is not None and before > now

    return warehouse.catalog.run(beat, idempotent=True)


def release_pin(warehouse: Warehouse, pin: Pin) -> bool:
    """Remove a pin; False if it was removed already."""
    return warehouse.catalog.run(lambda connection: _remove(connection, [pin.id]) > 0, idempotent=True)


def live_pins(warehouse: Warehouse) -> tuple[Pin, ...]:
    """The unexpired pins, oldest first."""
    with warehouse.catalog.read() as connection:
        return read_live_pins(connection, warehouse.clock())


def read_live_pins(connection: Connection, now: float) -> tuple[Pin, ...]:
    """:func:`live_pins` inside a transaction."""
    pins, models, members = schema.pins.c, schema.models.c, schema.pin_components.c
    query = (
        select(schema.pins, models.name, models.version)
        .join(schema.models, models.id == pins.model)
        .where(pins.expires_at > now)
        .order_by(pins.created_at, pins.id)
    )
    rows = connection.execute(query).all()
    held: dict[str, set[str]] = {row.id: set() for row in rows}
    for chunk in chunks(sorted(held)):
        for pin, fingerprint in connection.execute(
            select(members.pin, members.fingerprint).where(members.pin.in_(chunk))
        ):
            held[pin].add(fingerprint)
    return tuple(
        Pin(row.id, row.holder, row.name, row.version, row.table_name, _moment(row.start_at), _moment(row.end_at),
            row.created_at, row.expires_at, frozenset(held[row.id]))
        for row in rows
    )  # fmt: skip


def pin_holders(connection: Connection, fingerprints: Sequence[str], now: float) -> dict[str, set[str]]:
    """The holders of pins by component; an eviction calls it in its write transaction."""
    pins, members = schema.pins.c, schema.pin_components.c
    found: defaultdict[str, set[str]] = defaultdict(set)
    query = (
        select(members.fingerprint, pins.holder).join(schema.pins, pins.id == members.pin).where(pins.expires_at > now)
    )
    for chunk in chunks(fingerprints):
        for fingerprint, holder in connection.execute(query.where(one_of(connection, members.fingerprint, chunk))):
            found[fingerprint].add(holder)
    return found


def oldest_live_pin(connection: Connection, now: float) -> float | None:
    """When the oldest unexpired pin was made; None without one. Files unreferenced before can be deleted."""
    of = schema.pins.c
    return connection.execute(select(func.min(of.created_at)).where(of.expires_at > now)).scalar()


def clear_expired_pins(connection: Connection, now: float) -> int:
    """Remove the rows of expired pins; returns how many."""
    of = schema.pins.c
    return _remove(connection, connection.execute(select(of.id).where(of.expires_at <= now)).scalars().all())


def _remove(connection: Connection, pins: Iterable[str]) -> int:
    removed = 0
    for chunk in chunks(sorted(pins)):
        connection.execute(delete(schema.pin_components).where(schema.pin_components.c.pin.in_(chunk)))
        removed += connection.execute(delete(schema.pins).where(schema.pins.c.id.in_(chunk))).rowcount
    return removed


def _write(connection: Connection, pin: Pin, model: int, until: float) -> None:
    start, end = (None if moment is None else moment.timestamp() for moment in (pin.start, pin.end))
    connection.execute(
        insert(schema.pins).values(id=pin.id, holder=pin.holder, model=model, table_name=pin.table, start_at=start,
                                   end_at=end, created_at=pin.created_at, expires_at=until)
    )  # fmt: skip
    members = ({"pin": pin.id, "fingerprint": fingerprint} for fingerprint in sorted(pin.fingerprints))
    insert_absent(connection, schema.pin_components, members)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
