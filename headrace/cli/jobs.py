"""``headrace jobs``: a fleet of training jobs on this machine, which share its slots."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.launchers import LOCAL
from headrace.cli.options.listings import listing
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.runs import job_folder, run_folder
from headrace.cli.options.session import AsJson, Home, home_folder, home_location, run_location
from headrace.cli.train_options.arguments import arguments_without_file, parse_training, save_options, training_values
from headrace.terminal.output import emit, say
from headrace.views.jobs import FLEET, JobPlace, listed, screen_of, shown
from transforms.child_process import module_command
from transforms.errors import HeadraceError, InputError
from transforms.log_fields import log_fields
from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.fleet_store import FleetStore, StoredJob

app = typer.Typer(
    help="A fleet of training jobs on this machine: they are queued, and share its slots.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Job = Annotated[str, typer.Argument(help="The number or the name of a job.")]
FleetFolder = Annotated[
    str, typer.Option("--fleet", help="Folder of the fleet. Default: fleet in the home.", show_default=False)
]


@app.command("submit")
def submit(
    command: Annotated[list[str], typer.Argument(help="The job: -- train MODEL, and options of headrace train.")],
    name: Annotated[str, typer.Option(help="Its name. Default: the model's, with a number.")] = "",
    priority: Annotated[int, typer.Option(help="A higher one runs first.")] = 0,
    slots: Annotated[
        int, typer.Option(help="Slots that it takes. Default: its hosts and most readers, or 1.", show_default=False)
    ] = 0,
    fleet: FleetFolder = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Queue a training job. headrace jobs run starts it."""
    from trainer.job.launch.fleet_store import Submission

    if command[0] != "train":
        raise InputError("a job must be a training", where="headrace jobs submit", value=command[0], allowed="train",
                         next_step="headrace jobs submit -- train MODEL")  # fmt: skip
    options = parse_training(command[1:])
    if options.cluster.launcher != LOCAL:
        raise InputError("a job of a fleet must run on this machine", where="--launcher", value=options.cluster.launcher,
                         next_step="leave --launcher out")  # fmt: skip
    store = _store(fleet, home)
    place = home_location(options.run.home or home)
    run_dir = _absolute(run_location(options.run.run_dir), os.getcwd())
    taken = {one.job.name for one in store.jobs()}
    free = (f"{options.model}-{number}" for number in range(1, len(taken) + 2))
    chosen = name or next(one for one in free if one not in taken)
    readers = options.hosts.reader_range
    count = slots or max(1, options.hosts.hosts + (0 if readers is None else readers.most))
    save_options(options)
    has_file = options.run.from_file or options.run.save_as
    training = arguments_without_file(options) if has_file else tuple(command[1:])
    stored = store.submit(Submission(chosen, count, priority, training, os.getcwd(), place, run_dir))
    emit(screen_of(store.folder, stored, job_place), as_json=as_json)


@app.command("ls")
@listing()
def list_(fleet: FleetFolder = "", home: Home = "", as_json: AsJson = False) -> None:
    """List the jobs."""
    emit(listed(_store(fleet, home).folder), as_json=as_json)


@app.command("show")
@listing(csv=False)
def show(job: Job, fleet: FleetFolder = "", home: Home = "", as_json: AsJson = False) -> None:
    """Show a job: its state, its command and its files."""
    emit(shown(_store(fleet, home).folder, job, job_place), as_json=as_json)


@app.command("logs")
def logs(
    job: Job,
    lines: Annotated[int, typer.Option(help="The last lines only; 0: all.")] = 0,
    fleet: FleetFolder = "",
    home: Home = "",
) -> None:
    """Print the output of a job."""
    from headrace.terminal.printable import printable

    store = _store(fleet, home)
    path = store.log_path(store.find(job).job.number)
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    shown = text.splitlines()
    for line in shown[-lines:] if lines > 0 else shown:
        sys.stdout.write(printable(line) + "\n")


