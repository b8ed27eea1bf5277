"""Expected requests of components over a horizon, from the history of reads.

The rate of a live model is its whole-table reads in the window plus the prior's, over the observed days plus the prior's. So a
model without reads has the prior's rate, and a model that is read daily soon has its own. A node is requested by every live
model that contains it, and by future models: the share of nodes that are in two models or more, times the prior's rate, counts
for each node. The present request is added. The same history gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, and_, func, insert, select

from transforms.errors import InputError
from warehouse.catalog import schema
from warehouse.catalog.catalog import chunks

_DAY_SECS = 86_400.0


@dataclass(frozen=True, slots=True)
class Prior:
    """The assumed history of a model that was never read: ``reads`` of the whole table in ``days``."""

    reads: float = 2.0
    days: float = 14.0

    def __post_init__(self) -> None:
        if not (self.reads >= 0 and self.days > 0 and math.isfinite(self.reads + self.days)):
            raise InputError("a prior must have reads >= 0 and days > 0", where="Prior", value=(self.reads, self.days))


@dataclass(frozen=True, slots=True)
class History:
    """A model's whole-table ``reads`` in ``days``."""

    reads: float
    days: float


NO_HISTORY = History(0.0, 0.0)


def reads_per_day(history: History, prior: Prior) -> float:
    """The expected rate: the mean of a Gamma posterior, whose prior counts as ``prior.days`` of observation."""
    return (prior.reads + history.reads) / (prior.days + history.days)


def pickup_share(models_of: Mapping[str, Collection[str]]) -> float:
    """The share of nodes in two models or more; 0 without nodes."""
    shared = sum(len(models) >= 2 for models in models_of.values())
    return shared / len(models_of) if models_of else 0.0


def expected_requests(
    models_of: Mapping[str, Collection[str]],
    histories: Mapping[str, History],
    *,
    horizon_days: float,
    prior: Prior = Prior(),
) -> dict[str, float]:
    """The requests of every node over the horizon, including the present one.

    ``models_of``: the names of the live models that contain a node, including the requesting one. ``histories`` may leave out
    models without reads. A node is never requested more often than a node that it contains.
    """
    rates = {name: reads_per_day(history, prior) for name, history in histories.items()}
    unknown = reads_per_day(NO_HISTORY, prior)
    to_come = pickup_share(models_of) * unknown
    return {
        node: 1.0 + horizon_days * (to_come + math.fsum(rates.get(name, unknown) for name in sorted(set(models))))
        for node, models in models_of.items()
    }


def record_read(
    connection: Connection,
    model: int,
    table: str,
    start_at: float | None,
    end_at: float | None,
    rows: int,
    now: float,
) -> None:
    """Record a read of a model's row for training; times are epoch seconds."""
    connection.execute(insert(schema.reads).values(
        model=model, table_name=table, start_at=start_at, end_at=end_at, rows=rows, read_at=now))  # fmt: skip


def models_containing(
    connection: Connection, table: str, nodes: Collection[str], asking: str
) -> dict[str, frozenset[str]]:
    """The names of the live models of a table that contain each node (by fingerprint), and ``asking`` for every node."""
    found: dict[str, set[str]] = {node: {asking} for node in sorted(nodes)}
    models, inputs, within = schema.models, schema.model_inputs, schema.component_subgraphs
    for chunk in chunks(sorted(found)):
        query = (
            select(within.c.subgraph, models.c.name)
            .distinct()
            .join(inputs, inputs.c.fingerprint == within.c.fingerprint)
            .join(models, and_(models.c.id == inputs.c.model, models.c.live.is_(True), models.c.table_name == table))
            .where(within.c.subgraph.in_(chunk))
        )
        for node, name in connection.execute(query):
            found[node].add(name)
    return {node: frozenset(names) for node, names in found.items()}


def read_histories(
    connection: Connection, table: str, names: Collection[str], *, table_rows: int, now: float, window_days: float
) -> dict[str, History]:
    """The reads of a table by models, over all their versions, in the last ``window_days``.

    A read of some partitions counts as the part of ``table_rows`` that it covered, at most one.
    """
    models, reads = schema.models, schema.reads
    since = now - window_days * _DAY_SECS
    histories: dict[str, History] = {}
    for chunk in chunks(sorted(names)):
        first_submitted = connection.execute(
            select(models.c.name, func.min(models.c.submitted_at))
            .where(models.c.name.in_(chunk))
            .group_by(models.c.name)
        )
        days = {name: min(max(now - first, 0.0) / _DAY_SECS, window_days) for name, first in first_submitted}
        counted = connection.execute(
            select(models.c.name, func.count(), func.sum(reads.c.rows))
            .join(models, models.c.id == reads.c.model)
            .where(models.c.name.in_(chunk), reads.c.table_name == table, reads.c.read_at > since)
            .group_by(models.c.name)
        )
        whole = {name: min(float(count), float(rows) / max(table_rows, 1)) for name, count, rows in counted}
        histories.update({name: History(whole.get(name, 0.0), observed) for name, observed in days.items()})
    return histories


def load_expected_requests(
    connection: Connection,
    table: str,
    nodes: Collection[str],
    *,
    asking: str,
    table_rows: int,
    now: float,
    horizon_days: float,
    prior: Prior = Prior(),
) -> dict[str, float]:
    """:func:`expected_requests` of nodes (by fingerprint) from the catalog's history.

    ``asking``: the model that is submitted or read, live or not. The window of history is as long as the horizon.
    """
    models_of = models_containing(connection, table, nodes, asking)
    names = frozenset[str]().union(*models_of.values())
    histories = read_histories(connection, table, names, table_rows=table_rows, now=now, window_days=horizon_days)
    return expected_requests(models_of, histories, horizon_days=horizon_days, prior=prior)
