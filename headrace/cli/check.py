"""``headrace model check``: the inputs of a model over a sample of its table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.checks.check import Check, CheckedInput
    from headrace.screens.check import CheckedModel, CheckedRow
    from transforms.analysis.target import Target
    from transforms.graphs.graph import Node
    from warehouse.warehouse import Warehouse

_Subject = tuple[str, "Mapping[str, Node]", "Mapping[str, str]", "Target", str]


def check(
    model: Annotated[str, typer.Argument(help="A Python file of models, or a submitted one: NAME or NAME@VERSION.")],
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
    from headrace.checks.check import check_inputs
    from headrace.screens.check import CheckScreen

    with open_warehouse(home) as warehouse:
        models = tuple(
            _checked(name, check_inputs(warehouse, components, target, where, rows, refused))
            for name, components, refused, target, where in _subjects(warehouse, model, table, only or [])
        )
    emit(CheckScreen(models), as_json=as_json)


def _subjects(warehouse: Warehouse, model: str, table: str, only: list[str]) -> Iterator[_Subject]:
    """Name, components, refused inputs with their reasons, target and table of each chosen model."""
    if model.endswith(".py") or os.path.isfile(model):
        from headrace.checks.check import resolved_inputs
        from headrace.model_file import chosen_models

        for each in chosen_models([model], only):
            name = table or each.table
            if not name:
                raise InputError("a model must name its table", where=f"model {each.name}",
                                 next_step="Model(..., table=NAME), or check it with --table NAME")  # fmt: skip
            components, refused = resolved_inputs(warehouse, each, name)
            yield each.name, components, refused, each.target, name
        return
    if only:
        raise InputError("--model must go with a file of models", where="--model", value=", ".join(only),
                         next_step=f"leave it out: {model!r} is one model")  # fmt: skip
    from headrace.reading import parsed_name
    from warehouse.models.models import get_model, stored_inputs

    name, version = parsed_name(model)
    with warehouse.catalog.read() as connection:
        record = get_model(connection, name, version)
        components = {item.name: item.component for item in stored_inputs(connection, record.id)}
    yield record.name, components, {}, record.target, table or record.table


def _checked(name: str, found: Check) -> CheckedModel:
    from headrace.screens.check import CheckedModel

    return CheckedModel(
        model=name,
        table=found.table,
        table_version=found.table_version,
        table_rows=found.table_rows,
        rows=found.rows,
        partitions=found.partitions,
        label=_row(found.labels[0]) if len(found.labels) == 1 else tuple(map(_row, found.labels)),
        inputs=tuple(map(_row, found.inputs)),
    )


def _row(one: CheckedInput) -> CheckedRow:
    from headrace.screens.check import CheckedRow

    found = one.found
    return CheckedRow(
        input=one.name,
        type=str(one.type),
        empty_share=None if found is None else found.empty_share,
        distinct=None if found is None else found.distinct,
        lengths=None if found is None else found.lengths,
        numbers=None if found is None else found.numbers,
        examples=() if found is None else found.examples,
        warnings=one.surprises,
        error=one.error,
    )
