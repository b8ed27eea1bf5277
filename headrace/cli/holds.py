"""``headrace holds``: list and release the training jobs that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.completions import run_names
from headrace.cli.options.listings import listing
from headrace.cli.options.runs import Run, RunVersion, job_folder, run_folder
from headrace.cli.options.session import AsJson, Home, home_folder
from headrace.terminal.output import emit

app = typer.Typer(
    help="List and release training jobs that an error holds.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("ls")
@listing()
def list_(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=run_names, help="Folders of runs, or names of models. Default: all runs in the home."
        ),
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """List the jobs that are held, with the reasons."""
    from headrace.views.holds import held, held_of_home

    folders = [job_folder(run_folder(run, 0, home), home) for run in runs or ()]
    found = held(folders, are_named=True) if folders else held_of_home(home_folder(home, "a list of runs"))
    emit(found, as_json=as_json)


@app.command("release")
def release(run: Run, version: RunVersion = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Release a held job, after its cause is corrected.

    The controller releases it if one runs; else the next headrace train goes on from the last commit.
    """
    from headrace.views.holds import released

    folder = run_folder(run, version, home)
    emit(released(job_folder(folder, home), run=folder), as_json=as_json)
