"""``headrace train``: train a submitted model from its read solution, and test it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from typer.models import CommandInfo

from headrace.cli.following_evaluation import evaluator
from headrace.cli.held_out_scoring import fragment_reader, score_test
from headrace.cli.launching import write_launch, write_phases
from headrace.cli.options.batch_files import open_batch_files
from headrace.cli.options.exports import check_exported, finish_export, open_export
from headrace.cli.options.launchers import LOCAL, REMOTE
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.runs import job_folder, run_folder_of
from headrace.cli.options.servers import OpenServers, open_servers
from headrace.cli.options.session import open_warehouse, run_location
from headrace.cli.options.solutions import pinned
from headrace.cli.options.tpus import TpuOptions
from headrace.cli.options.tracking import open_tracking
from headrace.cli.options.training import read_options
from headrace.cli.planned_training import (
    capacities_of,
    check_plan_tables,
    partition_of_towers,
    plan_of_training,
    sparse_core_settings,
    towers_of_training,
    with_hot_rows,
)
from headrace.cli.remote_workers import open_remote_workers
from headrace.cli.train_options.arguments import (
    TrainCommand,
    has_phases,
    keys_in_errors,
    phases_of,
    save_options,
)
from headrace.cli.train_options.training import TrainOptions
from headrace.cli.training_jobs import job_options, pin_new, train_job
from headrace.cli.training_lineage import recorded_training
from headrace.feature_statistics import PROCESS, recorder
from headrace.terminal.output import emit, say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quiet import import_tensorflow_quietly, keep_tensorflow_quiet
from headrace.terminal.stopping import interrupt_is_request
from headrace.views.training import trained_screen
from headrace.views.training_figures import (
    Statuses,
    followed_plan_row,
    placement_row,
    scaled_row,
    served_row,
    server_statuses,
)
from trainer.job.launch.role_signals import end_with_supervisor
from transforms.errors import InputError
from transforms.execution.memory import keep_freed_memory
from transforms.log_fields import set_process_fields
from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    from typer._click import Context

    from trainer.errors import ServerLost
    from trainer.options.config import TrainConfig
    from trainer.planning.plan import PartitionPlan
    from trainer.run.host_metrics import HostMetrics
    from trainer.run.loop import TrainEvent, TrainReport
    from trainer.run.progress.data_changes import ChangePolicy
    from trainer.run.progress.evaluation_log import EvaluatedCommit
    from trainer.run.weights.served_weights import FollowMoves, MakeEngine
    from trainer.servers.leaving_servers import LeavingServers
    from trainer.servers.run_servers import RunServers
    from trainer.tables.hashed_counts import HashedCounts
    from trainer.tables.sparse_core import SparseCoreSettings
    from trainer.tables.tpu.slices import TpuSlice
    from warehouse.files.batch_files.folder import BatchFolder
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

_STOPPING = "training stops after a commit, and the same command goes on from there; Ctrl-C again stops it at once"


@grouped
def train(options: TrainOptions) -> None:
    """Train over partitions in time order, with one atomic checkpoint per epoch. Running it again resumes."""
    began = time.monotonic()
    if options.run.supervisor:
        end_with_supervisor(options.run.supervisor)
    data, home, run_dir = options.data, options.run.home, options.run.run_dir
    first, last, until = data.moments()
    training = read_options(options.run.config)
    batch_files = open_batch_files(data.batch_file_bytes(), home)
    tpus = options.tpus_of(training)
    options.check_combinations(training)
    save_options(options)
    if options.cluster.is_written:
        return write_launch(options, training, tpus)
    job = job_options(options)
    hosts = None if job is None else job.hosts
    partition = plan_of_training(options.hosts.plan, None if options.servers.servers else hosts, tpus)
    named_towers = towers_of_training(options.hosts.towers, hosts)
    if run_dir or options.run.job_dir:
        job = job_options(options, str(job_folder(run_location(run_dir), home, options.run.job_dir)))
    if job is None:
        options.device.let_be_seen()
        options.device.use()
    elif options.cluster.launcher == LOCAL:
        options.device.check()
    with ExitStack() as pins:
        remote = pins.enter_context(open_remote_workers(options))
        warehouse = pins.enter_context(open_warehouse(home))
        read = partial(
            pinned, warehouse, options.model, data.version, command="train", table_version=data.table_version
        )
        resolve = pin_new(pins, partial(read, first, last))
        solution = resolve()
        held_out = pins.enter_context(read(last, until)) if until else None
        folder = run_folder_of(run_dir, options.model, solution.model_version, home)
        set_process_fields(role="train", model=options.model, run=folder)
        if partition is not None:
            check_plan_tables(partition, solution, training, folder)
        files = str(job_folder(folder, home, options.run.job_dir))
        exporter = pins.enter_context(open_export(options.serving, folder, files))
        tracker = pins.enter_context(open_tracking(options.tracking, options.model, folder, files))
        looks = [tracker.look, *([] if exporter is None else [exporter.look])]

        def on_commit() -> None:
            for look in looks:
                look()

        evaluating = pins.enter_context(
            evaluator(held_out if data.evaluate_commits else None, folder, files, data.end, data.test_end, home)
        )
        on_servers = pins.enter_context(
            open_servers(options.servers, options.cluster, folder, files, partition, options.metrics)
        )
        keep_freed_memory()  # each fragment takes as much as the one before
        if tpus is not None:
            training = {**training, "engine": "tpu"}
        is_served = bool(options.servers.servers)
        slice_ = _connect(tpus, training, folder, is_served=is_served) if tpus is not None and job is None else None
        for column in data.baseline or ():
            _check_baseline(warehouse, solution, column)
        if held_out:
            _check_test_labels(warehouse, held_out)
        most_hosts = 1 if job is None else job.hosts.most_hosts
        settings = choose_options(
            warehouse, solution, training, folder, hosts=most_hosts, slice_has_tables=tpus is not None and not is_served
        )
        settings = with_hot_rows(home, solution, settings)
        if job is not None and named_towers:
            partition = partition_of_towers(named_towers, job.hosts.hosts, solution, settings)
        _check_placement(
            settings,
            is_served=is_served,
            hosts=most_hosts,
            plan=partition,
            has_towers=bool(named_towers),
        )
        sparse_core = (
            None
            if slice_ is None or tpus is None or is_served
            else sparse_core_settings(warehouse, solution, settings, tpus, slice_, partition)
        )
        lineage = pins.enter_context(recorded_training(warehouse, solution, folder))
        looks.append(lineage.look)
        starts_later = options.cluster.launcher == REMOTE
        known = {} if on_servers is None or starts_later else server_statuses(on_servers.begun)
        lost = 0
        changes = change_policy(data.accept_changed, data.train_changed_labels)
        if job is not None:
            report = train_job(
                warehouse,
                resolve,
                settings,
                changes,
                job,
                remote,
                partition,
                None if on_servers is None else on_servers.spec,
                named_towers,
                on_commit=on_commit,
                check_servers=(lambda: None) if on_servers is None else on_servers.check,
                watch=None if on_servers is None else on_servers.watch,
                server_scale=None if on_servers is None or options.servers.scaled is None else on_servers.local,
            )
            servers = None if on_servers is None else on_servers.running(report.running_servers)
            hashed = dict(report.hashed_counts) if servers is None else _hashed_counts(settings, servers)
            scales_here = bool(report.running_servers) and on_servers is not None and on_servers.local is not None
            found = server_statuses(servers, among=None if scales_here else known)
        else:
            scales_here = False
            with (
                interrupt_is_request(_STOPPING) as is_stopped,
                training_metrics(options.metrics, options.model, folder) as recorded,
            ):
                train_once = partial(
                    _train, warehouse, solution, settings, changes, slice_, on_commit, batch_files, recorded, is_stopped
                )
                if on_servers is None:
                    report = train_once(partition, sparse_core)
                    hashed, found = dict(report.hashed_counts), {}
                else:
                    least = options.servers.least_servers
                    report, hashed, found, lost = _train_on_servers(
                        partial(train_once, None, None), settings, on_servers, least, known, is_stopped
                    )
        lineage.end(report)
        tracker.look()
        exported = finish_export(exporter)
        tested = held_out if report.finished else None
        hosts_here = 1 if starts_later else most_hosts
        evaluations = () if evaluating is None else evaluating.finish().commits
        scores = None
        if tested and (found_now := _evaluated_last(evaluations, report, tested)):
            scores = found_now.scores
        elif tested:
            scores = score_test(warehouse, tested, folder, hosts_here, start=data.end, end=data.test_end, home=home)
        raw = {column: _score_column(warehouse, tested, column) for column in data.baseline or ()} if tested else {}
    screen = trained_screen(
        solution, held_out, settings, report, hashed, scores, raw, time.monotonic() - began, exported, named_towers,
        placement=placement_row(
            partition, how="towers" if named_towers else "plan", capacities=capacities_of(solution, settings)
        ),
        followed_plan=followed_plan_row(settings.run_dir) if options.hosts.plan_follows_data else None,
        served=scaled_row(found) if scales_here else served_row(known, found, 0 if lost else report.events),  # without events before a loss
        evaluations=evaluations,
    )  # fmt: skip
    emit(screen, as_json=options.run.as_json)
    check_exported(exported)
    tracker.check()


def _evaluated_last(
    evaluations: Sequence[EvaluatedCommit], report: TrainReport, tested: ReadSolution
) -> EvaluatedCommit | None:
    """The evaluation of the newest commit on the events of the test, if there is one."""
    newest = PurePath(report.checkpoint).name
    found = [one for one in evaluations[-1:] if (one.checkpoint, one.table_version) == (newest, tested.table_version)]
    return found[0] if found else None


class _Train(TrainCommand):
    def invoke(self, ctx: Context) -> Any:
        """Run the command, or each of the phases of its run file."""
        with keys_in_errors(ctx):
            if not has_phases(ctx):
                return super().invoke(ctx)
            phases = phases_of(ctx)
            if all(one.cluster.is_written for one in phases.values()):
                return write_phases(phases)
            from headrace.cli.phased_training import train_phases

            return train_phases(phases)


#: The command, whose help has panels.
COMMAND = CommandInfo("train", cls=_Train, callback=train)


def _check_placement(
    settings: TrainConfig, *, is_served: bool, hosts: int, plan: PartitionPlan | None, has_towers: bool
) -> None:
    """Raise for hashed and pruned tables in an unsupported placement, also for a run that continues."""
    from trainer.run.preparation.preparation import check_placement

    check_placement(settings, is_served=is_served, hosts=hosts, plan=plan, has_towers=has_towers)


def _check_baseline(warehouse: Warehouse, solution: ReadSolution, column: str) -> None:
    from warehouse.tables.manifests import get_table

    if solution.target.kind != "binary":
        raise InputError("--baseline needs a model with a binary label",
                         where=f"--baseline {column}", value=f"a {solution.target.kind} label",
                         next_step="leave --baseline out")  # fmt: skip
    with warehouse.catalog.read() as connection:
        stored = get_table(connection, solution.table).column(column)
    if not stored.arrow_type.startswith(("int", "uint", "float", "double", "halffloat", "bool")):
        raise InputError("a baseline must be a number", where=f"--baseline {column}", value=stored.arrow_type,
                         allowed="an integer, float or boolean column")  # fmt: skip


def choose_options(
    warehouse: Warehouse,
    solution: ReadSolution,
    options: Mapping[str, Any],
    run_dir: str,
    *,
    hosts: int = 1,
    slice_has_tables: bool = False,
) -> TrainConfig:
    """The given options, and those that are chosen from the data.

    ``hosts``: the most hosts of the job; ``slice_has_tables``: the tables are in a TPU slice.
    """
    from trainer.run.choosing.choose import choose_config

    keep_tensorflow_quiet()
    return choose_config(
        solution,
        fragment_reader(warehouse, solution),
        options,
        run_dir=run_dir,
        tell=say,
        hosts=hosts,
        slice_has_tables=slice_has_tables,
    )


def change_policy(accept: bool, train_labels: bool) -> ChangePolicy:
    """What the options say about trained data that has changed."""
    from trainer.run.progress.data_changes import ChangePolicy

    return ChangePolicy(accept, train_labels)


def _connect(tpus: TpuOptions, options: Mapping[str, Any], run_dir: str, *, is_served: bool) -> TpuSlice:
    """The TPUs of a run, before anything is read or compared: the settings of TensorFlow come first.

    Raises :class:`~trainer.errors.ConfigError` for tables that these TPUs cannot have; ``is_served``: they need not have any.
    """
    from trainer.options.slice_tables import check_slice_tables
    from trainer.run.choosing.choose import options_before_choices

    known = options_before_choices(options, run_dir=run_dir)
    if not is_served:
        check_slice_tables(known)
    import_tensorflow_quietly()
    from trainer.model.tensorflow_settings import prepare_tensorflow
    from trainer.run.weights.slice_checks import check_embedding_hardware

    prepare_tensorflow(known)
    found = tpus.connect()
    if not is_served:
        check_embedding_hardware(found)
    return found


@contextmanager
def training_metrics(options: MetricsOptions, model: str, folder: str) -> Iterator[HostMetrics]:
    """What a training in this process records, served while the block runs if the options name an address."""
    from headrace.metrics.process import Process
    from trainer.run.host_metrics import HostMetrics

    recorded, registry = HostMetrics(), Registry()
    registry.add("host", recorded.families)
    with options.bound(Process("host", model, run=folder)) as serve:
        serve(registry)
        yield recorded


def _train(
    warehouse: Warehouse,
    solution: ReadSolution,
    settings: TrainConfig,
    changes: ChangePolicy,
    slice_: TpuSlice | None,
    on_commit: Callable[[], None],
    batch_files: BatchFolder | None,
    metrics: HostMetrics,
    is_stopped: Callable[[], bool],
    plan: PartitionPlan | None,
    sparse_core: SparseCoreSettings | None,
    make_engine: MakeEngine | None = None,
    follow_moves: FollowMoves | None = None,
    leaving: LeavingServers | None = None,
) -> TrainReport:
    from trainer.run.loop import train as run_training
    from trainer.run.weights.served_weights import stay
    from warehouse.reading.reader import read_labels

    with progress_bar(f"training {solution.model}", "events") as report:

        def follow(event: TrainEvent) -> None:
            if event.kind == "skipped":
                say(f"a checkpoint was skipped: {event.message}")
            if event.kind in ("batch file", "history"):
                say(event.message)
            if event.kind == "rows pass":
                say(f"rows of servers pass through this process: {event.message}")
            if event.kind == "checkpoint":
                on_commit()
            report(event.events, event.total_events)

        return run_training(
            solution,
            fragment_reader(warehouse, solution),
            settings,
            progress=follow,
            read_labels=partial(read_labels, warehouse.storage, solution),
            changes=changes,
            slice_=slice_,
            plan=plan,
            settings=sparse_core,
            make_engine=make_engine,
            follow_moves=follow_moves or stay,
            stop=is_stopped if leaving is None else lambda: is_stopped() or leaving.is_any_back(),
            ends_early=is_stopped if leaving is None else lambda: is_stopped() or leaving.must_end_early(),
            record=recorder(warehouse, PROCESS),
            batch_files=batch_files,
            metrics=metrics,
        )


def _train_on_servers(
    train_once: Callable[[MakeEngine, FollowMoves, LeavingServers], TrainReport],
    settings: TrainConfig,
    on_servers: OpenServers,
    least: int,
    known: Statuses,
    is_stopped: Callable[[], bool],
) -> tuple[TrainReport, dict[str, HashedCounts], Statuses, int]:
    """Train, and go on from the newest checkpoint when a server leaves or loses its rows.

    Returns what hashed tables have done, what the servers have done that were ``known`` before, and how often a server was lost, too.

    ``least``: with this number of servers training goes on while others are away; 0: it waits for all.
    """
    from trainer.checkpoints.open_run import open_run
    from trainer.checkpoints.run_files import newest_first
    from trainer.run.server_losses import train_through_losses
    from trainer.servers.leaving_servers import LeavingServers

    files, losses = open_run(on_servers.folder), list[str]()

    def on_loss(error: ServerLost, newest: str) -> None:
        losses.append(error.what)
        say(f"{error.what}: {error.where}; training goes on from {newest or 'the beginning'}")

    with on_servers.moves() as moves, ExitStack() as pins:
        leaving = pins.enter_context(
            LeavingServers(
                lambda: moves.servers,
                moves.take_notices,
                least=least,
                tell=say,
                waiting=_shown_wait,
                watch=on_servers.watch,
            )
        )
        report = train_through_losses(
            lambda attempt: train_once(partial(moves.engine, attempt, unused=leaving.unused), moves.follow, leaving),
            lambda: next(iter(newest_first(files)), ""),
            on_loss,
            leaving,
            is_stopped,
        )
        hashed = _hashed_counts(settings, moves.servers)
        found = server_statuses(moves.servers, among=known)  # servers that were started end with the moves
        return report, hashed, found, len(losses)


@contextmanager
def _shown_wait() -> Iterator[Callable[[str], None]]:
    """Shows what training waits for."""
    with progress_bar("waiting for a server", "events") as report:
        yield lambda what: report(0, 0, what)


def _hashed_counts(settings: TrainConfig, servers: RunServers) -> dict[str, HashedCounts]:
    """What the hashed tables have done; none, and a sentence, if a server is away: the run has ended well."""
    from trainer.errors import ServerLost

    if not settings.hashed:
        return {}
    try:
        return servers.hashed_counts()
    except ServerLost as error:
        say(f"the counts of hashed tables are not known: {error.what}: {error.where}")
        return {}


def _check_test_labels(warehouse: Warehouse, held_out: ReadSolution) -> None:
    """Raise, before training, for a test label that the task does not have."""
    from trainer.run.labels.label_scan import check_labels
    from warehouse.reading.reader import read_labels

    check_labels(held_out, partial(read_labels, warehouse.storage, held_out))


def _score_column(warehouse: Warehouse, held_out: ReadSolution, column: str) -> float | None:
    """AUC of a raw number alone on the labelled held-out events; a null ranks lowest. None if it is undefined."""
    import numpy as np
    import pyarrow.compute as pc

    from trainer.model.metrics import auc
    from warehouse.reading.reader import LABEL, LIVE, read_labels

    labels: list[Any] = []
    values: list[Any] = []
    for fragment in (fragment for partition in held_out.partitions for fragment in partition.fragments):
        stored = read_labels(warehouse.storage, held_out, fragment, columns=[column])
        raw = stored.filter(pc.and_(stored[LIVE], pc.is_valid(stored[LABEL])))
        labels.append(raw[LABEL].to_numpy().astype(np.float64))
        values.append(np.nan_to_num(raw[column].to_numpy().astype(np.float64), nan=-np.inf))
    ranked = auc(np.concatenate([np.zeros(0), *labels]), np.concatenate([np.zeros(0), *values]))
    return None if math.isnan(ranked) else ranked
