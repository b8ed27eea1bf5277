"""``headrace train --hosts``: a training job of several processes on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.cli.commit_samples import CommitSamples
from headrace.cli.held_out_scoring import score_due_pass
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import command_line
from headrace.cli.plan_following import plan_feedback
from headrace.cli.remote_workers import RemoteWorkers, replaced_when_terminated
from headrace.cli.train_options.hosts import HostOptions
from headrace.cli.train_options.training import TrainOptions
from headrace.feature_statistics import JOB, recorder
from headrace.terminal.output import say
from headrace.terminal.progress import progress_bar
from transforms.child_process import module_command
from transforms.errors import listed

if TYPE_CHECKING:
    from trainer.checkpoints.host_steps import StepsByHost
    from trainer.job.control.job_files import JobFiles
    from trainer.job.control.messages import JobStatus
    from trainer.job.feedback.plan_feedback import PlanFeedback
    from trainer.job.launch.job_spec import JobSpec, ServersSpec
    from trainer.job.launch.notices import NoticeSource
    from trainer.job.launch.server_roles import ServerRoles
    from trainer.job.launch.supervisor import ServerScale, Supervisor
    from trainer.job.launch.training_job import PlanOptions
    from trainer.model.idle_units import IdleUnits
    from trainer.options.config import TrainConfig
    from trainer.options.process_range import ProcessRange
    from trainer.options.towers import HostTowers
    from trainer.planning.host_grid import SumFigures
    from trainer.planning.plan import PartitionPlan
    from trainer.run.labels.late_data import LateData
    from trainer.run.loop import TrainReport
    from trainer.run.preparation.preparation import PreparedRun
    from trainer.run.progress.data_changes import ChangePolicy
    from trainer.run.progress.held_out import HeldOut
    from trainer.run.weights.staleness import StalenessCounts
    from trainer.scheduling.events import DataRange
    from trainer.scheduling.job import JobSettings, PhaseSettings
    from trainer.servers.run_servers import RunServers
    from trainer.servers.server_watch import ServerWatch
    from trainer.tables.hashed_counts import HashedCounts
    from trainer.tables.hot_figures import HotFigures
    from trainer.tables.tower_figures import TowerFigures
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

_NO_METRICS = MetricsOptions()


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a job.

    Attributes:
        hosts: its processes, at least one host.
        least_servers: with this number of parameter servers it goes on after preemption notices; 0: it waits for all.
        servers: its parameter servers, if it has spares, with these, and the most of those that it scales.
        spare_servers: of these so many have no tables.
        scales_from: the least servers with tables of a job that scales them; 0: their number is fixed.
        folder: with the job's files; empty: the run directory.
        wire_values: how rows and gradients are encoded between hosts, see :class:`~trainer.tables.wire.settings.WireSettings`.
        dense_values: how dense gradients are sent between hosts.
        of_hosts: the options of host processes of this machine, such as their device.
        metrics: of the processes that this one starts.
        batch_file_bytes: the most bytes of all files of batches in the home; 0: hosts use none.
    """

    hosts: HostOptions
    least_servers: int = 0
    servers: int = 0
    spare_servers: int = 0
    scales_from: int = 0
    folder: str = ""
    wire_values: str = "float32"
    dense_values: str = "float32"
    of_hosts: tuple[str, ...] = ()
    metrics: MetricsOptions = _NO_METRICS
    batch_file_bytes: int = 0


#: Begins to watch the servers of a run.
WatchServers: TypeAlias = "Callable[[RunServers], ServerWatch]"
#: The read solution of the range now; what it reads is pinned until the command ends.
Resolve = Callable[[], "ReadSolution"]


