"""``headrace runs``: list, show, compare and draw the runs of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headrace.cli.options.completions import run_names
from headrace.cli.options.listings import listing
from headrace.cli.options.runs import Run, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home, home_folder
from headrace.terminal.output import emit, write_output

app = typer.Typer(
    help="List, show, compare and draw the runs of training: what each has learned, and when.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("ls")
@listing()
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the runs of a home, with their newest figures on events that they had not seen."""
    from headrace.views.runs import listed

    emit(listed(home_folder(home, "a list of runs")), as_json=as_json)


@app.command("show")
@listing(csv=False)
def show(run: Run, version: RunVersion = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Show a run: its data, its figures by epoch, its commits and its options."""
    from headrace.views.runs import shown

    emit(shown(run_folder(run, version, home)), as_json=as_json)


@app.command("diff")
def diff(
    first: Run,
    second: Annotated[str, typer.Argument(autocompletion=run_names, help="The other run, named likewise.")],
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare two runs: options, data, inputs, and figures on the same events."""
    from headrace.views.runs import compared

    emit(compared(run_folder(first, 0, home), run_folder(second, 0, home)), as_json=as_json)


@app.command("tensorboard")
def tensorboard(
    run: Run,
    folder: Annotated[str, typer.Argument(help="The points go into the folder of the run's name in it.")],
    version: RunVersion = 0,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Write the history of a run as event files of TensorBoard: the points that are not there yet."""
    from headrace.cli.options.tracking import event_folder
    from headrace.views.runs import event_files

    place = run_folder(run, version, home)
    emit(event_files(place, event_folder(folder, place, "FOLDER")), as_json=as_json)


@app.command("plot")
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(autocompletion=run_names, help="Folders of runs, gs://bucket/path, or names of models: runs/MODEL-vVERSION in the home."),
    ],
    metric: Annotated[
        str,
        typer.Option(
            help="A figure of the history, such as auc: docs/runs.md. Default: the normalized loss.", show_default=False
        ),
    ] = "",
    x: Annotated[str, typer.Option("--x", metavar="step|events|time", help="What is drawn from left to right.")] = "step",
    smoothing: Annotated[float, typer.Option(help="From 0 to below 1: how much each value is that of the ones before.")] = 0.0,
    commits: Annotated[bool, typer.Option("--commits", help="A point for each commit, not for each window of steps.")] = False,
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also write the drawing to this SVG file.", show_default=False)] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Draw learning curves of runs, in the terminal and as SVG."""
    from headrace.views.runs import plotted

    folders = [run_folder(run, 0, home) for run in runs]
    screen = plotted(folders, metric=metric, axis=x, smoothing=smoothing, rows="commits" if commits else "windows")  # type: ignore[arg-type]
    if svg:
        screen = replace(screen, file=svg)
        write_output(svg, screen.svg(), option="--svg")
    emit(screen, as_json=as_json)
