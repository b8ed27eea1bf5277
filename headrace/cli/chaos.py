"""``headrace chaos -- train``: run a training job under random faults, and prove what it trained."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.batch_files import open_batch_files
from headrace.cli.options.runs import run_folder_of
from headrace.cli.options.servers import (
    SUMMED,
    ServerOptions,
    server_command,
    servers_at,
    worker_command,
)
from headrace.cli.options.session import AsJson, home_folder, open_warehouse
from headrace.cli.options.solutions import pinned
from headrace.cli.options.training import read_options
from headrace.cli.planned_training import (
    check_plan_tables,
    partition_of_towers,
    plan_of_training,
    towers_of_training,
    with_hot_rows,
)
from headrace.cli.train_options.arguments import parse_training, training_values
from headrace.cli.train_options.chaos_options import check_passed, unused_options
from headrace.cli.train_options.training import TrainOptions
from headrace.cli.training_jobs import (
    JobOptions,
    job_options,
    job_settings,
    plan_options,
    prepare,
    role_command,
    server_roles,
    worker_roles,
)
from headrace.terminal.output import emit, say
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, InputError
from transforms.execution.memory import keep_freed_memory

if TYPE_CHECKING:
    from headrace.screens.chaos import ChaosScreen
    from trainer.job.control.messages import JobStatus
    from trainer.job.launch.chaos.injection import Injection
    from trainer.job.launch.chaos.limited_memory import LimitedMemory
    from trainer.job.launch.chaos.schedule import ChaosSettings, FaultKind
    from trainer.job.launch.job_spec import ServersSpec
    from trainer.job.launch.training_job import LaunchedJob
    from trainer.options.config import TrainConfig
    from trainer.options.towers import HostTowers
    from trainer.planning.plan import PartitionPlan
    from trainer.run.progress.data_changes import ChangePolicy
    from trainer.scheduling.job import JobSettings
    from trainer.wire.flight.addresses import Address
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse

#: The longest time between two commits, unless the arguments give one.
_EPOCH_SECS = 5.0
#: A silent role or server is lost after this time, so that long pauses and partitions lose some.
_LOST_SECS, _MOST_STEP_SECS = 6.0, 2.0
_MANY = 1_000_000


def chaos(
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- train ARGS…", help="A training job: the arguments of headrace train.")
    ],
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal faults.")] = 1,
    faults: Annotated[int, typer.Option(help="The number of faults; a job that ends earlier has fewer.")] = 20,
    mean_secs: Annotated[float, typer.Option(help="The mean time between the beginnings of two faults.")] = 3.0,
    kinds: Annotated[
        str,
        typer.Option(
            help="The kinds of faults, with commas. Of processes, the default: kill, pause, partition, slow-disk, preempt, and with --servers "
            "kill-keeper, slow-link, lose-machine. By name: flip, drop, repeat, reorder, delay, which damage the bytes between two "
            "processes, neighbour, and with --servers full-memory.",
            show_default=False,
        ),
    ] = "",
    compare: Annotated[
        bool, typer.Option("--compare", help="Also run the job undisturbed, and compare all weights bit for bit.")
    ] = False,
    folder: Annotated[
        str,
        typer.Option(
            help="A new folder for the runs. Default: runs/chaos-MODEL-… in the home. No other run is touched.",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run a training job under random faults, and count how often each event was trained.

    The job runs in a new run directory. Its processes are killed, paused, cut off, slowed and preempted, the bytes between them damaged.
    """
    from headrace.cli.train import change_policy
    from trainer.job.launch.chaos.schedule import ROLES, SERVER, WORKER, ChaosSettings
    from trainer.run.preparation.preparation import check_placement

    began = time.monotonic()
    given = _training_options(arguments)
    for sentence in unused_options(given):
        say(sentence)
    servers = _count_servers(given.servers, is_compared=compare)
    workers = int(given.servers.embedding_workers or 0)
    roles = (*ROLES, *((SERVER,) if servers else ()), *((WORKER,) if workers else ()))
    options = _job_options(given)
    open_batch_files(options.batch_file_bytes, given.run.home)  # which refuses a home in a bucket
    plan = _plan(given, options)
    towers = towers_of_training(given.hosts.towers, options.hosts)
    settings = ChaosSettings(seed, faults, mean_secs, _kinds(kinds, roles), roles, options.hosts.hosts)
    first, last, _ = given.data.moments()
    with open_warehouse(given.run.home) as warehouse, ExitStack() as pins:
        model, data = given.model, given.data
        solution = pins.enter_context(
            pinned(warehouse, model, data.version, first, last, command="chaos", table_version=data.table_version)
        )
        keep_freed_memory()
        target = _new_folder(folder, model, given.run.home)
        say(f"the runs are in {target}")
        config = _config(warehouse, solution, given)
        if towers:
            plan = partition_of_towers(towers, options.hosts.hosts, solution, config)
        elif plan is not None:
            check_plan_tables(plan, solution, read_options(given.run.config), str(target))
        most_hosts = options.hosts.most_hosts
        check_placement(config, is_served=bool(servers), hosts=most_hosts, plan=plan, has_towers=bool(towers))
        changes = change_policy(data.accept_changed, data.train_changed_labels)
        run = _Runs(warehouse, solution, config, options, changes, servers, workers, given, plan, towers)
        screen = _disturbed(run, target / "disturbed", settings)
        if compare and screen.is_done:
            differing = _compare(run, target)
            screen = dataclasses.replace(screen, differing=differing)
        screen = dataclasses.replace(screen, secs=time.monotonic() - began)
    emit(screen, as_json=as_json)
    if not screen.is_right:
        raise typer.Exit(DataError.exit_status)


