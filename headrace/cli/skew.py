"""``headrace check``: what was served against what the warehouse has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit

app = typer.Typer(help="Compare what was served with the warehouse.", no_args_is_help=True, rich_markup_mode=None)

#: The exit status if logged answers are not those of the warehouse.
SKEW_STATUS = 1


@app.callback()
def _group() -> None:
    """Compare what was served with the warehouse."""


@app.command("skew")
def skew(
    logged: Annotated[
        str,
        typer.Argument(
            metavar="LOGGED",
            help="A Parquet file, or a folder of them: keys, the time of each event, and what hr.online answered, by column name.",
        ),
    ],
    model: Annotated[
        str, typer.Argument(autocompletion=model_names, help="Name of a submitted model, or NAME@VERSION.")
    ],
    time: Annotated[
        str,
        typer.Option(help="The column of times. Default: the time column of the model's table.", show_default=False),
    ] = "",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare logged joined columns with those that the warehouse computes now. Exit status 1 if a value differs."""
    from headrace.views.states import skew as found

    with open_warehouse(home) as warehouse:
        screen = found(warehouse, Path(logged), model, time=time)
    emit(screen, as_json=as_json)
    if not screen.is_equal:
        raise typer.Exit(SKEW_STATUS)
