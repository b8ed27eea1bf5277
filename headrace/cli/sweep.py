"""``headrace sweep``: try training options, and go on with the better ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.jobs import HeldJobs, command_of, tell_state
from headrace.cli.options.completions import model_names
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, home_folder, open_warehouse
from headrace.cli.options.training import read_options
from headrace.cli.train_options.arguments import parse_training
from headrace.terminal.output import emit, say
from headrace.terminal.quantities import moment_of
from headrace.terminal.units import many
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.sweeps.halving import Rung
    from headrace.sweeps.sweep_files import SweepFolder, SweepPlan

app = typer.Typer(
    help="Try training options on more and more of the data, and go on with the better ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Name of the sweep; its runs are in sweeps/NAME of the home.")]


@app.command("run")
def run(
    name: Name,
    model: Annotated[
        str, typer.Argument(autocompletion=model_names, help="Name of a submitted model.", show_default=False)
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="A training option to vary: batch_rows=64,256 or dense_learning_rate=1e-4..1e-2; may be repeated.",
        ),
    ] = None,
    start: Annotated[str, typer.Option(help="Train partitions from this time on (ISO 8601, UTC).")] = "",
    end: Annotated[str, typer.Option(help="Train partitions that start before this time.")] = "",
    test_end: Annotated[
        str, typer.Option(help="Test the last trials on the partitions from --end up to this time.")
    ] = "",
    config: Annotated[
        str, typer.Option(help="A JSON file of the training options of all trials: docs/training.md.")
    ] = "",
    trials: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Trials: all combinations if they are no more, else so many at random."),
    ] = 16,
    rungs: Annotated[
        int, typer.Option(min=1, max=20, help="Parts: each trains several times the partitions of the one before.")
    ] = 3,
    factor: Annotated[
        int,
        typer.Option(
            min=2, max=64, help="How many times more partitions, and fewer trials, from one rung to the next."
        ),
    ] = 2,
    seed: Annotated[int, typer.Option(help="The seed of random trials.")] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Trials that train at the same time.")] = 1,
    argument: Annotated[
        list[str] | None,
        typer.Option(
            help="An argument of headrace train for all trials, such as --argument=--hosts=2; may be repeated."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep of this name, without naming its options again.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Try training options by successive halving: all trials train a part of the data, and the better ones on held-out events go on.

    A trial that goes on continues its run, so nothing is trained twice. Ctrl-C stops after commits, and the same command goes on.
    """
    from headrace.sweeps.sweep_files import SweepFolder
    from headrace.views.sweeps import sweep

    folder = SweepFolder.of_home(home_folder(home, "a sweep"), name)
    if not resume:
        folder.begin(
            _planned(
                model, option or [], (start, end, test_end), config, argument or [], trials, rungs, factor, seed, home
            )
        )
    _train(folder, folder.plan(), slots, home)
    emit(sweep(folder), as_json=as_json)


@app.command("show")
@listing(csv=False)
def show(name: Name, home: Home = "", as_json: AsJson = False) -> None:
    """Show the trials of a sweep, the best first."""
    from headrace.sweeps.sweep_files import SweepFolder
    from headrace.views.sweeps import sweep

    emit(sweep(SweepFolder.of_home(home_folder(home, "a sweep"), name)), as_json=as_json)


