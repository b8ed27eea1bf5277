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
    func,
    literal,
    select,
    update,
)

from warehouse.catalog import schema
from warehouse.catalog.catalog import one_of
from warehouse.catalog.fragment_rows import Place
from warehouse.catalog.task_rows import computes, is_current, leasable, waits_for
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
from warehouse.scheduling.task_states import MemoState, TaskState

#: If models wait for more memos than this, partitions are checked one by one: a lease needs only a few of them.
_FEW_MEMOS = 20_000
_OF = schema.tasks.c
#: Every partition with an unfinished task; read from an index alone.
_OPEN_PLACES = (
    select(_OF.table_name, _OF.partition)
    .where(_OF.state.in_((TaskState.QUEUED, TaskState.LEASED)))
    .distinct()
    .order_by(_OF.table_name, _OF.partition)
)


#: Pending memos with the waits for them, and with their tasks.
_WAITED = schema.waits.join(
    schema.memos,
    and_(schema.memos.c.fingerprint == schema.waits.c.fingerprint, schema.memos.c.state == MemoState.PENDING),
)
_WAITED_TASKS = _WAITED.join(schema.tasks, and_(computes(), waits_for()))


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
    waits, models = schema.waits.c, schema.models.c
    mine = (waits.model == models.id, leasable(now, lease_secs), is_current())
    first = select(literal(1)).select_from(_WAITED_TASKS).where(*mine).limit(1).correlate(schema.models)
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
        waited = select(schema.memos.c.task, waits.table_name).select_from(_WAITED).where(of_these)
        few = waited.limit(_FEW_MEMOS + 1).subquery()
        are_few = connection.execute(select(func.count()).select_from(few)).scalar_one() <= _FEW_MEMOS
        each = select(few).distinct().subquery()
        here = and_(tasks.id == each.c.task, tasks.table_name == each.c.table_name)
        mine = select(*place).join(each, here).where(can_be_leased, is_current()).distinct().order_by(*place)
        for table, partition in connection.execute(mine if are_few else _OPEN_PLACES).all():
            one = table, partition
            if one not in seen and (are_few or _is_waited_for(connection, one, of_these, can_be_leased)):
                seen.add(one)
                yield one


def _is_waited_for(
    connection: Connection, place: Place, of_these: ColumnElement[bool], can_be_leased: ColumnElement[bool]
) -> bool:
    tasks = schema.tasks.c
    joined = schema.tasks.join(schema.memos, computes()).join(schema.waits, waits_for())
    here = (tasks.table_name == place[0], tasks.partition == place[1], can_be_leased, of_these, is_current())
    return connection.execute(select(literal(1)).select_from(joined).where(*here).limit(1)).first() is not None


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


def waiting_priorities(connection: Connection, table: str) -> dict[str, dict[str, int]]:
    """The clients that wait for tasks over a table, with their highest priorities, by component."""
    waits, models = schema.waits.c, schema.models.c
    query = (
        select(waits.fingerprint, models.client, func.max(models.priority))
        .join(schema.models, models.id == waits.model)
        .where(waits.table_name == table, models.live.is_(True))
        .group_by(waits.fingerprint, models.client)
    )
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for fingerprint, client, priority in connection.execute(query):
        found[fingerprint][client] = priority
    # One mapping for all components that the same clients wait for with the same priorities.
    alike: dict[frozenset[tuple[str, int]], dict[str, int]] = {}
    return {name: alike.setdefault(frozenset(waiting.items()), waiting) for name, waiting in found.items()}


def charge_selection(
    connection: Connection, selection: Selection, rows: Sequence[Any], secs: Mapping[str, float], floor_share: float
) -> dict[str, dict[str, float]]:
    """Charge leased work to the clients that wait for it, in equal parts.

    ``rows`` have the memo key of each task and the ``priorities`` by client that waits for it, ``secs`` its work by memo key.
    Returns the clients that pay for each memo, with the share by which they were charged.
    """
    clients = schema.clients
    waiting = {id(row.priorities): row.priorities for row in rows}  # many rows have the same mapping
    named = {number: tuple(priorities) for number, priorities in waiting.items()}
    payers = {row.memo_key: named[id(row.priorities)] for row in rows}
    debts = charge_by_client(secs, payers)
    charged = update_clients(selection.clients, selection.waiting, selection.client, debts, floor_share)
    changed = [now for was, now in zip(selection.clients, charged, strict=True) if now != was]
    values: dict[str, BindParameter[Any]] = {"virtual_secs": bindparam("secs"), "served": bindparam("turn")}
    if changed:
        connection.execute(
            update(clients).where(clients.c.name == bindparam("of")).values(**values),
            [{"of": one.name, "secs": one.virtual_secs, "turn": one.served} for one in changed],
        )
    counted = clients.c.leased_tasks + len(secs)
    connection.execute(update(clients).where(clients.c.name == selection.client).values(leased_tasks=counted))
    share = charged_shares(selection.clients, selection.waiting, debts, floor_share)
    paying = {several: {client: share[client] for client in several} for several in set(named.values())}
    return {key: paying[several] for key, several in payers.items()}


def correct_charges(connection: Connection, done: Iterable[tuple[Charge, float]]) -> None:
    """Correct the charges of work by the seconds that it took: one UPDATE, if any differs."""
    more, of = charge_corrections(done), schema.clients.c
    if more:
        time = of.virtual_secs + case(more, value=of.name)
        values = {
            "virtual_secs": case((time < 0, 0.0), else_=time)
        }  # a client that was never served has no virtual time
        connection.execute(update(schema.clients).where(of.name.in_(sorted(more))).values(**values))