def train_job(
    warehouse: Warehouse,
    resolve: Resolve,
    config: TrainConfig,
    changes: ChangePolicy,
    options: JobOptions,
    remote: RemoteWorkers | None = None,
    plan: PartitionPlan | None = None,
    servers: ServersSpec | None = None,
    towers: HostTowers | None = None,
    *,
    on_commit: Callable[[], None] | None = None,
    check_servers: Callable[[], None] = lambda: None,
    watch: WatchServers | None = None,
    server_scale: ServerScale | None = None,
) -> TrainReport:
    """Train by a controller, readers and hosts, and report as :func:`trainer.run.loop.train` does.

    Args:
        remote: the readers and hosts on other machines; None: processes of this one.
        plan: by which hosts, or servers, hold tables; None: rows are spread over them.
        servers: that hold the tables instead of the hosts.
        towers: by which hosts exchange, whose plan is ``plan``; None: they exchange flat.
        on_commit: called after each commit that is seen.
        check_servers: raises for a server of this machine that has ended by an error, and is not started again.
        watch: begins to watch servers; None: as :func:`trainer.servers.server_watch.watch_servers` does.
        server_scale: starts and ends the servers of a job that scales them; None: others do.

    Raises :class:`~trainer.errors.JobHeld` for a job that a person must release, and :class:`~trainer.errors.RunMismatch` for a run by
    another plan.
    """
    from trainer.scheduling.transitions import JobState

    job = _Job(
        warehouse,
        resolve,
        config,
        changes,
        options,
        remote,
        plan,
        servers,
        towers,
        on_commit,
        check_servers,
        watch,
        server_scale,
    )
    began, status = time.monotonic(), None
    try:
        while job.is_left and (status is None or status.state is JobState.DONE):
            # after a job, its readers and hosts on other machines have ended
            if status is not None and remote is not None and not remote.is_repeated:
                say("an earlier plan is trained: launch the job again to train what has come since")
                break
            status = job.run()
            _refuse_held(status, options.folder or config.run_dir)
            job.prepare()  # the newest commit, and what is left
    finally:
        job.close()
    return job.report(time.monotonic() - began)


def pin_new(pins: ExitStack, read: Callable[[], AbstractContextManager[ReadSolution]]) -> Resolve:
    """A :data:`Resolve` that pins a solution once, however often it is resolved."""
    held: set[str] = set()

    def resolve() -> ReadSolution:
        with ExitStack() as own:
            found = own.enter_context(read())
            if found.digest() not in held:
                held.add(found.digest())
                pins.push(own.pop_all())
            return found

    return resolve


