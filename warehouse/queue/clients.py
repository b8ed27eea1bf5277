"""Clients: settings, current shares of the workers, and numbers of tasks."""

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
    """One client.

    Attributes:
        name: Its name.
        weight: Its weight.
        deadline_secs: The longest time that its tasks may wait; None for the default.
        share: Its current share of the workers; None while it has no leasable task.
        queued: Queued tasks, as in :class:`~warehouse.queue.depths.QueueDepth`.
        leased: Leased tasks.
        failed: Quarantined tasks.
        leased_tasks: All tasks that were ever leased for it.
        virtual_secs: Its virtual time (:mod:`warehouse.scheduling.fair_shares`); None before its first lease.
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
    """Change settings of a client, from the next lease on; returns the changed client.

    ``default_deadline`` removes its own deadline. Raises :class:`UnknownClient` with the nearest names, and
    :class:`InputError` for a weight or a deadline that is not positive, and without a setting.
    """
    values: dict[str, float | None] = {}
    if weight is not None:
        check_weight(weight)
        values["weight"] = weight
    if default_deadline and deadline_secs is not None:
        raise InputError("a deadline and the default one must not both be given", where="deadline", value=deadline_secs)
    if deadline_secs is not None and not (math.isfinite(deadline_secs) and deadline_secs > 0):
        raise InputError(
            "a deadline must be finite and > 0", where="deadline", value=deadline_secs, allowed="seconds > 0"
        )
    if default_deadline or deadline_secs is not None:
        values["deadline_secs"] = deadline_secs
    if not values:
        raise InputError("a weight or a deadline must be given", where=f"client {name}", value="",
                         next_step="give a weight or a deadline")  # fmt: skip

    now = warehouse.clock()

    def change(connection: Connection) -> Client:
        of = schema.clients
        if connection.execute(update(of).where(of.c.name == name).values(**values)).rowcount == 0:
            known = connection.execute(select(of.c.name)).scalars().all()
            raise UnknownClient("no such client", value=name, allowed=nearest(name, known),
                                next_step="a client exists after it submitted a model")  # fmt: skip
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
