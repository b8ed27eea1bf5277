"""The plan of a job's tables that follows its data, ``headrace train --plan auto``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.feature_statistics import statistics_of_inputs
from headrace.terminal.output import say
from transforms.errors import HeadraceError

if TYPE_CHECKING:
    from trainer.job.control.job_files import JobFiles
    from trainer.job.feedback.epoch_prices import EpochPricing
    from trainer.job.feedback.plan_feedback import PlanFeedback
    from trainer.planning.plan import PartitionPlan
    from trainer.run.preparation.preparation import PreparedRun
    from warehouse.warehouse import Warehouse


def plan_feedback(warehouse: Warehouse, prepared: PreparedRun, files: JobFiles, hosts: int) -> PlanFeedback:
    """What changes the plan of a run's tables on so many hosts.

    It goes on with the plan that it has decided before, if the newest commit is by that plan or the one before, else begins with that of the newest commit.
    A new run begins with the best plan by the statistics in the catalog, if these have all features and it is better than rows that are spread over the
    hosts. Rows are spread where hosts cannot hold the tables by the plan. Raises :class:`~trainer.errors.ConfigError` for a model without tables.
    """
    from trainer.errors import ConfigError
    from trainer.job.feedback.epoch_prices import EpochPricing
    from trainer.job.feedback.plan_feedback import PlanFeedback
    from trainer.planning.topologies import topology_of

    config, features = prepared.config, prepared.layout.features
    if not (config.deep and features):
        raise ConfigError("a plan must place embedding tables, and this model has none", where="--plan", value="auto",
                          next_step='leave --plan out, or give {"deep": true} with --config')  # fmt: skip
    pricing = EpochPricing(tuple(features), topology_of(f"cpu:{hosts}"), config.rows_of_step(hosts))
    found = PlanFeedback(files, config.run_dir, pricing, is_possible=partial(_is_possible, prepared, hosts), say=say)
    saved, stored = prepared.saved, None
    if saved is not None and saved.partition is not None and saved.partition.tables:
        stored = saved.partition
    is_own = found.has_plan and (saved is None or found.has_trained(stored))
    commit, step = (0, 0) if saved is None else (saved.number, saved.progress.step)
    if is_own and (found.plan is None or _is_possible(prepared, hosts, found.plan)):
        found.go_on(commit, step)
        return found
    if saved is None:
        planned = _planned(warehouse, prepared, pricing)
        is_possible = planned is not None and _is_possible(prepared, hosts, planned)
        found.begin(planned if is_possible else None, "statistics", commit, step)
    elif stored is None or _is_possible(prepared, hosts, stored):
        found.begin(stored, "commit", commit, step)
    else:
        found.begin(None, "hosts", commit, step)
    return found


def _is_possible(prepared: PreparedRun, hosts: int, plan: PartitionPlan) -> bool:
    """Whether so many hosts can hold the tables of a run by a plan."""
    from trainer.run.weights.run_partition import check_hosts, check_pruned_hosts, check_tables

    if prepared.config.pruning is not None and not plan.has_whole_rows:
        return False
    try:
        check_hosts(plan, hosts)
        check_tables(plan, prepared.layout, prepared.config)
        check_pruned_hosts(prepared.layout, prepared.config, prepared.head, hosts, plan)
    except HeadraceError:
        return False
    return True


def _planned(warehouse: Warehouse, prepared: PreparedRun, pricing: EpochPricing) -> PartitionPlan | None:
    """The best plan by the statistics in the catalog; None unless these have all features, and it is better than spreading rows."""
    from trainer.job.feedback.replanning import SLACK

    fingerprints = {one.name: one.fingerprint for one in prepared.solution.inputs}
    with warehouse.catalog.read() as connection:
        known = statistics_of_inputs(connection, fingerprints)
    if any(one.name not in known for one in pricing.features):
        return None
    facts = pricing.facts(known)
    if (best := pricing.best(facts)) is None:
        return None
    # rows that are spread are as fast whatever the data does
    is_better = pricing.loads(best, facts).step_secs < (1 - SLACK) * pricing.loads(None, facts).step_secs
    return best if is_better else None
