"""``headrace train``: train a submitted model from its read solution, and test it."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.feature_statistics import PROCESS, recorder
from headrace.cli.held_out_scoring import fragment_reader
from headrace.cli.launching import write_launch
from headrace.cli.options.exports import (
    Export,
    ExportQuantize,
    check_export,
    check_exported,
    finish_export,
    open_export,
)
from headrace.cli.options.launchers import (
    GKE,
    LOCAL,
    TPU_VM,
    ImagesOf,
    JobName,
    JobSet,
    Launcher,
    Listen,
    Namespace,
    Output,
    Priority,
    Project,
    Queue,
    ServiceAccount,
    Spot,
    TokenFile,
    TpuTopology,
    Zone,
    check_launcher,
)
from headrace.cli.options.quantities import moment_of
from headrace.cli.options.runs import job_folder, run_folder_of
from headrace.cli.options.servers import (
    SUMMED,
    EmbeddingWorkers,
    LeastServers,
    OpenServers,
    ServerCa,
    Servers,
    ServerTokenFile,
    ServerUpdates,
    WireIds,
    WireValues,
    check_combinations,
    check_servers,
    open_servers,
)
from headrace.cli.options.session import AsJson, Home, open_warehouse, run_location
from headrace.cli.options.solutions import pinned
from headrace.cli.options.tpus import MaxIds, MaxUniqueIds, Tpu, TpuOptions, tpu_of_training
from headrace.cli.options.training import read_options
from headrace.cli.planned_training import (
    check_plan_tables,
    partition_of_towers,
    plan_of_training,
    sparse_core_settings,
    towers_of_training,
)
from headrace.cli.remote_workers import open_remote_workers
from headrace.cli.training_jobs import job_options, pin_new, train_job
from headrace.cli.training_verdict import training_verdict
from headrace.terminal.output import emit, say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quiet import import_tensorflow_quietly
from trainer.launch.role_signals import end_with_supervisor
from transforms.errors import InputError
from transforms.execution.memory import keep_freed_memory

if TYPE_CHECKING:
    from headrace.screens.training import EpochRow, OptionRow, PassesRow, TowerRow
    from trainer.config import TrainConfig
    from trainer.embedding.hashed_counts import HashedCounts
    from trainer.embedding.sparse_core import SparseCoreSettings
    from trainer.embedding.tpu.slices import TpuSlice
    from trainer.model.metrics import AnyScores
    from trainer.planning.plan import PartitionPlan
    from trainer.runs.data_changes import ChangePolicy
    from trainer.servers.leaving_servers import LeavingServers
    from trainer.servers.run_servers import RunServers
    from trainer.serving.deltas.commit_exporter import ExportedChain
    from trainer.tower_options import Towers
    from trainer.training.loop import TrainEvent, TrainReport
    from trainer.training.served_weights import FollowMoves, MakeEngine
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


def train(
    model: Annotated[str, typer.Argument(help="Name of a submitted model.")],
    version: Annotated[
        int, typer.Option("--version", help="Its version. Default: the newest.", show_default=False)
    ] = 0,
    start: Annotated[str, typer.Option(help="Train on partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Train on partitions that start before this time.")] = "",
    test_end: Annotated[str, typer.Option(help="Then test on the partitions from --end to this time.")] = "",
    table_version: Annotated[
        int,
        typer.Option(help="Train on this version of the table. Default: the newest.", show_default=False),
    ] = 0,
    baseline: Annotated[
        list[str] | None, typer.Option(help="Also test this raw column alone as a baseline; may be repeated.")
    ] = None,
    accept_changed: Annotated[
        bool,
        typer.Option(
            "--accept-changed",
            help="Continue although values of trained events changed; these events are not trained again.",
        ),
    ] = False,
    train_changed_labels: Annotated[
        bool,
        typer.Option(
            "--train-changed-labels",
            help="Train events again whose labels have changed since, once per change.",
        ),
    ] = False,
    config: Annotated[str, typer.Option(help="A JSON file of training options: docs/training.md.")] = "",
    run_dir: Annotated[
        str,
        typer.Option(
            help="Folder of the checkpoints, or with --hosts gs://bucket/path. Default: runs/MODEL-vVERSION in the home."
        ),
    ] = "",
    job_dir: Annotated[
        str,
        typer.Option(
            help="Local folder for the job's other files, of a run in a bucket. Default: in bucket-jobs of the home.",
            show_default=False,
        ),
    ] = "",
    hosts: Annotated[
        int,
        typer.Option(help="Train with this number of host processes. Default: in this process.", show_default=False),
    ] = 0,
    readers: Annotated[
        int,
        typer.Option(help="Reader processes of a job with --hosts. Default: as many as it needs.", show_default=False),
    ] = 0,
    epoch_secs: Annotated[
        float,
        typer.Option(
            help="The longest time between two commits of a job with --hosts. Default: no limit.", show_default=False
        ),
    ] = 0.0,
    epoch_events: Annotated[
        int,
        typer.Option(
            "--epoch-events",
            help="A commit of a job after this number of events, too; whole work units.",
            show_default=False,
        ),
    ] = 0,
    epoch_steps: Annotated[
        int, typer.Option("--epoch-steps", help="The same, after this number of optimizer steps.", show_default=False)
    ] = 0,
    least_hosts: Annotated[
        int,
        typer.Option(
            "--least-hosts",
            help="Go on with this number of hosts after a preemption notice. Default: wait until all are back.",
            show_default=False,
        ),
    ] = 0,
    grace_secs: Annotated[
        float, typer.Option(help="How long a job with --hosts has to commit after a preemption notice.")
    ] = 30.0,
    notice_file: Annotated[
        str, typer.Option(help="A file whose appearance is a preemption notice; it may hold the seconds.")
    ] = "",
    notice_http: Annotated[
        str, typer.Option(help="Listen for preemption notices here, as host:port: POST /notice with the job's token.")
    ] = "",
    notice_metadata: Annotated[
        str,
        typer.Option(help="Take preemption notices from this metadata server: http://metadata.google.internal."),
    ] = "",
    supervisor: Annotated[
        int, typer.Option("--supervisor", help="The process that started this one; it ends with it.", hidden=True)
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", help="Train new data as it lands, until stopped; with --hosts, without --end.")
    ] = False,
    caught_up_hosts: Annotated[
        int,
        typer.Option(
            "--caught-up-hosts",
            help="Hosts once --follow has trained the history. Default: as before.",
            show_default=False,
        ),
    ] = 0,
    caught_up_readers: Annotated[
        int, typer.Option("--caught-up-readers", help="Readers from then on. Default: as before.", show_default=False)
    ] = 0,
    caught_up_epoch_secs: Annotated[
        float,
        typer.Option(
            "--caught-up-epoch-secs",
            help="The longest time between two commits from then on. Default: as before.",
            show_default=False,
        ),
    ] = 0.0,
    wait_for_memos: Annotated[
        bool,
        typer.Option("--wait-for-memos", help="Hold a job with --hosts until all its memos are ready."),
    ] = False,
    shuffle_events: Annotated[
        int,
        typer.Option(
            help="Shuffle events in windows of this number, a multiple of batch_rows, in a job with --hosts.",
            show_default=False,
        ),
    ] = 0,
    poll_secs: Annotated[float, typer.Option(help="Seconds between looks for new data or memos.")] = 1.0,
    plan: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Partition embedding tables by this plan of `headrace plan make`: over hosts, without --hosts over simulated cores.",
            show_default=False,
        ),
    ] = "",
    towers: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Give each tower of `headrace towers make` hosts of its own, which exchange by towers: with --hosts, docs/towers.md.",
            show_default=False,
        ),
    ] = "",
    export: Export = "",
    export_quantize: ExportQuantize = "",
    servers: Servers = "",
    least_servers: LeastServers = 0,
    embedding_workers: EmbeddingWorkers = "",
    server_token_file: ServerTokenFile = "",
    server_ca: ServerCa = "",
    server_updates: ServerUpdates = SUMMED,
    wire_ids: WireIds = "",
    wire_values: WireValues = "",
    tpu: Tpu = "",
    max_ids: MaxIds = None,
    max_unique_ids: MaxUniqueIds = None,
    launcher: Launcher = LOCAL,
    output: Output = "",
    job_name: JobName = "",
    topology: TpuTopology = "",
    images: ImagesOf = "",
    spot: Spot = False,
    namespace: Namespace = "",
    queue: Queue = "",
    priority: Priority = "",
    zone: Zone = "",
    project: Project = "",
    listen: Listen = "",
    token_file: TokenFile = "",
    jobset: JobSet = "",
    service_account: ServiceAccount = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Train over partitions in time order, with one atomic checkpoint per epoch. Running it again resumes."""
    given, began = dict(locals()), time.monotonic()  # the parameters, by name
    if supervisor:
        end_with_supervisor(supervisor)
    first, last, until = (moment_of(option, text) for option, text in
                          (("--start", start), ("--end", end), ("--test-end", test_end)))  # fmt: skip
    if until is not None and last is None:
        raise InputError(
            "--test-end must go with --end", where="--test-end", value=test_end, next_step="give --end too"
        )
    launched, options = check_launcher(given), read_options(config)
    tpus = tpu_of_training(given, options)
    check_servers(given)
    check_combinations(given, options)
    if launched in (GKE, TPU_VM):
        return write_launch(train, given, options, tpus)
    job = job_options(given)
    check_export(given)
    _check_run_dir(run_dir, is_job=job is not None)
    partition = plan_of_training(plan, None if servers else job, tpus)
    named_towers = towers_of_training(given, job)
    if run_dir or job_dir:
        job_files = str(job_folder(run_location(run_dir), home, job_dir))
        job = None if job is None else dataclasses.replace(job, folder=job_files)
    with ExitStack() as pins:
        remote = pins.enter_context(open_remote_workers(given))
        warehouse = pins.enter_context(open_warehouse(home))
        read = partial(pinned, warehouse, model, version, command="train", table_version=table_version)
        resolve = pin_new(pins, partial(read, first, last))
        solution = resolve()
        held_out = pins.enter_context(read(last, until)) if until else None
        folder = run_folder_of(run_dir, model, solution.model_version, home)
        if partition is not None:
            check_plan_tables(partition, solution, options, folder)
        files = str(job_folder(folder, home, job_dir))
        exporter = pins.enter_context(open_export(given, folder, files))
        on_servers = pins.enter_context(open_servers(given, folder, files, partition))
        keep_freed_memory()  # each fragment takes as much as the one before
        if tpus is not None:
            options = {**options, "engine": "tpu"}
        slice_ = _connect(tpus, options, folder) if tpus is not None and job is None else None
        for column in baseline or ():
            _check_baseline(warehouse, solution, column)
        if held_out:
            _check_test_labels(warehouse, held_out)
        settings = choose_options(warehouse, solution, options, folder)
        if job is not None and named_towers:
            partition = partition_of_towers(named_towers, job.hosts, solution, settings)
        _check_placement(
            settings,
            is_served=on_servers is not None,
            hosts=1 if job is None else max(job.hosts, job.caught_up_hosts),
            plan=partition,
            has_towers=bool(named_towers),
        )
        sparse_core = (
            None
            if slice_ is None or tpus is None
            else sparse_core_settings(warehouse, solution, settings, tpus, slice_, partition)
        )
        changes = change_policy(accept_changed, train_changed_labels)
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
                on_commit=None if exporter is None else exporter.look,
                check_servers=(lambda: None) if on_servers is None else on_servers.check,
                watch=None if on_servers is None else on_servers.watch,
            )
            hashed = _hashed_counts(settings, None if on_servers is None else on_servers.servers)
        else:
            import_tensorflow_quietly()
            on_commit = None if exporter is None else exporter.look
            train_once = partial(_train, warehouse, solution, settings, changes, slice_, on_commit)
            if on_servers is None:
                report = train_once(partition, sparse_core)
                hashed = dict(report.hashed_counts)
            else:
                report, hashed = _train_on_servers(partial(train_once, None, None), settings, on_servers, least_servers)
        exported = finish_export(exporter)
        tested = held_out if report.finished else None
        scores = _evaluate(warehouse, tested, folder) if tested else None
        raw = {column: _score_column(warehouse, tested, column) for column in baseline or ()} if tested else {}
    screen = _screen(
        solution, held_out, settings, report, hashed, scores, raw, time.monotonic() - began, exported, named_towers
    )
    emit(screen, as_json=as_json)
    check_exported(exported)


