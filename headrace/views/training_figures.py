"""The figures by which a user sees whether a placement, servers or pruning were worth it on a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.plan_history import FollowedPlanRow
    from headrace.screens.training_figures import PlacementRow, PrunedRow, ServedRow
    from trainer.planning.kept_importance import KeptImportance
    from trainer.planning.plan import PartitionPlan
    from trainer.servers.run_servers import RunServers
    from trainer.servers.server_status import ServerStatus

#: A figure is not worth a longer wait for a server that is away.
_PATIENCE_SECS = 2.0
#: The status of servers by address.
Statuses = Mapping[str, "ServerStatus"]


def placement_row(
    plan: PartitionPlan | None, *, how: str, capacities: Mapping[str, int] | None = None
) -> PlacementRow | None:
    """How a plan divides the weights; None without one, or without tables. ``capacities``: the most rows of hashed tables, by name."""
    from headrace.screens.training_figures import PlacementRow

    if plan is None:
        return None
    tables = [replace(table, rows=(capacities or {}).get(table.name, table.rows)) for table in plan.tables]
    weights = [0] * plan.cores
    for shard in (shard for table in tables for shard in table.shards()):
        weights[shard.core] += shard.rows * shard.slice_.columns
    stored, whole = sum(weights), sum(table.rows * table.columns for table in tables)
    return PlacementRow(how, plan.cores, max(weights) / stored, 1 - whole / stored) if stored else None


def followed_plan_row(run_dir: str) -> FollowedPlanRow:
    """How the plan of a run has followed its data."""
    from headrace.screens.plan_history import FollowedPlanRow
    from trainer.job.feedback.plan_log import PlanLog

    return FollowedPlanRow.of(run_dir, PlanLog.read(run_dir))


def server_statuses(servers: RunServers | None, among: Collection[str] | None = None) -> Statuses:
    """What servers have done since their processes began, without those that are away.

    ``among``: the addresses of the servers to ask; None: all.
    """
    if servers is None:
        return {}
    return servers.statuses(among=among, patience_secs=_PATIENCE_SECS)


def served_row(before: Statuses, after: Statuses, events: int) -> ServedRow | None:
    """What servers have done between two looks; None if none has answered at both.

    A server whose process has begun again in between counts from 0, and is left out.
    """
    from headrace.screens.training_figures import ServedRow

    pairs = [(before[at], now) for at, now in after.items() if at in before and now.process == before[at].process]
    if not pairs:
        return None
    fetched, updated = (sum(getattr(now, name) - getattr(then, name) for then, now in pairs) for name in ("fetched_rows", "updated_rows"))  # fmt: skip
    waited = sum(now.wait_secs - then.wait_secs for then, now in pairs)
    return ServedRow(len(pairs), fetched, updated, max(waited, 0.0), events)


def scaled_row(found: Statuses) -> ServedRow | None:
    """What the servers of a job that scales them have done that run at its end; None if none has answered.

    ``found``: of servers that the job has started. What those have done that ended before is not known.
    """
    from trainer.servers.server_status import ServerStatus

    began = {at: ServerStatus(process=one.process) for at, one in found.items()}
    row = served_row(began, found, 0)
    return None if row is None else replace(row, are_last=True)


def pruned_row(tables: tuple[KeptImportance, ...]) -> PrunedRow:
    """The share of importance that the kept rows of pruned tables have."""
    from headrace.screens.training_figures import PrunedRow

    shares = [one.importance_share for one in tables if one.rows_for_most]
    return PrunedRow(
        sum(one.kept_rows for one in tables), sum(one.seen_rows for one in tables), min(shares, default=None)
    )