@dataclasses.dataclass(frozen=True)
class _Runs:
    """What is trained, and how.

    Attributes:
        servers: the number of parameter servers; 0: hosts hold the tables.
        workers: the number of embedding workers between hosts and servers.
        given: the options of ``headrace train``.
        plan: by which hosts, or servers, hold the tables; None: rows are spread over them.
        towers: by which hosts exchange.
    """

    warehouse: Warehouse
    solution: ReadSolution
    config: TrainConfig
    options: JobOptions
    changes: ChangePolicy
    servers: int
    workers: int
    given: TrainOptions
    plan: PartitionPlan | None
    towers: HostTowers


def _kinds(text: str, roles: Sequence[str]) -> tuple[FaultKind, ...]:
    from trainer.job.launch.chaos.schedule import PROCESS_KINDS, FaultKind, kinds_of

    names = [name.strip() for name in text.split(",") if name.strip()]
    names = names or [str(kind) for kind in kinds_of(roles) if kind in PROCESS_KINDS]
    for name in names:
        if name not in list(FaultKind):
            raise InputError("a kind of fault must be a known one", where="--kinds", value=name, allowed=", ".join(FaultKind))  # fmt: skip
    return tuple(dict.fromkeys(FaultKind(name) for name in names))


def _training_options(arguments: Sequence[str]) -> TrainOptions:
    """The options of ``headrace train``, with at least one host. Raises :class:`InputError` for those that are not for chaos."""
    if arguments[0] != "train":
        raise InputError("chaos must be given a training job", value=arguments[0], allowed="headrace chaos -- train MODEL …")  # fmt: skip
    given = training_values(arguments[1:])
    check_passed(given)
    return parse_training(arguments[1:], hosts=1)


def _count_servers(options: ServerOptions, *, is_compared: bool) -> int:
    """The parameter servers that are started for the job. Raises :class:`InputError` for others."""
    text, workers = options.servers, options.embedding_workers
    if text and not text.isdigit():
        raise InputError("chaos starts the parameter servers that it disturbs: give their number", where="--servers", value=text,
                         allowed="a number of servers")  # fmt: skip
    if workers and not workers.isdigit():
        raise InputError("chaos starts the embedding workers that it disturbs: give their number", where="--embedding-workers", value=workers,
                         allowed="a number of workers")  # fmt: skip
    if is_compared and options.server_updates != SUMMED:
        raise InputError("--compare needs updates in a fixed order", where="--server-updates",
                         value=options.server_updates, next_step="leave --compare out")  # fmt: skip
    return int(text or 0)


def _job_options(given: TrainOptions) -> JobOptions:
    """The job of the user, with commits often enough for faults to be worth something."""
    options = job_options(given)
    assert options is not None, "it has a host"
    often = options.hosts.epoch_secs or _EPOCH_SECS
    return dataclasses.replace(options, hosts=dataclasses.replace(options.hosts, epoch_secs=often))


