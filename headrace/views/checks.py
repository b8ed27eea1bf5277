"""Every input of models over a sample of their table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.checks.check import Check, CheckedInput
    from headrace.screens.check import CheckedModel, CheckedRow, CheckScreen
    from transforms.analysis.target import Target
    from transforms.expressions.model import Model
    from transforms.graphs.graph import Node
    from transforms.joins.definition import JoinDefinition
    from warehouse.warehouse import Warehouse

#: Name, components, refused inputs with their reasons, target and table of a model.
_Subject = tuple[str, "Mapping[str, Node]", "Mapping[str, str]", "Target", str, "Mapping[str, JoinDefinition]"]


def checked_models(warehouse: Warehouse, models: Sequence[Model], *, table: str = "", rows: int) -> CheckScreen:
    """Models over ``rows`` events of ``table``, or of the table that each names. Stores nothing. Raises :class:`InputError`."""
    return _screen(warehouse, _of_models(warehouse, models, table), rows)


def checked_submitted(warehouse: Warehouse, model: str, *, table: str = "", rows: int) -> CheckScreen:
    """A submitted model, ``NAME`` or ``NAME@VERSION``; else as :func:`checked_models`. Raises :class:`~transforms.errors.NotFound`."""
    from headrace.reading import parsed_name
    from warehouse.models.joined_columns import joined_columns
    from warehouse.models.models import get_model, stored_inputs

    name, version = parsed_name(model)
    with warehouse.catalog.read() as connection:
        record = get_model(connection, name, version)
        components = {item.name: item.component for item in stored_inputs(connection, record.id)}
        joins = {one.column: one.definition for one in joined_columns(connection, record.table)}
    return _screen(warehouse, [(record.name, components, {}, record.target, table or record.table, joins)], rows)


def _of_models(warehouse: Warehouse, models: Sequence[Model], table: str) -> Iterator[_Subject]:
    from headrace.checks.check import resolved_inputs

    for each in models:
        name = table or each.table
        if not name:
            raise InputError("a model must name its table", where=f"model {each.name}",
                             next_step="Model(..., table=NAME), or check it with --table NAME")  # fmt: skip
        components, refused = resolved_inputs(warehouse, each, name)
        yield each.name, components, refused, each.target, name, each.joins


def _screen(warehouse: Warehouse, subjects: Collection[_Subject] | Iterator[_Subject], rows: int) -> CheckScreen:
    from headrace.checks.check import check_inputs
    from headrace.screens.check import CheckScreen

    return CheckScreen(
        tuple(
            _checked(name, check_inputs(warehouse, components, target, where, rows, refused, joins))
            for name, components, refused, target, where, joins in subjects
        )
    )


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