def _check_placement(
    settings: TrainConfig, *, is_served: bool, hosts: int, plan: PartitionPlan | None, has_towers: bool
) -> None:
    """Raise for hashed and pruned tables where they cannot be, also for a run that goes on."""
    from trainer.training.preparation import check_placement

    check_placement(settings, is_served=is_served, hosts=hosts, plan=plan, has_towers=has_towers)


def _check_run_dir(run_dir: str, *, is_job: bool) -> None:
    """Raise :class:`InputError` for a run directory in a bucket without a job."""
    from warehouse.storage.locations import is_gcs

    if is_gcs(run_dir) and not is_job:
        raise InputError("the run directory of training in one process must be a local folder", where="--run-dir", value=run_dir,
                         allowed="a local folder, or gs://bucket/path with --hosts", next_step="give --hosts 1 too")  # fmt: skip


def _check_baseline(warehouse: Warehouse, solution: ReadSolution, column: str) -> None:
    from warehouse.tables.manifests import get_table

    if solution.target.kind != "binary":
        raise InputError("a baseline must be of a model with a binary label",
                         where=f"--baseline {column}", value=f"a {solution.target.kind} label",
                         next_step="leave --baseline out")  # fmt: skip
    with warehouse.catalog.read() as connection:
        stored = get_table(connection, solution.table).column(column)
    if not stored.arrow_type.startswith(("int", "uint", "float", "double", "halffloat", "bool")):
        raise InputError("a baseline must be a number", where=f"--baseline {column}", value=stored.arrow_type,
                         allowed="an integer, float or boolean column")  # fmt: skip


