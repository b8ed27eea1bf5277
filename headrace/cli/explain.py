"""``headrace model explain``: hit or miss per input and partition, the reason, and the costs."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit


def explain(
    name: Annotated[str, typer.Argument(autocompletion=model_names, help="Name of the model.")],
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    partitions: Annotated[bool, typer.Option("--partitions", help="Print a line per input and partition.")] = False,
    misses: Annotated[bool, typer.Option("--misses", help="Only misses.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--input", help="Only this input; may be repeated.", show_default=False)
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(min=1, help="Only over so many of the last fragments. Default: all.", show_default=False),
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show for each input and partition: hit or miss and the reason, how it is read, and the cost of each alternative.

    Costs are CPU seconds over the expected requests of a month, for the first 50 inputs or those named by --input.
    """
    from headrace.views.explanations import explanation

    with open_warehouse(home) as warehouse:
        screen = explanation(
            warehouse, name, version, only=only or (), misses=misses, partitions=partitions, newest=newest
        )
    emit(screen, as_json=as_json)