def _plan(given: TrainOptions, options: JobOptions) -> PartitionPlan | None:
    """The plan of ``--plan``. Raises :class:`InputError` for one that follows measured times."""
    if given.hosts.plan_follows_data:
        raise InputError("a job under faults must have a plan that stays: another one follows measured times, which faults change", where="--plan",
                         value=given.hosts.plan, next_step="headrace plan make MODEL --output FILE, or leave --plan out")  # fmt: skip
    return plan_of_training(given.hosts.plan, None if given.servers.servers else options.hosts, None)


def _new_folder(folder: str, model: str, home: str) -> Path:
    name = f"chaos-{model}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    target = Path(folder or str(Path(home_folder(home, "a run without --folder")) / "runs" / name)).absolute()
    if target.exists():
        raise InputError("the folder of the runs must not exist", where="--folder", value=str(target))
    return target


def _config(warehouse: Warehouse, solution: ReadSolution, given: TrainOptions) -> TrainConfig:
    """The options of the user's run, if it has begun, else those chosen; always deterministic and counted."""
    from headrace.cli.train import choose_options

    run_dir = run_folder_of(given.run.run_dir, solution.model, solution.model_version, given.run.home)
    asked = {**read_options(given.run.config), "deterministic": True, "count_events": True}
    given.check_combinations(asked)
    chosen = choose_options(warehouse, solution, asked, run_dir, hosts=given.hosts.most_hosts)
    return with_hot_rows(given.run.home, solution, chosen)