def choose_options(
    warehouse: Warehouse, solution: ReadSolution, options: Mapping[str, Any], run_dir: str
) -> TrainConfig:
    """The given options, and those that are chosen from the data."""
    from trainer.choosing.choose import choose_config

    return choose_config(
        solution,
        fragment_reader(warehouse, solution),
        options,
        run_dir=run_dir,
        tell=say,
        before_trial=import_tensorflow_quietly,
    )


def change_policy(accept: bool, train_labels: bool) -> ChangePolicy:
    """What the options say about trained data that has changed."""
    from trainer.runs.data_changes import ChangePolicy

    return ChangePolicy(accept, train_labels)


def _connect(tpus: TpuOptions, options: Mapping[str, Any], run_dir: str) -> TpuSlice:
    """The TPUs of a run, before anything is read or compared: the settings of TensorFlow come first."""
    from trainer.choosing.choose import options_before_choices

    import_tensorflow_quietly()
    from trainer.model.tensorflow_settings import prepare_tensorflow

    prepare_tensorflow(options_before_choices(options, run_dir=run_dir))
    return tpus.connect()


def _train(
    warehouse: Warehouse,
    solution: ReadSolution,
    settings: TrainConfig,
    changes: ChangePolicy,
    slice_: TpuSlice | None,
    on_commit: Callable[[], None] | None,
    plan: PartitionPlan | None,
    sparse_core: SparseCoreSettings | None,
    make_engine: MakeEngine | None = None,
    follow_moves: FollowMoves | None = None,
    leaving: LeavingServers | None = None,
) -> TrainReport:
    from trainer.training.loop import train as run_training
    from trainer.training.served_weights import stay
    from warehouse.reading.reader import read_labels

    with progress_bar(f"training {solution.model}", "events") as report:

        def follow(event: TrainEvent) -> None:
            if event.kind == "skipped":
                say(f"a checkpoint was skipped: {event.message}")
            if event.kind == "checkpoint" and on_commit is not None:
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
            stop=None if leaving is None else leaving.is_any_back,
            ends_early=None if leaving is None else leaving.must_end_early,
            record=recorder(warehouse, PROCESS),
        )


