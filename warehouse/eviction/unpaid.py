"""Memos of the adaptive policy that are not worth their storage, and the account of each table.

A memo belongs to the adaptive policy if a model of that policy queued it and no live model that keeps all has its component.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from transforms.graphs.graph import Node, component_from_document
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks
from warehouse.config import WarehouseConfig
from warehouse.costs.accounts import load_account, save_account, settled_before
from warehouse.costs.cost_model import CostModel
from warehouse.eviction.plan import ReadyMemo
from warehouse.matching.plan_context import PlanContext
from warehouse.memos.coverage import find_coverage
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import load_documents, stored_inputs
from warehouse.planning.forecast import DAY_SECS
from warehouse.planning.policy_names import PolicyName
from warehouse.planning.regret import Advisor, charge
from warehouse.planning.retention import worth_dropping
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import current_units, find_table
from warehouse.tables.table import Table


def adaptive_tables(connection: Connection) -> list[str]:
    """The tables with models, live or not, of the adaptive policy."""
    of = schema.models.c
    return sorted(
        connection.execute(select(of.table_name).where(of.policy == PolicyName.ADAPTIVE).distinct()).scalars()
    )


def unsettled_tables(connection: Connection, now: float) -> list[str]:
    """The tables of the adaptive policy whose account is a day old."""
    tables = adaptive_tables(connection)
    return settled_before(connection, tables, now - DAY_SECS) if tables else []


def unpaid_memos(
    connection: Connection, config: WarehouseConfig, fingerprints: Sequence[str], table: str | None, now: float
) -> Iterator[ReadyMemo]:
    """The ready memos of these components that the adaptive policy drops now, over current data of one or all tables."""
    for name in [table] if table is not None else adaptive_tables(connection):
        if (known := find_table(connection, name)) is not None:
            yield from _unpaid(connection, config, known, fingerprints, now)


def _unpaid(
    connection: Connection, config: WarehouseConfig, table: Table, fingerprints: Sequence[str], now: float
) -> Iterator[ReadyMemo]:
    context = PlanContext(connection, config, table, current_units(connection, table.name), now)
    positions = {one.row: position for position, one in enumerate(context.fragments)}
    found = [one for one in adaptive_memos(connection, table.name, fingerprints) if one.fragment in positions]
    if not found:
        return
    live = _live_roots(connection, table.name)
    graph = MergedGraph((*live.values(), *_roots(connection, {one.fingerprint for one in found} - live.keys())))
    coverage = find_coverage(connection, graph.columns(graph.operations), context.fragments)
    pricing = context.aged_pricing(graph)
    dropped: dict[tuple[int, int], frozenset[str]] = {}
    for one in found:
        position = positions[one.fragment]
        placed = context.fragments[position]
        advisor, question = pricing.advisor(placed), (coverage.fragments[position].layout, pricing.bucket(placed))
        if advisor is Advisor.FORECAST and question not in dropped:
            ready = coverage.slots(position)
            dropped[question] = frozenset(worth_dropping(ready, pricing.outlook(question[1], ready)))
        if advisor is Advisor.NONE or (advisor is Advisor.FORECAST and one.fingerprint in dropped[question]):
            yield one


def _live_roots(connection: Connection, table: str) -> dict[str, Node]:
    """The components of the live models of a table, by fingerprint."""
    models = schema.models.c
    live = select(models.id).where(models.live.is_(True), models.table_name == table).order_by(models.id)
    rows = connection.execute(live).scalars().all()
    return {item.fingerprint: item.component for row in rows for item in stored_inputs(connection, row)}


def _roots(connection: Connection, fingerprints: Collection[str]) -> list[Node]:
    documents = load_documents(connection, sorted(fingerprints))
    return [component_from_document(documents[name]) for name in sorted(fingerprints)]


def adaptive_memos(connection: Connection, table: str, fingerprints: Sequence[str]) -> list[ReadyMemo]:
    """The ready memos of these components that belong to the adaptive policy over a table."""
    of, fragments, models, inputs = schema.memos.c, schema.fragments.c, schema.models.c, schema.model_inputs.c
    kept = (
        select(inputs.fingerprint)
        .join(schema.models, models.id == inputs.model)
        .where(models.live.is_(True), models.policy == PolicyName.ALL, models.table_name == table)
    )
    columns: tuple[Any, ...] = (of.memo_key, of.fingerprint, of.file, fragments.table_name, fragments.partition, of.rows, of.size_bytes,
                                of.secs, of.created_at, of.changed_at, of.fragment)  # fmt: skip
    found: list[ReadyMemo] = []
    for chunk in chunks(fingerprints):
        query = (
            select(*columns)
            .join(schema.fragments, fragments.id == of.fragment)
            .join(schema.models, models.id == of.queued_by)
            .where(of.state == MemoState.READY, fragments.table_name == table, models.policy == PolicyName.ADAPTIVE)
            .where(of.fingerprint.in_(chunk), of.fingerprint.not_in(kept))
            .order_by(of.fingerprint, of.memo_key)
        )
        found += [ReadyMemo(*row) for row in connection.execute(query)]
    return found


def settle_account(connection: Connection, config: WarehouseConfig, table: str, now: float) -> None:
    """Charge a table's account with the costs from when it was last settled until now, excluded."""
    known = find_table(connection, table)
    if known is None:
        return
    account, settled_at = load_account(connection, table)
    models, of = schema.models.c, schema.memos.c
    mine = (models.table_name == table, models.policy == PolicyName.ADAPTIVE)
    since = settled_at
    if since is None:
        since = float(connection.execute(select(func.min(models.submitted_at)).where(*mine)).scalar_one() or now)
    context = PlanContext(connection, config, known, current_units(connection, table), now)
    read = _read_secs(connection, table, since, now)
    live = connection.execute(select(models.id, models.submitted_at).where(*mine, models.live.is_(True))).all()
    inputs = {row.id: stored_inputs(connection, row.id) for row in live}
    wanted = {item.fingerprint: item.component for items in inputs.values() for item in items}
    known_before = {item.fingerprint for row in live if row.submitted_at < since for item in inputs[row.id]}
    graph = MergedGraph(tuple(wanted.values()))
    names = connection.execute(select(of.fingerprint).where(of.state == MemoState.READY).distinct()).scalars().all()
    stored = adaptive_memos(connection, table, sorted(names))
    every = MergedGraph((*graph.roots, *_roots(connection, {one.fingerprint for one in stored} - wanted.keys())))
    costs = context.costs(every.nodes)
    byte_secs = config.prices.storage_secs(1.0) / DAY_SECS
    own_secs = _made_secs(costs, every, stored, since, now)
    own_secs += sum(one.size_bytes * (now - max(since, one.changed_at)) for one in stored) * byte_secs
    new = [root for name, root in graph.components.items() if name not in known_before]
    all_secs = _all_secs(context, costs, tuple(graph.components.values()), new, since, byte_secs)
    making_secs = costs.making_secs(tuple(graph.components.values())) * context.rows
    after = charge(
        account, own_secs=read[0] + own_secs, all_secs=read[1] + all_secs, none_secs=read[2], making_secs=making_secs
    )
    save_account(connection, table, after, now)