@contextmanager
def _open_servers(
    run: _Runs, run_dir: Path, injection: Injection | None, memory: LimitedMemory | None = None
) -> Iterator[ServersSpec | None]:
    """The parameter servers and embedding workers of one of the runs, with the token of its job; None without."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.local_servers import LocalServers

    if not run.servers:
        yield None
        return
    logs, files = run_dir / "logs", JobFiles(run_dir)
    files.make_token()
    token_file = str(files.token)
    with ExitStack() as started:
        folder = None if memory is None else memory.folder
        servers = started.enter_context(
            LocalServers(
                run.servers,
                partial(server_command, threads=run.given.servers.local_threads),
                token_file=files.token,
                logs=logs,
                runs=str(run_dir.absolute()),
                memory=folder,
            )
        )
        disturbed = None if injection is None else injection.open_servers(servers, memory)
        addresses = servers.addresses if disturbed is None else disturbed.addresses
        workers: tuple[Address, ...] = ()
        if run.workers:
            command = partial(
                worker_command, servers.addresses if disturbed is None else disturbed.worker_addresses, "", token_file
            )
            local = started.enter_context(
                LocalServers(run.workers, command, token_file=files.token, logs=logs, kind="w", has_rows=False)
            )
            workers = local.addresses if injection is None else injection.open_workers(local)
        spec = servers_at(
            addresses,
            run.given.servers,
            run.given.cluster,
            run.plan,
            str(run_dir),
            files,
            token_file,
            workers,
            token_file,
        ).spec
        yield spec if injection is None else dataclasses.replace(spec, patience_secs=_LOST_SECS)


def _launch(run: _Runs, run_dir: Path, servers: ServersSpec | None) -> tuple[LaunchedJob, int]:
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.training_job import make_job

    config = dataclasses.replace(run.config, run_dir=str(run_dir))
    prepared = prepare(run.warehouse, run.solution, config, run.changes, run_dir)
    settings = _patient(job_settings(run.options))
    plan = plan_options(run.options, run.config)
    job = make_job(
        prepared,
        JobFiles(run_dir),
        settings,
        home=run.warehouse.storage.home,
        options=plan,
        partition=None if servers is not None or run.plan is None or run.plan.cores == 1 else run.plan,
        servers=servers,
        server_plan=None if servers is None else run.plan,
        towers=run.towers,
        wire_values=run.options.wire_values,
        dense_values=run.options.dense_values,
        batch_file_bytes=run.options.batch_file_bytes,
    )
    return job, prepared.planned_events


def _patient(settings: JobSettings) -> JobSettings:
    """Settings with which faults delay a job, and do not hold it."""
    from warehouse.scheduling.backoff import Backoff

    backoff = Backoff(first_secs=0.1, most_secs=1.0, jitter=0.0)
    return dataclasses.replace(settings, lost_secs=_LOST_SECS, most_step_secs=_MOST_STEP_SECS, most_restarts=_MANY,
                               most_reader_failures=_MANY, backoff=backoff)  # fmt: skip


def _supervise(run_dir: Path, job: LaunchedJob, planned: int, what: str, injection: Injection | None) -> JobStatus:
    """Run a job to its end, under the faults of ``injection``."""
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.supervisor import Supervisor, SupervisorSettings
    from warehouse.scheduling.backoff import Backoff

    command: Callable[[str, str, Sequence[str]], list[str]] = partial(role_command, str(run_dir))
    with progress_bar(what, "events") as report:

        def on_status(status: JobStatus) -> None:
            report(min(job.plan.units.due_before(status.next_unit), planned), planned)
            if injection is not None:
                injection.on_status(status)

        settings = SupervisorSettings(look_secs=0.1, backoff=Backoff(first_secs=0.1, most_secs=1.0, jitter=0.0))
        supervisor = Supervisor(
            JobFiles(run_dir),
            job.spec.job,
            command if injection is None else injection.command,
            on_status,
            settings=settings,
            servers=server_roles(job.spec, JobFiles(run_dir)),
            embedding_workers=worker_roles(job.spec, JobFiles(run_dir)),
        )
        if injection is None:
            return supervisor.run(job.newest)
        injection.attach(supervisor)
        return supervisor.run(job.newest)


def _disturbed(run: _Runs, run_dir: Path, settings: ChaosSettings) -> ChaosScreen:
    from headrace.screens.chaos import ChaosScreen, DamageRow
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.chaos.injection import Injection
    from trainer.job.launch.chaos.limited_memory import LimitedMemory
    from trainer.job.launch.chaos.proof import count_trained
    from trainer.job.launch.chaos.schedule import FaultKind, make_schedule
    from trainer.job.launch.holds import release_hold

    injection = Injection(JobFiles(run_dir), partial(role_command, str(run_dir)), make_schedule(settings))
    with ExitStack() as opened:
        memory = opened.enter_context(LimitedMemory()) if FaultKind.FULL_MEMORY in settings.kinds else None
        opened.enter_context(injection)
        servers = opened.enter_context(_open_servers(run, run_dir, injection, memory))
        began, memory_holds = time.monotonic(), 0
        while True:
            job, planned = _launch(run, run_dir, servers)
            status = _supervise(run_dir, job, planned, f"training {run.solution.model} under faults", injection)
            if memory is None or not _is_held_by_memory(status):
                break
            memory_holds += 1
            injection.end_faults(FaultKind.FULL_MEMORY)
            release_hold(JobFiles(run_dir))
        disturbed_secs = time.monotonic() - began
        injection.stop()  # before its servers end
    if injection.error is not None:
        raise injection.error
    config = dataclasses.replace(run.config, run_dir=str(run_dir))
    prepared = prepare(run.warehouse, run.solution, config, run.changes, run_dir)
    accounts = injection.accounts
    return ChaosScreen(
        model=run.solution.model,
        run_dir=str(run_dir),
        seed=settings.seed,
        planned_faults=settings.faults,
        faults={f"{kind} {role}": count for (kind, role), count in sorted(injection.applied.items())},
        state=str(status.state),
        attempts=len(accounts.attempts),
        commits=len(accounts.commits),
        crashes=len(accounts.crashes),
        lost_secs=tuple(accounts.lost_secs()),
        preempted=accounts.preempted(_GRACE_SECS),
        trained=count_trained(prepared),
        disturbed_secs=disturbed_secs,
        servers=run.servers,
        workers=run.workers,
        damages={f"{kind} {pair}": DamageRow(*counts) for (kind, pair), counts in sorted(injection.damages().items())},
        visits=sum(injection.visits.values()),
        let_in=tuple(sorted({role for role, is_refused in injection.visits if not is_refused})),
        memory_holds=memory_holds,
        hold="" if status.hold is None else status.hold.reason,
    )


def _is_held_by_memory(status: JobStatus) -> bool:
    """Whether a job is held because a memory folder was full, as it must be: it goes on once there is space."""
    from trainer.errors import MemoryFull

    return status.hold is not None and MemoryFull.__name__ in status.hold.reason


#: The notice of a preemption.
_GRACE_SECS = 30.0


def _compare(run: _Runs, target: Path) -> tuple[str, ...]:
    from trainer.job.launch.run_comparison import run_differences

    calm = target / "undisturbed"
    with _open_servers(run, calm, None) as servers:
        job, planned = _launch(run, calm, servers)
        _supervise(calm, job, planned, f"training {run.solution.model} undisturbed", None)
    return run_differences(target / "disturbed", calm)