@app.command("stop")
def stop(job: Job, fleet: FleetFolder = "", home: Home = "", as_json: AsJson = False) -> None:
    """Stop a job: a running one commits first. Submitted again, it goes on from there."""
    from trainer.scheduling.fleet import FleetEvent, move

    store = _store(fleet, home)
    number = store.find(job).job.number
    stored = store.update(number, lambda one: move(one, FleetEvent.STOP, reason="a person stopped it"))
    emit(screen_of(store.folder, stored, job_place), as_json=as_json)


@app.command("run")
@grouped
def run(
    slots: Annotated[int, typer.Option(help="Slots that the jobs share, such as cores or accelerators.")],
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no job runs and none can be started.")
    ] = False,
    fleet: FleetFolder = "",
    home: Home = "",
    as_json: AsJson = False,
    *,
    metrics: MetricsOptions,
) -> None:
    """Run the queued jobs, until Ctrl-C or SIGTERM: then they commit, leave and are queued again."""
    from headrace.metrics.process import Process
    from headrace.screens.jobs import JobsScreen
    from trainer.job.launch.fleet_metrics import FleetMetrics
    from trainer.job.launch.fleet_run import run_fleet

    if slots < 1:
        raise InputError("a fleet must have at least one slot", where="--slots", value=slots)
    store = _store(fleet, home)
    with metrics.bound(Process("fleet", store.folder.name)) as serve:
        recorded, registry = FleetMetrics(slots), Registry()
        registry.add("fleet", lambda: recorded.families(time.time()))
        serve(registry)
        jobs = run_fleet(
            store,
            slots,
            command_of,
            until_idle=until_idle,
            is_held=HeldJobs().has,
            on_change=tell_state,
            metrics=recorded,
        )
    emit(JobsScreen(str(store.folder), jobs), as_json=as_json)


def _store(fleet: str, home: str) -> FleetStore:
    from trainer.job.launch.fleet_store import FleetStore

    return FleetStore(Path(fleet or os.path.join(home_folder(home, "a fleet without --fleet"), FLEET)).absolute())


def _absolute(path: str, folder: str) -> str:
    """A path of a process whose working folder is ``folder``; empty for none."""
    return os.path.normpath(os.path.join(folder, path)) if path and "://" not in path else path


def job_files(stored: StoredJob) -> JobFiles:
    """The files of a job. Raises :class:`InputError` where the training would."""
    from trainer.job.control.job_files import JobFiles

    own = stored.submission
    job_dir = _absolute(training_values(own.arguments)["job_dir"], own.folder)
    return JobFiles(job_folder(_run_dir(stored), own.home, job_dir))


def job_place(stored: StoredJob) -> JobPlace:
    """Where the files of a job are; without the folder of a job with options that the training refuses."""
    run_dir = _run_dir(stored)
    if not run_dir:
        return JobPlace()
    try:
        return JobPlace(run_dir, job_files(stored).root)
    except InputError:
        return JobPlace(run_dir)


def _run_dir(stored: StoredJob) -> str:
    """The folder of a job's checkpoints; empty while it is unknown."""
    own = stored.submission
    if own.run_dir:
        return own.run_dir
    options = training_values(own.arguments)
    try:
        return run_folder(options["model"], options["version"], own.home)
    except HeadraceError:
        return ""  # the model has not been trained


def command_of(stored: StoredJob, record: Path, supervisor: int) -> list[str]:
    """The command line of a job; ``record``: the file that gets its result."""
    training = ("--record", str(record), "train", *stored.submission.arguments)
    return module_command("headrace", *training, "--supervisor", str(supervisor))


def tell_state(stored: StoredJob) -> None:
    """Say in which state a job is."""
    job = stored.job
    with log_fields(fleet_job=job.number):
        say(f"job {job.number}, {job.name}: {job.state}" + (f": {job.reason}" if job.reason else ""))


class HeldJobs:
    """Which held jobs still are; a log is read again when it has changed."""

    def __init__(self) -> None:
        from headrace.runs.known_runs import KnownHolds

        self._known = KnownHolds()

    def has(self, stored: StoredJob) -> bool:
        """Whether an error holds the job; an unreadable one is held."""
        files = job_files(stored)
        try:
            files.log.stat()
            return self._known.find(files) is not None
        except (OSError, HeadraceError):
            return True
