"""Whether a table can feed what a model reads: every column is there, stored as it is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transforms.analysis.target import Target
from transforms.columns.columns import is_castable
from transforms.errors import InputError, TypeMismatch, UnknownColumn
from transforms.expressions.model import Model
from transforms.graphs.graph import Node, RawColumn, raw_columns
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import StoredInput
from warehouse.tables.arrow_types import parse_arrow_type
from warehouse.tables.readable_types import LABEL_TYPES, declared_types, unreadable_column
from warehouse.tables.table import ColumnSchema, Table


def check_columns(model: Model, inputs: Sequence[StoredInput], graph: MergedGraph, table: Table) -> None:
    """Raise unless ``table`` can feed the model's label and these ``inputs``, of which ``graph`` is the merged graph.

    Raises :class:`UnknownColumn` with the nearest names, :class:`TypeMismatch`, and :class:`InputError` for an input that
    reads no column.
    """
    _check_target(model, table)
    columns = [node for node in graph.nodes if isinstance(node, RawColumn)]
    stored = {column.name: column.arrow_type for column in table.columns}
    if all(_is_stored(stored, column) for column in columns) and all(
        graph.columns_of[root.identity] for root in graph.roots
    ):
        return  # every column was looked at once, however many inputs read it
    for item in inputs:
        check_component(item.component, table, f"model {model.name}, input {item.name}")


def _check_target(model: Model, table: Table) -> None:
    for name, target in model.target.each:
        check_target(target, table, f"model {model.name}, label {name}".rstrip())


def check_target(target: Target, table: Table, where: str) -> None:
    """Raise :class:`UnknownColumn` or :class:`TypeMismatch` unless ``table`` has the label's columns."""
    if target.component is not None:
        check_component(target.component, table, where)
        return
    label = parse_arrow_type(_column(table, target.label, where))
    if label is None or not any(is_castable(label, kind) for kind in LABEL_TYPES):
        raise TypeMismatch("a label must be a boolean or a number", where=where, value=str(label), allowed="bool, int, float",
                           next_step='or an expression, such as label=hr.text("verdict") == "bought"')  # fmt: skip


def _is_stored(types: Mapping[str, str], column: RawColumn) -> bool:
    """Whether a table with these types by column has the column, stored so that it conforms to the declared type."""
    stored = types.get(column.name)
    found = None if stored is None else parse_arrow_type(stored)
    return found is not None and is_castable(found, column.type)


def check_component(component: Node, table: Table, where: str) -> None:
    """Raise :class:`UnknownColumn` or :class:`TypeMismatch` unless ``table`` can feed the component."""
    columns = raw_columns(component)
    if not columns:
        raise InputError(
            "an input must read a column", where=where, next_step="remove it: it is the same for every event"
        )
    for column in columns:
        stored = _column(table, column.name, where)
        found = parse_arrow_type(stored)
        if found is None or not is_castable(found, column.type):
            raise _not_as_declared(table.column(column.name), column, where)


def _not_as_declared(stored: ColumnSchema, column: RawColumn, where: str) -> TypeMismatch:
    """The error of a column that is declared as another type than it can be read as, with what to do about it."""
    unreadable, kinds = unreadable_column(stored), declared_types(stored.arrow_type)
    what = f"column {column.name!r} is not stored as it is declared"
    step = "declare the stored type and cast it, or store the declared type"
    if unreadable is not None:
        what, step = f"column {column.name!r} cannot be read: {unreadable.why}", f"store {unreadable.cast}"
    elif kinds:
        step = f"declare it as {kinds[0]} and cast it, or store the declared type"
    return TypeMismatch(
        what, where=where, value=f"stored {stored.arrow_type}", allowed=f"declared {column.type}", next_step=step
    )


def _column(table: Table, name: str, where: str) -> str:
    try:
        return table.column(name).arrow_type
    except UnknownColumn as error:
        raise UnknownColumn(error.what, where=where, value=name, allowed=error.allowed,
                            next_step=f"headrace table show {table.name} lists the columns") from None  # fmt: skip