def _all_secs(
    context: PlanContext,
    costs: CostModel,
    components: Sequence[Node],
    new: Sequence[Node],
    since: float,
    byte_secs: float,
) -> float:
    """What making and storing all components since then would have cost.

    Over data that arrived since, all are made; over earlier data the ``new`` ones. ``byte_secs``: the price of storing a byte for a second.
    """
    every_secs = costs.making_secs(components)
    new_secs = costs.making_secs(new) if new else 0.0
    row_bytes = sum(costs.stored_bytes(root) for root in components)
    secs = 0.0
    for placed in context.fragments:
        arrived = context.arrived.get(placed.row, context.now)
        made_secs = every_secs if since <= arrived < context.now else new_secs
        held_secs = max(context.now - max(since, arrived), 0.0)
        secs += placed.fragment.rows * (made_secs + row_bytes * held_secs * byte_secs)
    return secs


def _read_secs(connection: Connection, table: str, since: float, now: float) -> tuple[float, float, float]:
    """The seconds of the adaptive models' reads: as they were, and if all or no memos were ready."""
    reads, models = schema.reads.c, schema.models.c
    sums = [func.coalesce(func.sum(column), 0.0) for column in (reads.secs, reads.all_secs, reads.none_secs)]
    query = (
        select(*sums)
        .join(schema.models, models.id == reads.model)
        .where(
            reads.table_name == table, reads.read_at >= since, reads.read_at < now, models.policy == PolicyName.ADAPTIVE
        )
    )
    own, kept, computed = connection.execute(query).one()
    return float(own), float(kept), float(computed)


def _made_secs(costs: CostModel, graph: MergedGraph, stored: Sequence[ReadyMemo], since: float, now: float) -> float:
    """Computing the memos that were made since then; those of a fragment were computed together."""
    made: defaultdict[int, set[str]] = defaultdict(set)
    rows: dict[int, int] = {}
    for one in stored:
        if since <= one.changed_at < now:
            made[one.fragment].add(one.fingerprint)
            rows[one.fragment] = one.rows
    secs: Mapping[frozenset[str], float] = {
        names: costs.making_secs([graph.operations[name] for name in sorted(names)])
        for names in {frozenset(names) for names in made.values()}
    }
    return sum(secs[frozenset(names)] * rows[fragment] for fragment, names in made.items())