class _Job:
    """A run that is trained by a job."""

    def __init__(
        self,
        warehouse: Warehouse,
        resolve: Resolve,
        config: TrainConfig,
        changes: ChangePolicy,
        options: JobOptions,
        remote: RemoteWorkers | None,
        plan: PartitionPlan | None,
        servers: ServersSpec | None,
        towers: HostTowers | None,
        on_commit: Callable[[], None] | None,
        check_servers: Callable[[], None],
        watch: WatchServers | None,
        server_scale: ServerScale | None,
    ) -> None:
        from trainer.job.control.job_files import JobFiles
        from trainer.options.towers import FLAT

        self._on_commit, self._seen_commit, self._check_servers = on_commit, (0, 0), check_servers
        self._warehouse, self._resolve, self._config = warehouse, resolve, config
        self._changes, self._options, self._remote, self._server_scale = changes, options, remote, server_scale
        self._hold, self._servers, self._watch, self._pauses = "", servers, watch, False
        self._server_plan = None if servers is None else plan
        self._plan = plan if plan is not None and plan.cores > 1 and servers is None else None
        self._towers = FLAT if towers is None else towers
        if self._plan is None:
            self._towers = replace(FLAT, machine_hosts=self._towers.machine_hosts)
        self._feedback: PlanFeedback | None = None
        self._files = JobFiles(Path(options.folder or config.run_dir).absolute())
        self._digest = ""
        self._staleness: dict[int, StalenessCounts] = {}
        self._idle_units: IdleUnits | None = None
        self._hashed: Mapping[str, HashedCounts] = {}
        self._hot: HotFigures | None = None
        self._tower_figures: TowerFigures | None = None
        self._sum_figures: SumFigures | None = None
        self._running_servers: tuple[str, ...] = ()
        self._solution = resolve()
        self.prepare()
        if options.hosts.plan_follows_data:
            self._feedback = plan_feedback(warehouse, self._prepared, self._files, options.hosts.hosts)
        self._samples = CommitSamples(config.run_dir, recorder(warehouse, JOB), self._feedback)
        self._first = _Beginning.of(self._prepared)
        saved = self._prepared.saved
        is_planned = self._plan is not None or self._feedback is not None
        if not is_planned and saved is not None and saved.partition is not None and saved.partition.tables:
            say(
                "the newest commit has a plan for its tables: this job spreads their rows over its hosts; --plan continues with the plan"
            )

    def close(self) -> None:
        """End what runs beside jobs."""
        if self._feedback is not None:
            self._feedback.close()

    @property
    def is_left(self) -> bool:
        """Whether there is something to train, now or later."""
        return bool(self._prepared.planned_events) or self._options.hosts.follow

    def prepare(self) -> None:
        """Look at the newest commit, and score the held-out events if it ends a pass."""
        from trainer.run.progress.lock import run_lock

        with run_lock(self._files.root):
            self._prepared = self._prepare_scored(self._solution)
        if self._plan is not None:
            _check_plan(self._plan, self._prepared)

    def _prepare_scored(self, solution: ReadSolution, *, verifies_all: bool = True) -> PreparedRun:
        """The run and what is left of it, once the figures of the newest pass are known: what is left may depend on them."""
        parts = (self._warehouse, solution, self._config, self._changes)
        prepared = _prepare_unlocked(*parts, verifies_all=verifies_all)
        if (held_out := score_due_pass(self._warehouse, prepared, self._scoring_hosts)) is None:
            return prepared
        return _prepare_unlocked(*parts, verifies_all=False, held_out=held_out)

    @property
    def _scoring_hosts(self) -> int:
        """The processes of this machine that score: as many as hosts, which have their memory when these do not run."""
        return 1 if self._remote is not None else self._options.hosts.hosts

    def run(self) -> JobStatus:
        """Run the job until it ends."""
        from trainer.job.launch.job_spec import JobSpec
        from trainer.job.launch.notices import watch_notices
        from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
        from trainer.job.launch.training_job import make_job
        from trainer.scheduling.holds import ErrorClass

        options, remote = self._options, self._remote
        job = make_job(
            self._prepared,
            self._files,
            job_settings(options),
            home=self._warehouse.storage.home,
            options=self._plan_options(),
            token="" if remote is None else remote.token,
            partition=self._plan if self._feedback is None else self._feedback.plan,
            servers=self._servers,
            server_plan=self._server_plan,
            towers=self._towers,
            wire_values=options.wire_values,
            dense_values=options.dense_values,
            batch_file_bytes=options.batch_file_bytes,
        )
        waits = options.hosts.wait_for_memos and bool(_missing(self._warehouse, self._solution))
        if waits:
            replace(job.spec, data=None).write(self._files)
        self._digest = "" if waits else self._solution.digest()
        prepared, done_before = self._prepared, job.plan.units.due_before(job.newest.next_unit)

        self._samples.begin(job.newest.epochs)

        def left_steps(next_unit: int) -> float | None:
            """The steps that are still to be trained; None where more may come."""
            if options.hosts.follow or next_unit > job.plan.stop_unit:
                return None
            units = job.plan.units
            left = units.due_before(job.plan.stop_unit) - units.due_before(next_unit)
            return left / self._config.rows_of_step(options.hosts.hosts)

        def show(status: JobStatus) -> None:
            self._check_servers()
            self._show_hold(status)
            self._report_commit(status)
            self._samples.see(status.commit_epochs, left_steps(status.next_unit))
            if self._feedback is not None:
                self._feedback.see(status)
            self._staleness |= _staleness(status)
            self._idle_units = _idle_units(status) or self._idle_units
            self._hashed = _hashed_counts(status) or self._hashed
            self._hot = _hot_figures(status) or self._hot
            self._tower_figures = _tower_figures(status) or self._tower_figures
            self._sum_figures = _sum_figures(status) or self._sum_figures
            self._running_servers = status.running_servers or self._running_servers
            if status.next_unit > job.plan.stop_unit:
                return report(0, 0, _sentence(prepared, status))  # new data, whose plan is another
            is_committed = status.attempt == status.commit_attempt
            # An epoch may be trained while the one before it is still being written; a job that begins again has no epoch yet.
            first_unit = max(status.first_unit, status.next_unit)
            done = job.plan.units.due_before(first_unit) - done_before
            reports = [one.progress for one in status.members if one.progress is not None]
            now = sum(one.events for one in reports if one.attempt == status.attempt and not is_committed)
            report(min(done + now, prepared.planned_events), prepared.planned_events, _sentence(prepared, status))

        settings = SupervisorSettings(grace_secs=options.hosts.grace_secs, poll_secs=options.hosts.poll_secs)
        self._pauses = job.plan.pauses
        find_more = self._find_more if options.hosts.follow or waits or self._pauses else None
        with progress_bar(f"training {prepared.solution.model}", "events") as report:
            spec = JobSpec.read(self._files)
            supervisor = Supervisor(
                self._files,
                spec.job,
                partial(
                    role_command,
                    str(self._files.root),
                    listen="" if remote is None else str(remote.listen),
                    of_hosts=options.of_hosts,
                    metrics=options.metrics,
                ),
                show,
                say,
                settings,
                find_more,
                None if remote is None else remote.workers,
                server_roles(spec, self._files, token="" if remote is None else remote.token, watch=self._watch),
                worker_roles(spec, self._files, token="" if remote is None else remote.token),
                self._server_scale,
                find_partition=None if self._feedback is None else self._feedback.wanted,
            )
            sources = _notice_sources(self._files, options.hosts)
            signals = _signals(supervisor) if remote is None else replaced_when_terminated(supervisor.stop)
            with signals, watch_notices(sources, supervisor.give_notice):
                status = supervisor.run(job.newest)
        if self._feedback is not None:
            self._feedback.finish()
        if supervisor.has_notice and status.hold is not None and status.hold.error_class is ErrorClass.DATA_NOT_READY:
            return replace(status, hold=None)  # it left while it waited for data: the same command waits on
        return status

    def _report_commit(self, status: JobStatus) -> None:
        found = (status.commit_epochs, status.commit_attempt)
        if self._on_commit is not None and found != self._seen_commit:
            self._on_commit()
        self._seen_commit = found

    def _show_hold(self, status: JobStatus) -> None:
        """Say the reason of a hold that this process waits out."""
        hold = "" if status.hold is None or self._remote is None else status.hold.reason
        if hold and hold != self._hold:
            say(
                f"the job is held: {hold}\n  next:    correct the cause, then: headrace holds release {self._files.root}"
            )
        self._hold = hold

    def _find_more(self, status: JobStatus) -> DataRange | None:
        """The units of data that the job does not know, when it has trained all that it knows."""
        if self._pauses and self._digest:
            return self._extend(self._solution)
        if self._digest and table_version(self._warehouse, self._solution.table) == self._solution.table_version:
            return None
        self._check_memos()
        found = self._resolve()
        if found.digest() == self._digest:
            return None
        self._check_memos()  # of what came in between, too
        self._solution, self._digest = found, found.digest()
        return self._extend(found)

    def _extend(self, solution: ReadSolution) -> DataRange | None:
        """Plan what is left of the run, up to the next scoring of held-out events."""
        from trainer.job.launch.job_spec import JobSpec
        from trainer.job.launch.training_job import extend_job

        prepared = self._prepare_scored(solution, verifies_all=False)
        found = extend_job(prepared, self._files, JobSpec.read(self._files), self._plan_options())
        self._pauses = found is not None and not found.is_last
        return found

    def _plan_options(self) -> PlanOptions:
        """How the run is cut: passes are planned one at a time, since this process scores what they give."""
        return replace(plan_options(self._options, self._config), by_pass=True)

    def _check_memos(self) -> None:
        """Raise :class:`~trainer.errors.DataNotReady` while memos are missing that the job waits for."""
        from trainer.errors import DataNotReady

        if self._options.hosts.wait_for_memos and (missing := _missing(self._warehouse, self._solution)):
            raise DataNotReady("all memos of the range must be ready", where=self._solution.model, value=f"{missing:,} are not",
                               next_step="start a worker: headrace work")  # fmt: skip

    def report(self, secs: float) -> TrainReport:
        """The report of the command."""
        from trainer.run.weights.staleness import StalenessCounts

        staleness = sum(self._staleness.values(), StalenessCounts())
        found = replace(
            _report(self._first, self._prepared, secs),
            staleness=staleness,
            idle_units=self._idle_units,
            hashed_counts=self._hashed,
            hot=self._hot,
            tower_figures=self._tower_figures,
            sum_figures=self._sum_figures,
            running_servers=self._running_servers,
        )
        return replace(found, finished=False) if self._options.hosts.follow else found  # there may be more data later