def _train_on_servers(
    train_once: Callable[[MakeEngine, FollowMoves, LeavingServers], TrainReport],
    settings: TrainConfig,
    on_servers: OpenServers,
    least: int,
) -> tuple[TrainReport, dict[str, HashedCounts]]:
    """Train, and go on from the newest checkpoint when a server leaves or loses its rows; returns what hashed tables have done, too.

    ``least``: with this number of servers training goes on while others are away; 0: it waits for all.
    """
    from trainer.checkpoints.open_run import open_run
    from trainer.checkpoints.run_files import newest_first
    from trainer.servers.leaving_servers import LeavingServers
    from trainer.training.server_losses import train_through_losses

    files = open_run(on_servers.folder)
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
            lambda error, newest: say(
                f"{error.what}: {error.where}; training goes on from {newest or 'the beginning'}"
            ),
            leaving,
        )
        return report, _hashed_counts(settings, moves.servers)  # servers that were started end with the moves


@contextmanager
def _shown_wait() -> Iterator[Callable[[str], None]]:
    """Shows what training waits for."""
    with progress_bar("waiting for a server", "events") as report:
        yield lambda what: report(0, 0, what)


def _hashed_counts(settings: TrainConfig, servers: RunServers | None) -> dict[str, HashedCounts]:
    """What the hashed tables have done; none, and a sentence, if a server is away: the run has ended well."""
    from trainer.errors import ServerLost

    if not settings.hashed or servers is None:
        return {}
    try:
        return servers.hashed_counts()
    except ServerLost as error:
        say(f"the counts of hashed tables are not known: {error.what}: {error.where}")
        return {}


