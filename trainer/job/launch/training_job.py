"""Make a job of a prepared run: its plan, its documents, and the commit that it begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.stored_plans import find_plan
from trainer.errors import ConfigError, RunMismatch
from trainer.job.control.job_files import JobFiles, verify_document
from trainer.job.launch.job_spec import FORMAT, JobSpec, ServersSpec, job_identity
from trainer.job.launch.outcome import read_outcome
from trainer.options.config import TrainConfig
from trainer.options.towers import FLAT, HostTowers
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_bytes
from trainer.run.preparation.job_plan import JobPlan, check_shared, check_shuffled, plan_job
from trainer.run.preparation.preparation import PreparedRun
from trainer.run.weights.run_partition import check_pruned_hosts, check_pruned_servers
from trainer.run.weights.saved_run import SavedRun
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import JobSettings
from trainer.scheduling.orders import Commit
from transforms.errors import NotFound
from warehouse.solution.solution import ReadSolution
from warehouse.storage.locations import is_gcs, parse_gcs

#: The largest number of events of a host's share of a unit.
UNIT_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a run is cut into units and epochs.

    Attributes:
        unit_rows: the largest number of events of a host's share of a unit.
        shuffle_events: see :class:`JobPlan`.
        epoch_rows: see :meth:`JobPlan.data_range`; units are then so small that an epoch has a whole one.
        by_pass: see :func:`plan_job`; :func:`extend_job` plans the rest.
    """

    unit_rows: int = UNIT_ROWS
    shuffle_events: int = 0
    epoch_rows: int = 0
    by_pass: bool = False

    def plan(self, prepared: PreparedRun, hosts: int) -> JobPlan:
        """The plan of what is left of a run, for at most so many hosts. Raises what :func:`plan_job` raises."""
        rows = min(self.unit_rows, max(1, self.epoch_rows // hosts)) if self.epoch_rows else self.unit_rows
        return plan_job(
            prepared,
            unit_rows=rows,
            hosts=hosts,
            first_unit=_next_unit(prepared.saved),
            shuffle_events=self.shuffle_events,
            by_pass=self.by_pass,
        )


_PLAN_OPTIONS = PlanOptions()


@dataclass(frozen=True)
class LaunchedJob:
    """A job that is ready to run.

    Attributes:
        spec: its document, which is written.
        plan: what it trains.
        newest: the commit that it begins with.
    """

    spec: JobSpec
    plan: JobPlan
    newest: Commit


def make_job(
    prepared: PreparedRun,
    files: JobFiles,
    settings: JobSettings,
    *,
    home: str,
    options: PlanOptions = _PLAN_OPTIONS,
    token: str = "",
    partition: PartitionPlan | None = None,
    servers: ServersSpec | None = None,
    server_plan: PartitionPlan | None = None,
    towers: HostTowers = FLAT,
    wire_values: str = "float32",
    dense_values: str = "float32",
    batch_file_bytes: int = 0,
) -> LaunchedJob:
    """Write the documents of a job. A job that was not finished goes on with the plan that it has.

    Args:
        prepared: the run.
        files: of the job.
        settings: of its state machine.
        home: the warehouse's home, from which readers read.
        options: how the run is cut.
        token: of the job, which its processes on other machines have; empty: one that is made here.
        partition: the plan by which hosts hold tables, one core each (:mod:`trainer.run.weights.run_partition` checks it); None: rows are
            spread over them.
        servers: that hold the tables instead of the hosts.
        server_plan: the plan by which they do, one core each; None: rows are spread over them.
        towers: by which hosts exchange, whose plan is ``partition``; without any they exchange flat. Its ``machine_hosts`` share a machine.
        wire_values: how rows and gradients are encoded between hosts that hold the tables.
        dense_values: how dense gradients are sent between hosts.
        batch_file_bytes: the most bytes of all files of batches in the home; 0: hosts use none.

    Raises :class:`~transforms.errors.StorageError`, :class:`RunMismatch` for the files of a job of another run, and
    :class:`~trainer.errors.ConfigError` for pruned tables of which a host, or a server, would have no place.
    """
    model = prepared.layout, prepared.config, prepared.head
    if servers is None:
        check_pruned_hosts(*model, settings.most_hosts, partition)
    else:
        check_pruned_servers(*model, len(servers.addresses), server_plan)
    run_dir = prepared.config.run_dir
    bucket_run = run_dir if is_gcs(run_dir) else ""
    _check_run(files, bucket_run)
    files.make()
    if token:
        files.put_token(token)
    files.make_token()
    saved = prepared.saved
    put_solution(files, prepared.solution)
    if unfinished := _unfinished_plan(files, saved, bucket_run):
        name, plan = unfinished
        if (plan := plan_with_options(plan, prepared, settings.most_hosts)) is not unfinished[1]:
            plan = replace(plan, continues=name)
            name = files.put_document(plan.to_bytes())
    else:
        plan = options.plan(prepared, settings.most_hosts)
        name = files.put_document(plan.to_bytes())
    attempt = saved.job.attempt if saved is not None and saved.job is not None else 0
    newest = Commit(saved.number if saved else 0, attempt, max(_next_unit(saved), plan.units.first_unit))
    if servers is not None and token:
        servers = _same_run(servers, files)
    spec = JobSpec(
        FORMAT,
        job_identity(files),
        settings,
        plan.data_range(name, options.epoch_rows),
        home,
        bucket_run,
        keep_commits=prepared.config.keep_checkpoints,
        statistics_share=prepared.config.statistics_share,
        partition="" if partition is None else files.put_document(plan_bytes(partition)),
        servers=_with_plan(servers, server_plan, files),
        towers=towers.towers,
        machine_hosts=towers.machine_hosts,
        sends_sums=towers.sends_sums,
        hot_rows=_hot_rows(prepared.config),
        wire_values=wire_values,
        dense_values=dense_values,
        batch_file_bytes=batch_file_bytes,
    )
    spec.write(files)
    return LaunchedJob(spec, plan, newest)


def _hot_rows(config: TrainConfig) -> Mapping[str, int]:
    """The hot rows of each table. Raises :class:`~trainer.errors.ConfigError` where they are not shared out yet."""
    if config.hot_rows is None:
        return {}
    if config.hot_rows.by_table is None:
        raise ConfigError("the hot rows of a job must be numbers by table", where="hot_rows", value=config.hot_rows.to_document(),
                          next_step="trainer.planning.hot_shares.hot_rows_of shares them out")  # fmt: skip
    return config.hot_rows.by_table


def _same_run(servers: ServersSpec, files: JobFiles) -> ServersSpec:
    """The servers with the run's number that hosts on other machines have, if the job before has not ended: they train on."""
    try:
        before = JobSpec.read(files).servers
    except NotFound:
        return servers
    is_over = read_outcome(files) is not None
    return servers if before is None or is_over else replace(servers, run=before.run)


def _with_plan(servers: ServersSpec | None, plan: PartitionPlan | None, files: JobFiles) -> ServersSpec | None:
    return servers if servers is None or plan is None else replace(servers, plan=files.put_document(plan_bytes(plan)))


def extend_job(
    prepared: PreparedRun, files: JobFiles, spec: JobSpec, options: PlanOptions = _PLAN_OPTIONS
) -> DataRange | None:
    """Plan what is left of a run whose job has trained its whole plan; None if nothing is left, and the job does not wait for more."""
    if not prepared.planned_events:
        if spec.data is None or spec.data.is_last:
            return None
        data = replace(spec.data, is_last=True)  # so that the job ends
        replace(spec, data=data).write(files)
        return data
    plan = options.plan(prepared, spec.settings.most_hosts)
    put_solution(files, prepared.solution)
    data = plan.data_range(files.put_document(plan.to_bytes()), options.epoch_rows)
    replace(spec, data=data).write(files)
    return data


def put_solution(files: JobFiles, solution: ReadSolution) -> str:
    """Store a read solution under its digest."""
    text = json.dumps(solution.to_document(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return files.put_document(text.encode("ascii"))


def _next_unit(saved: SavedRun | None) -> int:
    return saved.job.next_unit if saved is not None and saved.job is not None else 0


def _check_run(files: JobFiles, bucket_run: str) -> None:
    """Raise :class:`RunMismatch` for the files of a job of another run."""
    try:
        found = JobSpec.read(files).bucket_run
    except NotFound:
        return
    if _plain(found) != _plain(bucket_run):
        raise RunMismatch("a job folder must belong to one run, got the folder of another run", where=str(files.root),
                          value=_plain(found) or "a run in this folder", allowed=_plain(bucket_run) or "a run in this folder",
                          next_step="give another --job-dir")  # fmt: skip


def _plain(bucket_run: str) -> str:
    """A run directory in a bucket without the settings of its store."""
    return parse_gcs(bucket_run).plain if bucket_run else ""


def _unfinished_plan(files: JobFiles, saved: SavedRun | None, bucket_run: str) -> tuple[str, JobPlan] | None:
    """The plan of a commit that has not trained all of it, by the name that the commit gives it; None if there is none.

    Of a plan of an earlier release that is not the name of its document as it would be written now.
    """
    if saved is None or saved.job is None:
        return None
    name = saved.job.plan
    if bucket_run:
        _fetch_plan(files, bucket_run, name)
    try:
        plan = JobPlan.from_bytes(files.read_document(name), f"plan {name[:12]}")
        files.read_document(plan.solution)
    except NotFound:
        return None  # what is left is planned again, from the counts of the commit
    is_left = saved.job.next_unit < plan.stop_unit or bool(saved.job.carried or saved.job.carried_units)
    return (name, plan) if is_left else None


def plan_with_options(plan: JobPlan, prepared: PreparedRun, hosts: int) -> JobPlan:
    """The plan with the options of the run now. Its units stay, whatever the batch.

    Raises :class:`ConfigError` for a batch that its windows of shuffled events, or its hosts, do not fit.
    """
    now = prepared.config.to_document()
    if dict(plan.config) == now:
        return plan
    check_shuffled(plan.shuffle_events, prepared.config.batch_rows)
    check_shared(prepared.config, hosts)
    return replace(plan, config=now, identity=replace(plan.identity, config=now))


def _fetch_plan(files: JobFiles, bucket_run: str, name: str) -> None:
    """Copy a plan from the bucket to the documents of the job, if it is there and the job does not have it."""
    if files.has_document(name):
        return
    found = find_plan(open_run(bucket_run), name)
    if found is None:
        return
    verify_document(found.plan, name, f"{bucket_run}: plan {name[:12]}")
    files.put_document(found.solution)  # which the plan names by its digest
    files.put_document(found.plan)