def _check_plan(plan: PartitionPlan, prepared: PreparedRun) -> None:
    """Raise the errors of a plan that is not one of the run."""
    from trainer.run.weights.run_partition import check_stored, check_tables

    check_tables(plan, prepared.layout, prepared.config)
    check_stored(plan, prepared.saved)


def table_version(warehouse: Warehouse, table: str) -> int:
    """The newest version of a table: the data of a range is another only if this is another."""
    from warehouse.tables.manifests import get_table

    with warehouse.catalog.read() as connection:
        return get_table(connection, table).version


def _missing(warehouse: Warehouse, solution: ReadSolution) -> int:
    """The memos of the model that are queued or being computed."""
    from warehouse.overview import list_models, model_memos

    found = {(one.name, one.version): one.id for one in list_models(warehouse)}
    _, states = model_memos(warehouse).get(found.get((solution.model, solution.model_version), -1), (0, {}))
    return sum(states.get(state, 0) for state in ("PENDING", "RUNNING"))


def prepare(
    warehouse: Warehouse, solution: ReadSolution, config: TrainConfig, changes: ChangePolicy, folder: Path
) -> PreparedRun:
    """The run and what is left of it, while no other process has the lock in the folder of its job."""
    from trainer.run.progress.lock import run_lock

    with run_lock(folder):
        return _prepare_unlocked(warehouse, solution, config, changes)