def _check_test_labels(warehouse: Warehouse, held_out: ReadSolution) -> None:
    """Raise, before training, for a test label that the task does not have."""
    from trainer.data.label_scan import check_labels
    from warehouse.reading.reader import read_labels

    check_labels(held_out, partial(read_labels, warehouse.storage, held_out))


def _evaluate(warehouse: Warehouse, held_out: ReadSolution, run_dir: str) -> AnyScores:
    from trainer.serving.trained import load_trained

    import_tensorflow_quietly()
    with progress_bar("testing", "events") as report:
        return load_trained(run_dir).evaluate(held_out, fragment_reader(warehouse, held_out), progress=report)


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


def _epoch_rows(report: TrainReport) -> tuple[EpochRow, ...]:
    from headrace.screens.training import TRAINING, UNSEEN, EpochRow

    return tuple(
        EpochRow(
            item.epoch,
            item.partitions[0],
            item.partitions[-1],
            item.scores,
            item.pass_number + 1,
            UNSEEN if item.is_unseen else TRAINING,
        )
        for item in report.history
    )


def _passes_row(solution: ReadSolution, settings: TrainConfig, report: TrainReport) -> PassesRow | None:
    """The passes of a run that may have several."""
    from headrace.screens.training import HeldOutRow, PassesRow

    if report.held_out is None:
        if settings.passes == 1:
            return None
        return PassesRow(settings.passes, 0, (), _why_nothing_is_held_out(solution, settings))
    rows, before = [], None
    for one in report.held_out.scored:
        gain, error = (None, None) if before is None else one.gain_over(before)
        place = report.held_out_partitions[0], report.held_out_partitions[-1]
        rows.append(HeldOutRow(one.passes, one.epochs_done - 1, *place, one.scores, one.loss, gain, error))
        before = one
    return PassesRow(settings.passes, report.held_out.stopped, tuple(rows), "")


