"""What ``headrace train --plan``, ``--towers`` and ``--tpu`` make of plans, and of the statistics in the catalog, before a run begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.cli.options.files import read_file
from headrace.cli.options.tpus import TpuOptions
from headrace.cli.train_options.hosts import HostOptions
from headrace.feature_statistics import statistics_of_inputs
from headrace.terminal.output import say
from headrace.terminal.quiet import keep_tensorflow_quiet
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.options.config import TrainConfig
    from trainer.options.towers import HostTowers
    from trainer.planning.plan import PartitionPlan
    from trainer.tables.sparse_core import SparseCoreSettings
    from trainer.tables.tpu.slices import TpuSlice
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


def plan_of_training(file: str, job: HostOptions | None, tpus: TpuOptions | None) -> PartitionPlan | None:
    """The plan in a file; None without one, and for a plan that follows the data. Raises :class:`~trainer.errors.ConfigError` for a plan that the job's hosts cannot hold."""
    from trainer.planning.plan_document import read_plan

    if not file:
        return None
    if job is not None and job.plan_follows_data:
        from trainer.run.weights.run_partition import check_fixed_hosts

        check_fixed_hosts(job.hosts, 0, job.caught_up_hosts, where="--plan")
        return None
    if job is not None and tpus is not None:
        raise InputError("--plan with --tpu needs a single process: remove --hosts", where="--plan, --tpu", value=file,
                         next_step="remove --hosts, or leave --plan out")  # fmt: skip
    plan = read_plan(read_file(file, "--plan"), file)
    if job is not None:
        from trainer.run.weights.run_partition import check_hosts

        check_hosts(plan, job.hosts, job.least_hosts, job.caught_up_hosts)
    return plan


def towers_of_training(file: str, job: HostOptions | None) -> HostTowers:
    """The towers of ``--towers``, and the hosts of a machine; no towers without the file.

    Raises :class:`InputError` for towers that the job cannot have, and machines that its hosts do not fill.
    """
    from trainer.options.towers import HostTowers
    from trainer.planning.host_grid import grid_of
    from trainer.planning.towers.tower_document import read_towers
    from trainer.run.weights.run_partition import check_fixed_hosts
    from trainer.tables.routes.towers.placement import placement_of_hosts

    of_machine = 1 if job is None else job.hosts_per_machine or 1
    if job is not None and not file:
        for hosts in filter(None, (job.hosts, job.caught_up_hosts)):
            grid_of(hosts, of_machine)  # raises
    if not file:
        return HostTowers(machine_hosts=of_machine)
    if job is None:
        raise InputError(
            "--towers must go with --hosts",
            where="--towers",
            value=file,
            next_step="give --hosts too, at least one a tower",
        )
    towers = read_towers(read_file(file, "--towers"), file).towers
    check_fixed_hosts(job.hosts, job.least_hosts, job.caught_up_hosts, where="--towers")
    found = HostTowers(towers, of_machine, job.tower_sums)
    placement_of_hosts(found, job.hosts)  # raises
    return found


def partition_of_towers(towers: HostTowers, hosts: int, solution: ReadSolution, config: TrainConfig) -> PartitionPlan:
    """Where hosts have the tables of their towers. Raises :class:`~trainer.errors.ConfigError` for towers of other inputs, or too many."""
    from trainer.run.preparation.preparation import described
    from trainer.run.weights.run_partition import check_tables
    from trainer.tables.routes.towers.placement import placement_of_hosts, tower_partition

    layout = described(solution, config)[1]
    plan = tower_partition(layout.features, placement_of_hosts(towers, hosts))
    check_tables(plan, layout, config, option="--towers")
    return plan


def capacities_of(solution: ReadSolution, config: TrainConfig) -> dict[str, int]:
    """The most rows of each hashed table, by name."""
    from trainer.model.task_heads import heads_of
    from trainer.run.preparation.preparation import described
    from trainer.run.weights.run_state import limits_of

    limits = limits_of(described(solution, config)[1], config, heads_of(solution.target)) if config.hashed else {}
    return {name: one.capacity for name, one in limits.items()}


def check_plan_tables(plan: PartitionPlan, solution: ReadSolution, options: Mapping[str, Any], folder: str) -> None:
    """Raise the errors of a plan of other tables than the run's, before its options are chosen."""
    from trainer.model.user_functions import with_code_digests
    from trainer.run.choosing.choose import options_before_choices
    from trainer.run.preparation.preparation import described
    from trainer.run.weights.run_partition import check_tables

    known = options_before_choices(options, run_dir=folder)
    keep_tensorflow_quiet()
    known = with_code_digests(known)
    check_tables(plan, described(solution, known)[1], known)


def with_hot_rows(home: str, solution: ReadSolution, config: TrainConfig) -> TrainConfig:
    """The options with the hot rows of each table; a share of memory is shared out by the statistics that are known, which is said.

    Raises :class:`~trainer.errors.ConfigError` for the name of no table.
    """
    from headrace.cli.plan import tables_of_model
    from headrace.screens.hot_rows import shared_out_text
    from trainer.options.hot_rows import HotOptions
    from trainer.planning.hot_shares import hot_rows_of, shares_of

    if config.hot_rows is None:
        return config
    keep_tensorflow_quiet()
    found = tables_of_model(home, solution.model, solution.model_version, config, None)
    if not config.hot_rows.share:
        return replace(config, hot_rows=HotOptions.read(hot_rows_of(config.hot_rows, found.facts)))
    shares = shares_of(config.hot_rows, found.facts)
    say(shared_out_text(shares, are_assumed=all(one.is_assumed for one in found.facts)))
    return replace(config, hot_rows=HotOptions.read({one.name: one.hot_rows for one in shares}))


def sparse_core_settings(
    warehouse: Warehouse,
    solution: ReadSolution,
    config: TrainConfig,
    tpus: TpuOptions,
    slice_: TpuSlice,
    plan: PartitionPlan | None,
) -> SparseCoreSettings | None:
    """The stacks and limits of SparseCore for a run, and what the slice does not take of its plan, which are said. None on v2 to v4."""
    from trainer.model.task_heads import heads_of
    from trainer.run.preparation.preparation import described
    from trainer.run.weights.one_engine import joined_features
    from trainer.run.weights.slice_plan import slice_tables
    from trainer.tables.spec import tables_of
    from trainer.tables.tpu.planned_stacks import not_taken

    layout = described(solution, config)[1]
    features = joined_features(layout, config, heads_of(solution.target))
    with warehouse.catalog.read() as connection:
        known = statistics_of_inputs(connection, {one.name: one.fingerprint for one in solution.inputs})
    found = slice_tables(
        plan,
        layout,
        features,
        known,
        batch_events=config.batch_rows,
        sparse_cores=slice_.replicas * max(slice_.sparse_cores, 1),
        max_ids=tpus.max_ids,
        max_unique_ids=tpus.max_unique_ids,
    )
    whole = found.settings.replicated
    if plan is not None:
        for sentence in not_taken(plan, tables_of(features), slice_.replicas, slice_.sparse_cores, whole):
            say(sentence)
    if not slice_.sparse_cores:
        return None
    say(found.reason)
    return found.settings