def _prepare_unlocked(
    warehouse: Warehouse,
    solution: ReadSolution,
    config: TrainConfig,
    changes: ChangePolicy,
    *,
    verifies_all: bool = True,
    held_out: HeldOut | None = None,
) -> PreparedRun:
    """As :func:`prepare`, while this process has the lock or the job of this command waits for data."""
    from trainer.run.preparation.preparation import prepare_run
    from warehouse.reading.reader import read_labels

    labels = partial(read_labels, warehouse.storage, solution)
    skipped = lambda reason: say(f"a checkpoint was skipped: {reason}")  # noqa: E731
    return prepare_run(
        solution,
        config,
        labels,
        changes=changes,
        weights=False,
        verifies_all=verifies_all,
        held_out=held_out,
        on_skip=skipped,
    )


def job_options(options: TrainOptions, folder: str = "") -> JobOptions | None:
    """The job of ``headrace train``, whose files are in ``folder``; None for training in one process.

    Raises :class:`InputError` for options that do not fit its number of hosts.
    """
    hosts = options.hosts.as_job()
    if hosts is None:
        return None
    values, of_hosts = options.servers.wire().values, tuple(options.device.arguments())
    servers = options.servers
    scales_from = 0 if servers.scaled is None else servers.scaled.least
    total = servers.count if servers.spare_servers or scales_from else 0
    return JobOptions(
        hosts,
        servers.least_servers,
        total,
        servers.spare_servers,
        scales_from,
        folder=folder,
        wire_values=values,
        dense_values=hosts.dense_values or "float32",
        of_hosts=of_hosts,
        metrics=options.metrics,
        batch_file_bytes=options.data.batch_file_bytes(),
    )


