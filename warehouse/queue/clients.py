"""Clients: what each gets of the workers now, what it waits for, and its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from transforms.errors import InputError, nearest
from warehouse.catalog import schema
from warehouse.config import WarehouseConfig
from warehouse.errors import UnknownClient
from warehouse.queue.depths import read_depths
from warehouse.queue.fair_queue import shares_now
from warehouse.scheduling.fair_shares import check_weight
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Client:
    """One client. ``share``: the part of the workers that it gets now, None while it has nothing to lease.

    ``deadline_secs``: how long its tasks may wait, None for the default. ``queued``, ``leased`` and ``failed`` are those of
    its :class:`~warehouse.queue.depths.QueueDepth`, ``leased_tasks`` counts all that it ever got. ``virtual_secs``: its virtual
    time (:mod:`warehouse.scheduling.fair_shares`), None before its first turn; among those who wait the least is served next.
    """

    name: str
    weight: float
    deadline_secs: float | None
    share: float | None
    queued: int
    leased: int
    failed: int
    leased_tasks: int
    virtual_secs: float | None


def list_clients(warehouse: Warehouse) -> tuple[Client, ...]:
    """Every client, by name."""
    now = warehouse.clock()
    with warehouse.catalog.read() as connection:
        return _read_clients(connection, warehouse.config, now)


def set_client(
    warehouse: Warehouse,
    name: str,
    *,
    weight: float | None = None,
    deadline_secs: float | None = None,
    default_deadline: bool = False,
) -> Client:
    """Change the settings that are given; the next lease goes by them. Returns the client as it stands then.

    ``default_deadline`` takes its own deadline away. Raises :class:`UnknownClient` with the nearest names, and
    :class:`InputError` for a weight or a deadline that is not positive, and where nothing is to be changed.
    """
    values: dict[str, float | None] = {}
    if weight is not None:
        check_weight(weight)
        values["weight"] = weight
    if default_deadline and deadline_secs is not None:
        raise InputError("a client has a deadline of its own, or the default", where="deadline", value=deadline_secs)
    if deadline_secs is not None and not (math.isfinite(deadline_secs) and deadline_secs > 0):
        raise InputError("a deadline lies ahead", where="deadline", value=deadline_secs, allowed="seconds > 0")
    if default_deadline or deadline_secs is not None:
        values["deadline_secs"] = deadline_secs
    if not values:
        raise InputError("nothing is to be changed", where=f"client {name}", value="",
                         next_step="give a weight or a deadline")  # fmt: skip

    now = warehouse.clock()

    def change(connection: Connection) -> Client:
        of = schema.clients
        if connection.execute(update(of).where(of.c.name == name).values(**values)).rowcount == 0:
            known = connection.execute(select(of.c.name)).scalars().all()
            raise UnknownClient("no such client", value=name, allowed=nearest(name, known),
                                next_step="a client is known once it submitted a model")  # fmt: skip
        return next(one for one in _read_clients(connection, warehouse.config, now) if one.name == name)

    return warehouse.catalog.run(change, idempotent=True)


def _read_clients(connection: Connection, config: WarehouseConfig, now: float) -> tuple[Client, ...]:
    shares = shares_now(connection, now, config)
    depths = {depth.client: depth for depth in read_depths(connection)}
    rows = connection.execute(select(schema.clients).order_by(schema.clients.c.name))
    return tuple(
        Client(row.name, row.weight, row.deadline_secs, shares.get(row.name), depth.queued, depth.leased, depth.failed,
               row.leased_tasks, row.virtual_secs)
        for row in rows
        for depth in (depths[row.name],)
    )  # fmt: skip