def _planned(
    model: str,
    options: Sequence[str],
    times: tuple[str, str, str],
    config: str,
    arguments: Sequence[str],
    trials: int,
    rungs: int,
    factor: int,
    seed: int,
    home: str,
) -> SweepPlan:
    """The plan of the options, all of whose trials are options of training. Raises :class:`InputError`."""
    from headrace.sweeps.halving import rungs_of
    from headrace.sweeps.space import check_space, parse_option, trials_of
    from headrace.sweeps.sweep_files import SweepPlan

    if not model:
        raise InputError(
            "a sweep must have a model", where="MODEL", next_step="headrace sweep run NAME MODEL, or --resume"
        )
    space = [parse_option(one) for one in options]
    check_space(space)
    chosen = trials_of(space, trials, seed)
    common = read_options(config)
    for trial in chosen:
        _check_options({**common, **trial})
    parse_training([model, *arguments])
    first, last, tested = (
        moment_of(flag, text) for flag, text in zip(("--start", "--end", "--test-end"), times, strict=True)
    )
    if last is None or tested is None or tested <= last:
        raise InputError("a sweep must have partitions to test on", where="--end, --test-end", value=f"{times[1] or '-'}, {times[2] or '-'}",
                         next_step="give --end, and a later --test-end")  # fmt: skip
    starts = _starts(home, model, first, tested)
    trained = [one for one in starts if one < last]
    made = rungs_of(len(chosen), len(trained), rungs, factor)
    ends = tuple(_ends(one, starts, trained, last, tested) for one in made)
    given = (*([f"--start={first.isoformat()}"] if first else []), *arguments)
    return SweepPlan(model, chosen, common, given, ends, tuple(one.trials for one in made))


def _check_options(options: dict[str, Any]) -> None:
    from trainer.options.config import TrainConfig

    TrainConfig.from_document(options, run_dir="sweep")


def _starts(home: str, model: str, first: datetime | None, tested: datetime) -> list[datetime]:
    """The starts of the model's partitions in the range, in order. Raises :class:`InputError` for fewer than two."""
    from warehouse.models.models import get_model
    from warehouse.tables.manifests import table_manifests

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        table = get_model(connection, model).table
        found = sorted(one.start for one in table_manifests(connection, table))
    kept = [one for one in found if (first is None or one >= first) and one < tested]
    if len(kept) < 2:
        raise InputError("a sweep must have partitions to train and to test", where=f"table {table}", value=many(len(kept), "partition"),
                         next_step=f"headrace table show {table} lists the partitions")  # fmt: skip
    return kept


def _ends(
    rung: Rung, starts: Sequence[datetime], trained: Sequence[datetime], last: datetime, tested: datetime
) -> tuple[str, str]:
    """The end of a rung's trained partitions, and the end of those that test it, which are as long as those of the last rung."""
    end = last if rung.partitions >= len(trained) else starts[rung.partitions]
    return end.isoformat(), min(end + (tested - last), tested).isoformat()


def _train(folder: SweepFolder, plan: SweepPlan, slots: int, home: str) -> None:
    """Train rung after rung, until all are trained or a signal ends this one."""
    from headrace.sweeps.halving import survivors
    from headrace.sweeps.sweep_files import job_name
    from headrace.views.sweeps import rung_scores
    from trainer.job.launch.fleet_run import run_fleet
    from trainer.job.launch.fleet_store import FleetStore, Submission

    place = home_folder(home, "a sweep")
    store = FleetStore(folder.fleet)
    for rung, (end, test_end) in enumerate(plan.ends):
        scores, _ = rung_scores(folder, plan)
        going = range(len(plan.trials)) if rung == 0 else survivors(scores[rung - 1], plan.counts[rung])
        known = {one.job.name for one in store.jobs()}
        for trial in going:
            if job_name(rung, trial) in known:
                continue
            run_dir = str(folder.run_dir(trial).absolute())
            training = (plan.model, f"--home={place}", f"--run-dir={run_dir}", f"--config={folder.config(trial).absolute()}", *plan.arguments,
                        f"--end={end}", f"--test-end={test_end}")  # fmt: skip
            store.submit(Submission(job_name(rung, trial), 1, 0, training, str(folder.path.absolute()), place, run_dir))
        if len(scores) > rung:
            continue
        say(f"rung {rung + 1} of {len(plan.ends)}: {many(len(going), 'trial')} up to {end}")
        run_fleet(store, slots, command_of, until_idle=True, is_held=HeldJobs().has, on_change=tell_state)
        if len(rung_scores(folder, plan)[0]) <= rung:
            return
