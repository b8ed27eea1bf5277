"""``headrace prune``: what the budget of a run with pruned tables has bought."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.runs import Run, RunDir, RunVersion, run_folder
from headrace.cli.options.session import AsJson, Home
from headrace.terminal.output import emit, say, write_output

app = typer.Typer(
    help="Show what the budget of a run with pruned tables has bought.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """A group also while it has one command."""


@app.command("report")
def report(
    run: Run,
    version: RunVersion = 0,
    run_dir: RunDir = "",
    svg: Annotated[str, typer.Option(metavar="FILE", help="Also draw the curves of importance to this SVG file.")] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the rows that each table keeps, and the share of the importance that they have.

    From the newest checkpoint of a run with the training option pruning.
    """
    from headrace.screens.importance_drawing import importance_svg
    from headrace.views.pruning import kept_rows

    screen = kept_rows(run_folder(run, version, home, run_dir), say, svg=svg)
    if svg:
        write_output(svg, importance_svg(screen.tables) + "\n", option="--svg")
    emit(screen, as_json=as_json)
