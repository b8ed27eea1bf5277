"""``headrace model``: submit, list, show and retire models."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.analyze import make_analyses
from headrace.cli.check import check
from headrace.cli.explain import explain
from headrace.cli.export import export
from headrace.cli.options.completions import model_names
from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.read import read
from headrace.terminal.output import Screen, emit

app = typer.Typer(
    help="Check and submit models; list, show, explain, read, export and retire them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(autocompletion=model_names, help="Name of the model.")]
Version = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
]


@app.command("submit")
def submit(
    files: Annotated[
        list[str], typer.Argument(help="Python files that define models, such as examples/search_ads.py.")
    ],
    table: Annotated[str, typer.Option(help="The table to read. Default: the table that the model names.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Only this model of the files; may be repeated.")] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Which memos to keep: all (every input), adaptive (those worth their cost, subgraphs too), none. "
            "Default: the model's last policy, at first all."
        ),
    ] = "",
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help="First run the full passes that the data needs, as headrace analyze does. Without it, models keep their "
            "pinned results.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what submitting would do per input, and with --analyze which analyses it would run; change nothing.",
        ),
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Submit the models of files: match what is memoized, queue what is missing. All or none."""
    from headrace.model_file import chosen_models
    from headrace.views import analyses
    from headrace.views.models import planned_submissions, submitted

    models = chosen_models(files, model)
    with open_warehouse(home) as warehouse:
        if dry_run and analyze:
            screen: Screen = analyses.planned(warehouse, models, table=table)
        elif dry_run:
            screen = planned_submissions(warehouse, models, table=table, policy=policy)
        else:
            changes = make_analyses(warehouse, models, table).changes if analyze else ()
            screen = submitted(warehouse, models, table=table, policy=policy, changes=changes)
    emit(screen, as_json=as_json)


@app.command("ls")
@listing(watch=False)
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the live models, each at its newest version."""
    from headrace.views.models import listed

    with open_warehouse(home) as warehouse:
        screen = listed(warehouse)
    emit(screen, as_json=as_json)


@app.command("show")
def show(name: Name, version: Version = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Show a model's inputs and their expressions."""
    from headrace.views.models import shown

    with open_warehouse(home) as warehouse:
        screen = shown(warehouse, name, version)
    emit(screen, as_json=as_json)


@app.command("diff")
def diff(
    name: Name,
    before: Annotated[
        int | None,
        typer.Option("--from", min=1, help="Version. Default: the one before the other.", show_default=False),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", min=1, help="Version. Default: the newest.", show_default=False)
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Compare two versions of a model: settings, and each input whose component differs."""
    from headrace.views.models import compared

    with open_warehouse(home) as warehouse:
        screen = compared(warehouse, name, before, after)
    emit(screen, as_json=as_json)


app.command("explain")(explain)
app.command("check")(check)
app.command("read")(read)
app.command("export")(export)


@app.command("retire")
def retire(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Retire it; without this, only show the consequences.")] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Stop computing memos for a model; existing memos stay. A dry run without --yes. Submitting it again restores it."""
    from headrace.views.models import retired

    with open_warehouse(home) as warehouse:
        screen = retired(warehouse, name, dry_run=not yes)
    emit(screen, as_json=as_json)
