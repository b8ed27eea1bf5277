"""Clients in the catalog: their shares, what they wait for, and what is charged to them when it is leased."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Connection, and_, bindparam, func, select, update

from warehouse import schema
from warehouse.catalog import chunks, one_of
from warehouse.config import WarehouseConfig
from warehouse.fair_shares import ClientShare, after_turn, next_client, owed, shares
from warehouse.lease_order import place_rank
from warehouse.task_rows import leasable


@dataclass(frozen=True)
class Turn:
    """Whose turn it is: the partitions (table, partition) that ``client`` waits for, most urgent first, then oldest.

    ``clients`` are all there are; ``waiting`` those that have something to lease now.
    """

    client: str
    places: tuple[tuple[str, str], ...]
    clients: tuple[ClientShare, ...]
    waiting: frozenset[str]


def next_turn(connection: Connection, now: float, lease_secs: float) -> Turn | None:
    """The next turn by :func:`~warehouse.fair_shares.next_client`; None when nothing can be leased at ``now``."""
    tasks, waits, models = schema.tasks, schema.waits, schema.models
    query = (
        select(models.c.client, tasks.c.table_name, tasks.c.partition, func.max(models.c.priority))
        .select_from(tasks)
        .join(waits, waits.c.memo_key == tasks.c.memo_key)
        .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
        .where(leasable(now, lease_secs))
        .group_by(models.c.client, tasks.c.table_name, tasks.c.partition)
    )
    rows = connection.execute(query).all()
    if not rows:
        return None
    clients, waiting = read_shares(connection), frozenset(row.client for row in rows)
    chosen = next_client(clients, waiting)
    ranks = sorted(
        place_rank(priority, table, partition) for name, table, partition, priority in rows if name == chosen
    )
    return Turn(chosen, tuple((table, partition) for _, table, partition in ranks), clients, waiting)


def waiting_clients(connection: Connection, now: float, lease_secs: float) -> frozenset[str]:
    """The clients that have something to lease at ``now``."""
    tasks, waits, models = schema.tasks, schema.waits, schema.models
    query = (
        select(models.c.client)
        .join(waits, and_(waits.c.model == models.c.id, models.c.live.is_(True)))
        .join(tasks, tasks.c.memo_key == waits.c.memo_key)
        .where(leasable(now, lease_secs))
        .distinct()
    )
    return frozenset(connection.execute(query).scalars())


def shares_now(connection: Connection, now: float, config: WarehouseConfig) -> dict[str, float]:
    """The share of the workers that each waiting client gets at ``now``, by name; they add up to 1."""
    waiting = waiting_clients(connection, now, config.lease_secs)
    weights = {one.name: one.weight for one in read_shares(connection) if one.name in waiting}
    return shares(weights, config.client_floor_share)


def read_shares(connection: Connection) -> tuple[ClientShare, ...]:
    """Every client's claim, by name."""
    of = schema.clients.c
    query = select(of.name, of.weight, of.virtual_secs, of.served).order_by(of.name)
    return tuple(ClientShare(*row) for row in connection.execute(query))


def charge_turn(connection: Connection, turn: Turn, secs: Mapping[str, float], floor_share: float) -> None:
    """Count the turn. ``secs``: the work that was leased, by memo key; a memo is paid for by those who wait for it, alike."""
    waits, models, clients = schema.waits, schema.models, schema.clients
    payers: defaultdict[str, list[str]] = defaultdict(list)
    for chunk in chunks(sorted(secs)):
        query = (
            select(waits.c.memo_key, models.c.client)
            .join(models, and_(models.c.id == waits.c.model, models.c.live.is_(True)))
            .where(one_of(connection, waits.c.memo_key, chunk))
            .distinct()
        )
        for key, client in connection.execute(query):
            payers[key].append(client)
    charged = after_turn(turn.clients, turn.waiting, turn.client, owed(secs, payers), floor_share)
    changed = [now for was, now in zip(turn.clients, charged, strict=True) if now != was]
    values: dict[str, BindParameter[Any]] = {"virtual_secs": bindparam("secs"), "served": bindparam("turn")}
    if changed:
        connection.execute(update(clients).where(clients.c.name == bindparam("of")).values(**values), [
            {"of": one.name, "secs": one.virtual_secs, "turn": one.served} for one in changed
        ])  # fmt: skip
    counted = clients.c.leased_tasks + len(secs)
    connection.execute(update(clients).where(clients.c.name == turn.client).values(leased_tasks=counted))
