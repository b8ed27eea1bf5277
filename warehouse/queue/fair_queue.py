"""Weighted fair queueing in the catalog: select the next client, charge it, correct charges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    update,
)

from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks, one_of
from warehouse.catalog.task_rows import leasable
from warehouse.config import WarehouseConfig
from warehouse.scheduling.fair_shares import (
    Charge,
    ClientShare,
    charge_by_client,
    charge_corrections,
    charged_shares,
    next_client,
    shares,
    update_clients,
)
from warehouse.scheduling.task_states import TaskState

#: A table and a partition of it.
Place = tuple[str, str]
#: If models wait for more tasks than this, partitions are checked one by one: a lease needs only a few of them.
_FEW_WAITS = 20_000
_OF = schema.tasks.c
#: Every partition with an unfinished task; read from an index alone.
_OPEN_PLACES = (
    select(_OF.table_name, _OF.partition)
    .where(_OF.state.in_((TaskState.QUEUED, TaskState.LEASED)))
    .distinct()
    .order_by(_OF.table_name, _OF.partition)
)


@dataclass(frozen=True)
class Selection:
    """The client that is served next.

    Attributes:
        client: Its name.
        places: The partitions that it waits for, most urgent first, then oldest; read lazily within the transaction.
        clients: All clients.
        waiting: The names of those with leasable tasks.
    """

    client: str
    places: Iterator[Place]
    clients: tuple[ClientShare, ...]
    waiting: frozenset[str]


def select_client(connection: Connection, now: float, lease_secs: float) -> Selection | None:
    """Select the next client (:func:`~warehouse.scheduling.fair_shares.next_client`); None without leasable tasks."""
    models = _waiting_models(connection, now, lease_secs)
    if not models:
        return None
    clients, waiting = read_shares(connection), frozenset(row.client for row in models)
    chosen = next_client(clients, waiting)
    by_priority: defaultdict[int, list[int]] = defaultdict(list)
    for row in models:
        if row.client == chosen:
            by_priority[row.priority].append(row.id)
    return Selection(chosen, _places(connection, by_priority, leasable(now, lease_secs)), clients, waiting)


def waiting_clients(connection: Connection, now: float, lease_secs: float) -> frozenset[str]:
    """The clients with leasable tasks at ``now``."""
    return frozenset(row.client for row in _waiting_models(connection, now, lease_secs))


def _waiting_models(connection: Connection, now: float, lease_secs: float) -> Sequence[Any]:
    """The live models that wait for a leasable task; one task per model is enough."""
    tasks, waits, models = schema.tasks.c, schema.waits.c, schema.models.c
    can_be_leased = exists().where(tasks.memo_key == waits.memo_key, leasable(now, lease_secs))
    first = select(literal(1)).where(waits.model == models.id, can_be_leased).limit(1).correlate(schema.models)
    query = select(models.id, models.client, models.priority)
    return connection.execute(query.where(models.live.is_(True), first.scalar_subquery().is_not(None))).all()


def _places(
    connection: Connection, by_priority: Mapping[int, Sequence[int]], can_be_leased: ColumnElement[bool]
) -> Iterator[Place]:
    """The partitions with leasable tasks of some models, by the models' priorities."""
    tasks, waits = schema.tasks.c, schema.waits.c
    place, seen = (tasks.table_name, tasks.partition), set[Place]()
    for models in (by_priority[priority] for priority in sorted(by_priority, reverse=True)):
        of_these = one_of(connection, waits.model, models)
        few = select(literal(1)).select_from(schema.waits).where(of_these).limit(_FEW_WAITS + 1).subquery()
        are_few = connection.execute(select(func.count()).select_from(few)).scalar_one() <= _FEW_WAITS
        mine = select(*place).join(schema.waits, waits.memo_key == tasks.memo_key).where(of_these, can_be_leased)
        query = mine.distinct().order_by(*place) if are_few else _OPEN_PLACES
        for table, partition in connection.execute(query).all():
            one = table, partition
            if one not in seen and (are_few or _is_waited_for(connection, one, of_these, can_be_leased)):
                seen.add(one)
                yield one


def _is_waited_for(
    connection: Connection, place: Place, of_these: ColumnElement[bool], can_be_leased: ColumnElement[bool]
) -> bool:
    tasks, waits = schema.tasks.c, schema.waits.c
    wanted = exists().where(waits.memo_key == tasks.memo_key, of_these)
    here = (tasks.table_name == place[0], tasks.partition == place[1], can_be_leased, wanted)
    return connection.execute(select(literal(1)).where(*here).limit(1)).first() is not None


def shares_now(connection: Connection, now: float, config: WarehouseConfig) -> dict[str, float]:
    """The share of each waiting client at ``now``, by name; they add up to 1."""
    waiting = waiting_clients(connection, now, config.lease_secs)
    weights = {one.name: one.weight for one in read_shares(connection) if one.name in waiting}
    return shares(weights, config.client_floor_share)


def read_shares(connection: Connection) -> tuple[ClientShare, ...]:
    """Every client's weight and virtual time, by name."""
    of = schema.clients.c
    query = select(of.name, of.weight, of.virtual_secs, of.served).order_by(of.name)
    return tuple(ClientShare(*row) for row in connection.execute(query))


def charge_selection(
    connection: Connection, selection: Selection, secs: Mapping[str, float], floor_share: float
) -> dict[str, dict[str, float]]:
    """Charge leased work to the clients that wait for it, in equal parts; ``secs`` is the work by memo key.

    Returns the clients that pay for each memo, with the share by which they were charged.
    """
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
    debts = charge_by_client(secs, payers)
    charged = update_clients(selection.clients, selection.waiting, selection.client, debts, floor_share)
    changed = [now for was, now in zip(selection.clients, charged, strict=True) if now != was]
    values: dict[str, BindParameter[Any]] = {"virtual_secs": bindparam("secs"), "served": bindparam("turn")}
    if changed:
        connection.execute(update(clients).where(clients.c.name == bindparam("of")).values(**values), [
            {"of": one.name, "secs": one.virtual_secs, "turn": one.served} for one in changed
        ])  # fmt: skip
    counted = clients.c.leased_tasks + len(secs)
    connection.execute(update(clients).where(clients.c.name == selection.client).values(leased_tasks=counted))
    share = charged_shares(selection.clients, selection.waiting, debts, floor_share)
    return {key: {client: share[client] for client in payers[key]} for key in secs}


def correct_charges(connection: Connection, done: Iterable[tuple[Charge, float]]) -> None:
    """Correct the charges of work by the seconds that it took: one UPDATE, if any differs."""
    more, of = charge_corrections(done), schema.clients.c
    if more:
        time = of.virtual_secs + case(more, value=of.name)
        values = {
            "virtual_secs": case((time < 0, 0.0), else_=time)
        }  # a client that was never served has no virtual time
        connection.execute(update(schema.clients).where(of.name.in_(sorted(more))).values(**values))