def plan_options(options: JobOptions, config: TrainConfig) -> PlanOptions:
    """How the run of a job is cut into units and epochs."""
    from trainer.job.launch.training_job import PlanOptions

    hosts = options.hosts
    limits = (hosts.epoch_events, hosts.epoch_steps * config.rows_of_step(hosts.hosts))
    epoch_rows = min((one for one in limits if one), default=0)
    return PlanOptions(shuffle_events=hosts.shuffle_events, epoch_rows=epoch_rows)


def job_settings(options: JobOptions) -> JobSettings:
    """The settings of a job with these options."""
    from trainer.scheduling.job import JobSettings

    hosts = options.hosts
    initial = _phase(hosts.hosts, hosts.reader_range, hosts.epoch_secs)
    later = _phase(
        hosts.caught_up_hosts or hosts.hosts,
        hosts.caught_up_reader_range,
        hosts.caught_up_epoch_secs or hosts.epoch_secs,
    )
    return JobSettings(
        release=version("headrace"),
        hosts=hosts.hosts,
        least_hosts=hosts.least_hosts or 1,
        goes_on=hosts.least_hosts > 0,
        least_servers=options.least_servers,
        servers=options.servers,
        spare_servers=options.spare_servers,
        scales_from=options.scales_from,
        overlap=True,
        is_finite=not hosts.follow,
        behind_units=_BEHIND_UNITS if later != initial else None,
        initial=initial,
        caught_up=later,
    )


#: A job that has so many units left, of up to 65,536 events, trains as it trained the history.
_BEHIND_UNITS = 64


def _phase(hosts: int, readers: ProcessRange | None, epoch_secs: float) -> PhaseSettings:
    """The settings of a phase; without a range of readers there is at most one on each CPU core."""
    import os

    from trainer.options.process_range import ProcessRange
    from trainer.scheduling.job import PhaseSettings

    limits = readers or ProcessRange(1, max(1, os.cpu_count() or 1))
    return PhaseSettings(epoch_secs or None, least_readers=limits.least, most_readers=limits.most, hosts=hosts)


def _notice_sources(files: JobFiles, options: HostOptions) -> list[NoticeSource]:
    """The sources that the options name."""
    from trainer.job.launch.http_notice import HttpNotice
    from trainer.job.launch.notices import FileNotice, MetadataNotice
    from trainer.wire.flight.addresses import Address

    sources: list[NoticeSource] = []
    if options.notice_metadata:
        sources.append(MetadataNotice(options.notice_metadata, grace_secs=options.grace_secs))
    if options.notice_file:
        sources.append(FileNotice(Path(options.notice_file), grace_secs=options.grace_secs))
    if options.notice_http:
        place = Address.parse(options.notice_http)
        service = HttpNotice(place, token=files.read_token(), grace_secs=options.grace_secs)
        say(f"preemption notices: POST http://{service.address}/notice, with the token in {files.token}")
        sources.append(service)
    return sources


def _sentence(prepared: PreparedRun, status: JobStatus) -> str:
    """The state of a job in some words."""
    from headrace.terminal.units import many
    from trainer.run.weights.staleness import StalenessCounts
    from trainer.scheduling.events import RoleKind
    from trainer.scheduling.transitions import JobState

    buffers = [one.buffer.fullness for one in status.members if one.buffer is not None]
    state = (
        "" if status.state in (JobState.TRAINING, JobState.DONE) else f": {str(status.state).lower().replace('_', ' ')}"
    )
    hosts, readers = len(status.live(RoleKind.HOST)), len(status.live(RoleKind.READER))
    parts = [f"training {prepared.solution.model}{state}"]
    if status.state is JobState.DONE:
        return parts[0]
    parts += [f"epoch {status.epoch + 1}", many(hosts, "host"), many(readers, "reader")]
    if status.away and status.away_for_secs is not None:
        verb = "waiting for" if status.state is JobState.AWAY else "without"
        parts.insert(1, f"{verb} {listed([str(one) for one in status.away])} for {status.away_for_secs:,.0f} s")
    if status.most_servers:
        parts.append(_servers_sentence(status))
    if buffers:
        parts.append(f"buffer {min(buffers):.0%} full")
    late = sum(_staleness(status).values(), StalenessCounts())
    if late.most:
        parts.append(f"lookups miss {late.mean:.1f} updates")
    if status.staleness_secs is not None:
        parts.append(f"{status.staleness_secs:,.0f} s stale")
    return ", ".join(parts)


