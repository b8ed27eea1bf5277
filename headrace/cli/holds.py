"""``headrace holds``: list and release the training jobs that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.runs import Run, RunVersion, job_folder, job_folders_of_home, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit

app = typer.Typer(
    help="List and release training jobs that an error holds.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("ls")
def list_(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, or names of models. Default: all runs in the home.")
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List the jobs that are held, with the reasons."""
    from headrace.views.holds import held

    folders = [job_folder(run_folder(run, 0, home), home) for run in runs or ()]
    emit(held(folders or job_folders_of_home(home), are_named=bool(folders)), as_json=as_json)


@app.command("release")
def release(run: Run, version: RunVersion = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Release a held job, after its cause is corrected.

    The controller releases it if one runs; else the next headrace train goes on from the last commit.
    """
    from headrace.screens.holds import HoldRow, ReleasedScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.holds import release_hold

    folder = run_folder(run, version, home)
    hold = release_hold(JobFiles(job_folder(folder, home)))
    emit(ReleasedScreen(HoldRow(folder, str(hold.error_class), hold.role, hold.reason)), as_json=as_json)
