"""``headrace model check``: the inputs of a model over a sample of its table."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from transforms.errors import InputError


def check(
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=model_names, help="A Python file of models, or a submitted one: NAME or NAME@VERSION."
        ),
    ],
    table: Annotated[str, typer.Option(help="The table to sample. Default: the table that the model names.")] = "",
    only: Annotated[
        list[str] | None, typer.Option("--model", help="Only this model of the file; may be repeated.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Events to sample, spread over the partitions.")
    ] = 10_000,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Run every input over a sample and show examples, nulls, distinct values, lengths and warnings. Stores nothing."""
    from headrace.views.checks import checked_models, checked_submitted

    with open_warehouse(home) as warehouse:
        if model.endswith(".py") or os.path.isfile(model):
            from headrace.model_file import chosen_models

            screen = checked_models(warehouse, chosen_models([model], only), table=table, rows=rows)
        elif only:
            raise InputError("--model must go with a file of models", where="--model", value=", ".join(only),
                             next_step=f"leave it out: {model!r} is one model")  # fmt: skip
        else:
            screen = checked_submitted(warehouse, model, table=table, rows=rows)
    emit(screen, as_json=as_json)