def _servers_sentence(status: JobStatus) -> str:
    """How many servers of a job that scales them have the tables."""
    from headrace.terminal.units import many

    found = f"{many(status.used_servers, 'server')} of {status.most_servers}"
    return found if status.used_servers in (0, status.wanted_servers) else f"{found}, {status.wanted_servers} wanted"


def _staleness(status: JobStatus) -> dict[int, StalenessCounts]:
    """The updates that lookups of an attempt missed, by attempt, as the host of rank 0 reported last; all hosts have the same."""
    from trainer.run.weights.staleness import StalenessCounts

    reports = [one.progress for one in status.members if one.rank == 0 and one.progress is not None]
    return {one.attempt: StalenessCounts.of_numbers(one.numbers) for one in reports}


def _idle_units(status: JobStatus) -> IdleUnits | None:
    """The hidden units that are off, as a host reported last; all hosts count the same."""
    from trainer.model.idle_units import IdleUnits

    found = (IdleUnits.of_numbers(one.progress.numbers) for one in status.members if one.progress is not None)
    return max((one for one in found if one is not None), key=lambda one: one.steps, default=None)


def _hashed_counts(status: JobStatus) -> dict[str, HashedCounts]:
    """What the hashed tables of all hosts have done, as they reported last; nothing before all of them have, and of tables on servers."""
    from trainer.tables.hashed_counts import counts_of_numbers, sum_counts

    hosts = [one.progress for one in status.members if one.rank is not None]
    counts = [{} if one is None else counts_of_numbers(one.numbers) for one in hosts]
    return sum_counts(counts) if all(counts) else {}


def _hot_figures(status: JobStatus) -> HotFigures | None:
    """What hot rows have done, as the host reported last: a job with hot rows has one."""
    from trainer.tables.hot_figures import HotFigures

    found = (HotFigures.of_numbers(one.progress.numbers) for one in status.members if one.progress is not None)
    return next((one for one in found if one is not None), None)


