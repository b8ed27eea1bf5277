"""``headrace model``: submit, list, show and retire models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.analyze import make_analyses, planned_analyses
from headrace.cli.check import check
from headrace.cli.explain import explain
from headrace.cli.export import export
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.read import read
from headrace.terminal.output import emit

if TYPE_CHECKING:
    from headrace.screens.dry_run import DryRunScreen
    from transforms.expressions.model import Model

app = typer.Typer(
    help="Check and submit models; list, show, explain, read, export and retire them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Name of the model.")]
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
    from headrace.screens.models import SubmittedRow, SubmittedScreen
    from warehouse.matching.checked_model import check_models
    from warehouse.matching.submit import submit_checked

    models = chosen_models(files, model)
    if dry_run and not analyze:
        emit(_planned(models, table, policy, home), as_json=as_json)
        return
    rows = []
    with open_warehouse(home) as warehouse:
        if dry_run:
            emit(planned_analyses(warehouse, models, table), as_json=as_json)
            return
        changes = make_analyses(warehouse, models, table).changes if analyze else ()
        # Files are submitted as a whole or not at all: all models are checked before the first is submitted.
        checked = check_models(warehouse, models, table=table or None, policy=policy or None)
        for each in checked:
            each.require_analyses()
        for each in checked:
            done = submit_checked(warehouse, each)
            analyzed = tuple(change for change in changes if change.model == done.model)
            rows.append(SubmittedRow(each.model.client, len(each.inputs), done, analyzed))
    emit(SubmittedScreen(tuple(rows)), as_json=as_json)


def _planned(models: Sequence[Model], table: str, policy: str, home: str) -> DryRunScreen:
    from headrace.screens.dry_run import DryRunScreen
    from warehouse.matching.dry_run import plan_submissions

    with open_warehouse(home) as warehouse:
        return DryRunScreen(plan_submissions(warehouse, models, table=table or None, policy=policy or None))


@app.command("ls")
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the live models, each at its newest version."""
    from headrace.screens.models import ModelRow, ModelsScreen
    from warehouse.overview import list_models, model_memos

    rows = []
    with open_warehouse(home) as warehouse:
        counted = model_memos(warehouse)
        for item in list_models(warehouse):
            components, states = counted.get(item.id, (0, {}))
            row = ModelRow(
                name=item.name,
                version=item.version,
                client=item.client,
                priority=item.priority,
                table=item.table,
                label=item.label,
                task=item.target.kind,
                components=components,
                memos=states,
            )
            rows.append(row)
    emit(ModelsScreen(tuple(rows)), as_json=as_json)


@app.command("show")
def show(name: Name, version: Version = 0, home: Home = "", as_json: AsJson = False) -> None:
    """Show a model's inputs and their expressions."""
    from headrace.screens.models import InputRow, ModelScreen
    from transforms.render import expression_text
    from warehouse.models.models import get_model, stored_inputs
    from warehouse.models.pinned_analyses import pinned_analyses

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        model = get_model(connection, name, version or None)
        found = stored_inputs(connection, model.id)
        pinned = pinned_analyses(connection, name, model.version)
    inputs = (
        InputRow(
            name=item.name,
            type=str(item.component.type),
            fingerprint=item.fingerprint,
            expression=expression_text(item.component),
        )
        for item in found
    )
    screen = ModelScreen(
        name=model.name,
        version=model.version,
        client=model.client,
        priority=model.priority,
        table=model.table,
        label=model.label,
        task=model.target.kind,
        classes=model.target.classes,
        live=model.live,
        inputs=tuple(inputs),
        analyses=tuple(pinned.values()),
    )
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
    from headrace.screens.retirement import RetirementScreen
    from warehouse.models.retire import retire_model

    with open_warehouse(home) as warehouse:
        done = retire_model(warehouse, name, dry_run=not yes)
    emit(RetirementScreen(done), as_json=as_json)