def _calibrations(settings: TrainConfig, report: TrainReport) -> dict[str, str]:
    """By label, the map of predictions in words."""
    if settings.calibration == "none":
        return {}
    found = {} if report.held_out is None else report.held_out.calibrations
    return {name: one.text() for name, one in found.items()} or {"": "none: no held-out event has been scored"}


def _why_nothing_is_held_out(solution: ReadSolution, settings: TrainConfig) -> str:
    if not settings.held_out_share:
        return "held_out_share is 0"
    if len(solution.partitions) == 1:
        return "the range has one partition, and whole partitions are held out"
    return "when the run began, its range had one partition with labels, or its release held nothing out"


def _option_rows(settings: TrainConfig) -> tuple[OptionRow, ...]:
    """The chosen options, one row per reason."""
    from headrace.screens.training import OptionRow

    values = settings.to_document()
    by_reason: dict[str, list[str]] = {}
    for name, reason in settings.chosen.items():
        by_reason.setdefault(reason, []).append(name)
    return tuple(OptionRow({name: values[name] for name in names}, reason) for reason, names in by_reason.items())


def _screen(
    solution: ReadSolution,
    held_out: ReadSolution | None,
    settings: TrainConfig,
    report: TrainReport,
    hashed: dict[str, HashedCounts],
    scores: AnyScores | None,
    baselines: dict[str, float | None],
    secs: float,
    exported: ExportedChain | None,
    towers: Towers,
) -> Any:
    from headrace.screens.training import TrainedScreen, export_row
    from trainer.checkpoints.host_steps import idle_share
    from trainer.training.kept_rows import unpruned_share_of

    ledger = report.ledger
    return TrainedScreen(
        model=solution.model,
        version=solution.model_version,
        table=solution.table,
        table_version=solution.table_version,
        run_dir=settings.run_dir,
        resumed_from=report.resumed_from,
        epochs=_epoch_rows(report),
        events_this_time=report.events,
        events_in_range=solution.rows,
        columns_read={action: solution.count(action) for action in ("load", "compute", "raw")},
        options=_option_rows(settings),
        passes=(report.held_out.stopped if report.held_out else 0) or settings.passes,
        counted=None if ledger is None else ledger.events,
        fewest_times=None if ledger is None else ledger.least,
        most_times=None if ledger is None else ledger.most,
        exact=None if ledger is None else ledger.exact,
        unlabelled=report.unlabelled,
        late=report.late,
        staleness=report.staleness,
        steps_by_host={name: one.steps for name, one in report.host_steps.items()},
        idle_host_steps_share=idle_share(report.host_steps),
        hashed=hashed,
        budget=1.0 if settings.pruning is None else settings.pruning.budget,
        label=solution.label,
        task=solution.target.kind,
        test_unlabelled=held_out.rows - scores.events if held_out and scores else 0,
        test=scores,
        baselines=baselines,
        training_secs=report.seconds,
        secs=secs,
        finished=report.finished,
        export=None if exported is None else export_row(exported),
        towers=_tower_row(solution, settings, towers),
        trial=settings.trial,
        verdict=training_verdict(settings, report, scores),
        unpruned_share=unpruned_share_of(settings, on_skip=say),
        all_passes=_passes_row(solution, settings, report),
        calibrations=_calibrations(settings, report),
    )


def _tower_row(solution: ReadSolution, settings: TrainConfig, named: Towers) -> TowerRow | None:
    """The modules of the model's towers, if it has any; ``named``: the towers by which hosts exchange."""
    from headrace.screens.training import TowerRow
    from trainer.host.tower_weights import has_own_modules
    from trainer.model.tower_shapes import tower_shapes
    from trainer.training.preparation import described

    if settings.tower_modules is None or not settings.deep:
        return None
    _, layout = described(solution, settings)
    shapes = tower_shapes(layout.features, settings)
    if shapes is None:
        return None
    columns, outputs = (sum(getattr(one, name) for one in shapes.towers) for name in ("columns", "width"))
    is_own = bool(named) and has_own_modules(layout, settings, named)
    return TowerRow(len(shapes.towers), columns, outputs, shapes.compression, is_own)