def _tower_figures(status: JobStatus) -> TowerFigures | None:
    """What all hosts have sent by towers, as they reported last; None before all of them have."""
    from trainer.tables.tower_figures import TowerFigures

    hosts = [one.progress for one in status.members if one.rank is not None]
    found = [None if one is None else TowerFigures.of_numbers(one.numbers) for one in hosts]
    known = [one for one in found if one is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(found) else None


def _sum_figures(status: JobStatus) -> SumFigures | None:
    """How hosts add dense gradients, as one of them reported last: all have the same figures."""
    from trainer.planning.host_grid import SumFigures

    found = (SumFigures.of_numbers(one.progress.numbers) for one in status.members if one.progress is not None)
    return next((one for one in found if one is not None), None)


def role_command(
    folder: str,
    kind: str,
    name: str,
    options: Sequence[str],
    *,
    listen: str = "",
    of_hosts: Sequence[str] = (),
    metrics: MetricsOptions = _NO_METRICS,
) -> list[str]:
    """The command line of a role's process of the job in ``folder``.

    Args:
        listen: the address of the controller of a job on other machines.
        of_hosts: the options of hosts.
        metrics: of the command; a controller of a job on other machines serves at its address, and others at free ports, which are in files.
    """
    from trainer.job.control.job_files import JobFiles

    named = (("--address", listen) if listen else ()) if kind == "controller" else ("--name", name)
    measured = command_line(metrics) if listen else metrics.of_child(name, folder, JobFiles(Path(folder)).metrics)
    own = of_hosts if kind == "host" else ()
    return module_command("headrace", "role", kind, folder, *named, *options, *own, *measured)


def server_roles(
    spec: JobSpec,
    files: JobFiles,
    *,
    token: str = "",
    watch: WatchServers | None = None,
    tell: Callable[[str], None] = say,
) -> ServerRoles | None:
    """The parameter servers of a job, for its supervisor; None without.

    ``token``: of the job, if it is on other machines; ``watch``: see :func:`train_job`; ``tell``: is called with a sentence when a server
    leaves or is back.
    """
    from trainer.job.launch.host_process import servers_of
    from trainer.job.launch.server_roles import ServerRoles
    from trainer.servers.server_watch import watch_servers

    if spec.servers is None:
        return None
    servers = servers_of(replace(spec.servers, plan=""), files.read_document, token)
    return ServerRoles.of_run(
        servers, spec.run_dir(files), release=spec.settings.release, on_message=tell, watch=watch or watch_servers
    )


def worker_roles(
    spec: JobSpec, files: JobFiles, *, token: str = "", tell: Callable[[str], None] = say
) -> ServerRoles | None:
    """The embedding workers of a job, for its supervisor; None without. See :func:`server_roles`."""
    from trainer.job.launch.host_process import servers_of
    from trainer.job.launch.server_roles import ServerRoles

    if spec.servers is None or not spec.servers.workers:
        return None
    servers = servers_of(replace(spec.servers, plan=""), files.read_document, token)
    return ServerRoles.of_workers(servers, release=spec.settings.release, on_message=tell)


@contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    """SIGTERM is a preemption notice; Ctrl-C stops the job after a commit, and at the second time at once."""
    acts: dict[int, Callable[[], None]] = {signal.SIGTERM: supervisor.give_notice, signal.SIGINT: supervisor.stop}

    def handle(number: int, frame: Any) -> None:
        acts[number]()

    before = {number: signal.signal(number, handle) for number in acts}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_held(status: JobStatus, folder: str) -> None:
    from trainer.errors import JobHeld

    if status.hold is not None:
        raise JobHeld("a job must not be held", where=status.hold.role or folder, value=status.hold.reason,
                      allowed="a job goes on after its hold is released",
                      next_step=f"correct the cause, then: headrace holds release {folder}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What a report says of the moment before the job."""

    epochs: int
    trainings: int
    resumed_from: str
    skipped: tuple[str, ...]
    unlabelled: int
    late: LateData
    host_steps: StepsByHost

    @classmethod
    def of(cls, prepared: PreparedRun) -> _Beginning:
        """The facts of a run before it is trained."""
        path = prepared.saved.path if prepared.saved else ""
        return cls(
            len(prepared.progress.history),
            _trainings(prepared),
            path,
            prepared.skipped,
            sum(prepared.trainable.unlabelled.values()),
            prepared.late,
            _host_steps(prepared),
        )


def _host_steps(prepared: PreparedRun) -> StepsByHost:
    """The steps of each host up to the newest commit; none after training in one process."""
    saved = prepared.saved
    return {} if saved is None or saved.job is None else saved.job.host_steps


def _trainings(prepared: PreparedRun) -> int:
    """How often all events were trained, added up; of a run that does not count, what its finished epochs say.

    Counts that were lowered since labels changed count too.
    """
    if prepared.ledger is None:
        return sum(one.scores.events for one in prepared.progress.history)
    keys = [ref.key for refs in prepared.fragments.values() for ref in refs]
    again = 0 if prepared.labels is None else prepared.labels.trained_again
    return again + sum(int(prepared.ledger.of(key).sum()) for key in keys)


def _report(first: _Beginning, last: PreparedRun, secs: float) -> TrainReport:
    from trainer.checkpoints.host_steps import steps_since
    from trainer.run.loop import TrainReport

    return TrainReport(
        epochs=len(last.progress.history) - first.epochs,
        events=_trainings(last) - first.trainings,
        seconds=secs,
        history=tuple(last.progress.history),
        ledger=last.summary(),
        resumed_from=first.resumed_from,
        finished=not last.planned_events,
        checkpoint=last.saved.path if last.saved else "",
        skipped_checkpoints=first.skipped,
        unlabelled=first.unlabelled,
        late=first.late,
        host_steps=steps_since(first.host_steps, _host_steps(last)),
        held_out=last.progress.held_out,
        held_out_partitions=last.progress.held_out_partitions,
    )
