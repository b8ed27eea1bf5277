"""``headrace model``: submit models, see what matching decided and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.analyze import make_analyses
from headrace.cli.export import export
from headrace.cli.output import emit
from headrace.cli.session import AsJson, Home, open_warehouse

if TYPE_CHECKING:
    from transforms.model import Model
    from warehouse.decision import Decision
    from warehouse.warehouse import Warehouse

app = typer.Typer(
    help="Submit models; list, show, explain and export them.", no_args_is_help=True, rich_markup_mode=None
)
app.command("export")(export)

Name = Annotated[str, typer.Argument(help="Name of the model.")]
Version = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
]


@app.command("submit")
def submit(
    file: Annotated[str, typer.Argument(help="A Python file that defines models, such as examples/search_ads.py.")],
    table: Annotated[str, typer.Option(help="The table to read. Default: what the model names.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Only this model of the file; may be repeated.")] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="What is kept: all (every input), adaptive (what pays, subgraphs too), none. Default: as before, at first all."
        ),
    ] = "",
    analyze: Annotated[
        bool, typer.Option("--analyze", help="First make the full passes that are missing, as headrace analyze does.")
    ] = False,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Submit the models of a file: match what is memoized, queue what is missing."""
    from headrace.model_file import chosen_models
    from headrace.screens.models import SubmittedRow, SubmittedScreen
    from warehouse.submit import submit_model

    models = chosen_models(file, model)
    rows = []
    with open_warehouse(home) as warehouse:
        if analyze:
            make_analyses(warehouse, models, table)
        _check_all(warehouse, models, table)
        for each in models:
            done = submit_model(warehouse, each, table=table or None, policy=policy or None)
            row = SubmittedRow(
                model=each.name,
                version=done.version,
                client=each.client,
                table=done.table,
                inputs=len(each.inputs),
                hits=done.hits,
                shared=done.shared,
                queued=done.queued,
                failed=done.failed,
                computed=done.computed,
                dropped=done.dropped,
                policy=done.policy,
                unchanged=done.unchanged,
            )
            rows.append(row)
    emit(SubmittedScreen(tuple(rows)), as_json=as_json)


def _check_all(warehouse: Warehouse, models: Sequence[Model], table: str) -> None:
    """Raise for any of the models before the first is submitted: a file is submitted as a whole or not at all."""
    from warehouse.manifests import get_table
    from warehouse.submit import check_model, resolve_checked

    with warehouse.catalog.read() as connection:
        for model in models:
            name = table or model.table
            if name:
                check_model(model, get_table(connection, name))
    for model in models:
        if name := table or model.table:
            resolve_checked(warehouse, model, name)


@app.command("ls")
def list_(home: Home = "", as_json: AsJson = False) -> None:
    """List the submitted models, each at its newest version."""
    from headrace.screens.models import ModelRow, ModelsScreen
    from warehouse.statistics import list_models, model_memos

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
    from warehouse.models import get_model, stored_inputs

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        model = get_model(connection, name, version or None)
        found = stored_inputs(connection, model.id)
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
        inputs=tuple(inputs),
    )
    emit(screen, as_json=as_json)


@app.command("explain")
def explain(
    name: Name,
    version: Version = 0,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line for every input and partition.")] = False,
    misses: Annotated[bool, typer.Option("--misses", help="Only what is not memoized.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--input", help="Only this input; may be repeated.", show_default=False)
    ] = None,
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Say for each input and partition: hit or miss and why, how it is read, and what the alternatives cost.

    Costs are CPU seconds over the expected requests of a month; those of the first 50 inputs, or of the ones named.
    """
    from headrace.screens.models import DecisionRow, ExplainScreen, NearestRow
    from transforms.errors import InputError
    from transforms.errors import nearest as nearest_names
    from warehouse.explain import explain_model
    from warehouse.models import get_model, stored_inputs
    from warehouse.nearest import nearest_known_of

    with open_warehouse(home) as warehouse:
        with warehouse.catalog.read() as connection:
            found = get_model(connection, name, version or None)
            names = [item.name for item in stored_inputs(connection, found.id)]
        for wrong in sorted(set(only or ()) - set(names)):
            raise InputError("the model has no such input", where=f"model {name}", value=wrong,
                             allowed=nearest_names(wrong, names))  # fmt: skip
        shown = set(only or names)
        priced = [one for one in names if one in shown][:_PRICED_INPUTS]
        decisions = explain_model(warehouse, name, version or None, costs_of=priced)
        decisions = tuple(one for one in decisions if one.input in shown)
        # Where the input's own component has a memo, or had one, nothing else is nearer to it.
        known_inputs = {one.input for one in decisions if one.reason_code not in _UNKNOWN}
        unknown = {one.input for one in decisions} - known_inputs
        nearest = nearest_known_of(warehouse, name, unknown, version or None)
    rows = (
        DecisionRow(
            input=item.input,
            partition=item.partition,
            fragment=item.fragment_id,
            rows=item.rows,
            hit=item.hit,
            state=item.state,
            reason_code=item.reason_code,
            reason=item.reason,
            read=item.action,
            **_costs_of(item),
        )
        for item in decisions
        if not (misses and item.hit)
    )
    known = (
        NearestRow(
            input=item.input,
            fingerprint=item.fingerprint,
            expression=item.expression,
            models=item.models,
            distance=item.difference.distance,
            changes=tuple(change.to_document() for change in item.difference.changes),
        )
        for item in nearest
    )
    screen = ExplainScreen(
        model=name,
        version=found.version,
        policy=found.policy,
        hits=sum(one.hit for one in decisions),
        misses=sum(not one.hit for one in decisions),
        decisions=tuple(rows),
        nearest=tuple(known),
        summarised=not partitions,
    )
    emit(screen, as_json=as_json)


#: Why an input is missed whose component was never computed over any data.
_UNKNOWN = ("never_seen", "not_kept")

#: Inputs whose alternatives are priced unless others are named: each takes some minimum cuts.
_PRICED_INPUTS = 50


def _costs_of(decision: Decision) -> dict[str, float | None]:
    costs = decision.costs
    if costs is None:
        return {}
    secs = {"load_secs": costs.load_secs, "compute_secs": costs.compute_secs, "keep_secs": costs.keep_secs}
    finite = {name: value if math.isfinite(value) else None for name, value in secs.items()}
    return {**finite, "requests": costs.requests}
