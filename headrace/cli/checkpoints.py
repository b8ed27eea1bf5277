"""``headrace ckpt``: list, show, compare, verify and reshard the checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.files import read_file
from headrace.cli.options.listings import listing
from headrace.cli.options.runs import Run, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, say
from headrace.terminal.progress import progress_bar
from transforms.errors import DataError, InputError

if TYPE_CHECKING:
    from trainer.checkpoints.inspection import FileCheck
    from trainer.checkpoints.run_files import RunFiles
    from trainer.planning.plan import PartitionPlan

app = typer.Typer(
    help="List, show, compare, verify and reshard the checkpoints of a training run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_EPOCH_HELP = "The number of epochs of the checkpoint, as ls lists it."


@app.command("ls")
@listing()
def list_(run: Run, version: RunVersion = 0, home: Home = "", as_json: AsJson = False) -> None:
    """List the checkpoints of a run, newest first.

    Arrays are not read: verify does that.
    """
    from headrace.views.checkpoints import listed

    emit(listed(run_folder(run, version, home)), as_json=as_json)


@app.command("show")
def show(
    run: Run,
    epoch: Annotated[
        int | None, typer.Argument(help=f"{_EPOCH_HELP} Default: the newest with intact manifests.")
    ] = None,
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint holds.

    Its position in the data, tables, other arrays, counters of trained events, and options.
    """
    from headrace.views.checkpoints import shown

    emit(shown(run_folder(run, version, home), epoch, say), as_json=as_json)


@app.command("diff")
def diff(
    run: Run,
    before: Annotated[int, typer.Argument(help=_EPOCH_HELP)],
    after: Annotated[int, typer.Argument(help="The other checkpoint.")],
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare two checkpoints of a run.

    Rows of tables, norms of changes, counters of trained events, and options. Both are read and verified.
    """
    from headrace.views.checkpoints import compared

    emit(compared(run_folder(run, version, home), before, after), as_json=as_json)


@app.command("verify")
def verify(
    run: Run,
    epoch: Annotated[int | None, typer.Argument(help=f"{_EPOCH_HELP} Default: all.")] = None,
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Read every byte of the checkpoints of a run.

    Each file is compared with its recorded digest. Exit status 3 if a checkpoint is torn.
    """
    from headrace.screens.checkpoints import VerifiedRunScreen
    from headrace.views.checkpoints import existing_epochs
    from trainer.checkpoints.inspection import check_files
    from trainer.checkpoints.run_files import epochs_of, newest_first

    folder, files = _opened(run, version, home)
    chosen = list(map(epochs_of, newest_first(files))) if epoch is None else [existing_epochs(files, folder, epoch)]
    checks: list[FileCheck] = []
    with progress_bar("reading checkpoints", "checkpoints") as report:
        for done, epochs in enumerate(chosen):
            report(done, len(chosen))
            checks += check_files(files, epochs)
    screen = VerifiedRunScreen(folder, tuple(checks))
    emit(screen, as_json=as_json)
    if screen.torn:
        raise typer.Exit(DataError.exit_status)


@app.command("reshard")
def reshard(
    run: Run,
    output: Annotated[str, typer.Option(metavar="FOLDER", help="The new run; the folder must not exist.")],
    hosts: Annotated[
        int, typer.Option(help="Spread the rows of each table over so many hosts.", show_default=False)
    ] = 0,
    plan: Annotated[
        str, typer.Option(metavar="FILE", help="Partition the tables by this plan: headrace plan make --output.")
    ] = "",
    towers: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="With --hosts: give each tower of this file hosts of its own, headrace towers make --output.",
        ),
    ] = "",
    epoch: Annotated[int | None, typer.Option(help=f"{_EPOCH_HELP} Default: the newest.", show_default=False)] = None,
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint in another partition, as a new run that training continues.

    Weights and optimizer slots are equal, bit for bit. The run itself is not changed; training must not run in it.
    """
    from headrace.screens.checkpoints import ReshardedScreen
    from headrace.views.checkpoints import existing_epochs
    from trainer.checkpoints.run_files import epochs_of, newest_first
    from trainer.job.launch.resharded_run import reshard_run
    from warehouse.storage.locations import is_gcs

    if is_gcs(output):
        raise InputError("the output must be a local folder", where="--output", value=output,
                         next_step="name a folder on this machine")  # fmt: skip
    if towers and not hosts:
        raise InputError(
            "--towers must go with --hosts",
            where="--towers",
            value=towers,
            next_step="give --hosts, at least one a tower",
        )
    partition = _partition(hosts, plan)
    folder, files = _opened(run, version, home)
    epochs = epochs_of(newest_first(files)[0]) if epoch is None else existing_epochs(files, folder, epoch)
    if towers:
        partition = _partition_of_towers(files, epochs, hosts, towers)
    with progress_bar("writing shards", "bytes") as report:
        done = reshard_run(folder, epochs, partition, Path(output), is_of_towers=bool(towers), on_bytes=report)
    emit(ReshardedScreen(folder, output, done, partition.cores, plan, towers), as_json=as_json)


def _partition(hosts: int, plan: str) -> PartitionPlan:
    """The partition of the options. Raises :class:`InputError` unless there is exactly one."""
    from trainer.planning.plan import MOST_CORES, PartitionPlan
    from trainer.planning.plan_document import read_plan

    if bool(hosts) == bool(plan):
        raise InputError("a partition must be a number of hosts or a plan", where="--hosts, --plan", value=(hosts, plan),
                         allowed="one of them")  # fmt: skip
    if plan:
        return read_plan(read_file(plan, "--plan"), plan)
    if not 1 <= hosts <= MOST_CORES:
        raise InputError("hosts must be a number", where="--hosts", value=hosts, allowed=f"1 to {MOST_CORES}")
    return PartitionPlan(hosts, ())


def _partition_of_towers(files: RunFiles, epochs: int, hosts: int, file: str) -> PartitionPlan:
    """The partition by the towers in a file, of the tables of a checkpoint."""
    from trainer.checkpoints.read import open_commit
    from trainer.checkpoints.run_files import commit_name
    from trainer.model.inputs import lay_out
    from trainer.options.config import TrainConfig
    from trainer.planning.towers.tower_document import read_towers
    from trainer.run.progress.identity import RunIdentity
    from trainer.tables.routes.towers.placement import TowerPlacement, tower_partition

    placement = TowerPlacement(hosts, 1, read_towers(read_file(file, "--towers"), file).towers)
    identity = RunIdentity.read(open_commit(files, commit_name(epochs)).document.at("identity"))
    config = TrainConfig.from_document(identity.config, run_dir="run")
    return tower_partition(lay_out(identity.typed_inputs, config).features, placement)


def _opened(run: str, version: int, home: str) -> tuple[str, RunFiles]:
    """The folder of a run and its files. Raises :class:`~transforms.errors.NotFound` for a run without checkpoints."""
    from headrace.views.checkpoints import opened_run

    folder = run_folder(run, version, home)
    return folder, opened_run(folder)
