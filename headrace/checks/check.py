"""Runs every input of a model over a sample: its statistics, or its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.checks.joined_inputs import joined_surprises
from headrace.checks.sample import sample_rows
from headrace.checks.statistics import Statistics, is_number, plain_type, statistics_of
from headrace.checks.surprises import Surprise, surprises_of, surprises_of_label
from transforms.analysis.full_pass import is_full_pass
from transforms.analysis.target import Target
from transforms.columns.arrays import one_array
from transforms.errors import HeadraceError, InputError
from transforms.execution.plan import compile_plan, one_line
from transforms.graphs.artifacts import Artifacts
from transforms.graphs.graph import Node, RawColumn, raw_columns, topological
from transforms.render import expression_text
from transforms.types import ColumnType, Dense, DType

if TYPE_CHECKING:
    from transforms.expressions.model import Model
    from transforms.joins.definition import JoinDefinition
    from warehouse.tables.table import Table
    from warehouse.warehouse import Warehouse


#: The label's key in a plan; no input has this name.
LABEL = "__label__"


@dataclass(frozen=True)
class CheckedInput:
    """An input over the sample. ``found`` is None if there is an ``error``."""

    name: str
    type: ColumnType
    found: Statistics | None
    surprises: tuple[Surprise, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Check:
    """The check of a model, submitted or not.

    Attributes:
        table_rows: events in the table.
        rows: events in the sample.
        partitions: partitions in the sample.
        labels: the label, or each of several.
    """

    table: str
    table_version: int
    table_rows: int
    rows: int
    partitions: int
    inputs: tuple[CheckedInput, ...]
    labels: tuple[CheckedInput, ...]


def check_inputs(
    warehouse: Warehouse,
    components: Mapping[str, Node],
    target: Target,
    table_name: str,
    rows: int,
    refused: Mapping[str, str] | None = None,
    joins: Mapping[str, JoinDefinition] | None = None,
) -> Check:
    """Run every component over about ``rows`` events of the table. A failure does not affect the other components.

    ``refused``: inputs that are not run, with reasons. ``joins``: the joined columns that they read, which are computed for the sample.

    Raises :class:`~transforms.errors.NotFound` for an unknown table and :class:`InputError` for one without events.
    """
    from warehouse.files.artifacts import ArtifactSource
    from warehouse.joins.preview import previewed_columns
    from warehouse.matching.join_checks import with_joined
    from warehouse.tables.manifests import current_fragments, get_table

    with warehouse.catalog.read() as connection:
        table = with_joined(get_table(connection, table_name), joins or {})
        fragments = current_fragments(connection, table.name)
    if not fragments:
        raise InputError("the table must hold events", where=f"table {table.name}", value=0,
                         next_step="headrace table add, or append")  # fmt: skip
    artifacts = ArtifactSource(warehouse.storage.home)
    ready, refused = _sorted_out(components, table, artifacts, dict(refused or {}))
    label_errors = {name: _label_error(table, one) for name, one in target.each}
    needed = {column.name for root in ready.values() for column in raw_columns(root)}
    known = {column for name, one in target.each if not label_errors[name] for column in one.columns}
    read = {name: one for name, one in (joins or {}).items() if name in needed}
    columns = sorted((needed | known) - read.keys()) or [table.columns[0].name]
    joined = partial(previewed_columns, warehouse, table, read) if read else None
    sample, partitions = sample_rows(warehouse, fragments, columns, rows, joined)
    inputs = _tried(components, ready, refused, sample, artifacts)
    if read:

        def resample(joins: Mapping[str, JoinDefinition]) -> pa.Table:
            return sample_rows(
                warehouse, fragments, columns, rows, partial(previewed_columns, warehouse, table, joins)
            )[0]

        label = (
            None
            if target.component is not None or target.tasks or target.label not in sample.column_names
            else sample.column(target.label)
        )
        surprises = joined_surprises(warehouse, table, read, sorted(known), sample, label, resample)
        inputs = tuple(_with_joined(one, ready.get(one.name), surprises) for one in inputs)
    return Check(
        table=table.name,
        table_version=table.version,
        table_rows=sum(placed.fragment.live_rows for placed in fragments),
        rows=sample.num_rows,
        partitions=partitions,
        inputs=inputs,
        labels=tuple(_checked_label(name, one, label_errors[name], sample) for name, one in target.each),
    )


def _with_joined(one: CheckedInput, root: Node | None, surprises: Mapping[str, Sequence[Surprise]]) -> CheckedInput:
    """An input with the warnings about the joined columns that it reads."""
    read = () if root is None else raw_columns(root)
    return replace(
        one, surprises=(*one.surprises, *(each for column in read for each in surprises.get(column.name, ())))
    )


def resolved_inputs(warehouse: Warehouse, model: Model, table: str) -> tuple[dict[str, Node], dict[str, str]]:
    """The model's components with full passes resolved, each alone, and the errors of those that cannot be."""
    from warehouse.matching.checked_model import resolution_of
    from warehouse.matching.column_checks import check_component
    from warehouse.matching.join_checks import check_joins, with_joined
    from warehouse.tables.manifests import get_table

    with warehouse.catalog.read() as connection:
        known = with_joined(get_table(connection, table), model.joins)
    components, refused = {}, {}
    for name, item in model.inputs.items():
        components[name] = item.component
        alone = model.without_inputs()
        alone.inputs[name] = item
        try:
            check_component(item.component, known, "")
            read = {one.name for one in raw_columns(item.component)}
            joins = {one: definition for one, definition in model.joins.items() if one in read}
            warehouse.catalog.query(partial(check_joins, model=model.name, table=known, joins=joins))
            components[name] = resolution_of(warehouse, alone, table).components[name]
        except HeadraceError as error:
            refused[name] = one_line(error)
    return components, refused


def _sorted_out(
    components: Mapping[str, Node], table: Table, artifacts: Artifacts, refused: dict[str, str]
) -> tuple[dict[str, Node], dict[str, str]]:
    """The components that can be run, and the errors of the others."""
    from warehouse.matching.column_checks import check_component

    ready = {}
    for name, root in components.items():
        if name in refused:
            continue
        try:
            check_component(root, table, "")
            _check_resolved(root)
            compile_plan({name: root}, artifacts)
            ready[name] = root
        except HeadraceError as error:
            refused[name] = one_line(error)
    return ready, refused


def _check_resolved(root: Node) -> None:
    """Raise for a component with an unresolved full pass."""
    for node in topological([root]):
        if is_full_pass(node):
            raise InputError("a full pass must be run first", value=expression_text(node, 100),
                             next_step="headrace analyze with this file")  # fmt: skip


def _tried(
    components: Mapping[str, Node],
    ready: Mapping[str, Node],
    refused: Mapping[str, str],
    sample: pa.Table,
    artifacts: Artifacts,
) -> tuple[CheckedInput, ...]:
    from transforms.columns.columns import cast_to_layout

    plan = compile_plan({name: root for name, root in ready.items() if not isinstance(root, RawColumn)}, artifacts)
    result = plan.run(sample)
    inputs = []
    for name, component in components.items():
        root = ready.get(name, component)
        if name in refused or name in result.failures:
            failure = result.failures.get(name)
            error = refused[name] if failure is None else f"operator {failure.operator}: {failure.error}"
            inputs.append(CheckedInput(name, root.type, None, error=error))
            continue
        column = (
            cast_to_layout(sample.column(root.name), root.type) if isinstance(root, RawColumn) else result.columns[name]
        )
        found = statistics_of(one_array(column), root.type)
        surprises = (*surprises_of(found, root.type, root), *_untrainable(name, root.type))
        inputs.append(CheckedInput(name, root.type, found, surprises))
    return tuple(inputs)


def _untrainable(name: str, column_type: ColumnType) -> Sequence[Surprise]:
    """A warning if the trainer cannot train on an input of this type."""
    from trainer.errors import UntrainableInput
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.options.config import TrainConfig

    try:
        lay_out((TypedInput(name, column_type),), TrainConfig(run_dir="."))
    except UntrainableInput as error:
        return [Surprise("untrainable", f"headrace train cannot use {column_type}: {error.next_step}")]
    return []


def _label_error(table: Table, target: Target) -> str:
    from warehouse.matching.column_checks import check_component

    try:
        if target.component is None:
            table.column(target.label)
        else:
            check_component(target.component, table, "label")
    except HeadraceError as error:
        return one_line(error)
    return ""


def _checked_label(name: str, target: Target, error: str, sample: pa.Table) -> CheckedInput:
    named = f"{name}: {target.label}" if name else target.label
    kind: ColumnType = Dense(DType.FLOAT64) if target.component is None else target.component.type
    if error:
        return CheckedInput(named, kind, None, error=error)
    if target.component is None:
        column = one_array(sample.column(target.label))
        kind = plain_type(column.type)
    else:
        result = compile_plan({LABEL: target.component}).run(sample)
        if LABEL in result.failures:
            failure = result.failures[LABEL]
            return CheckedInput(named, kind, None, error=f"operator {failure.operator}: {failure.error}")
        column = result.columns[LABEL]
    found = statistics_of(column, kind)
    return CheckedInput(named, kind, found, (*surprises_of_label(found), *_wrong_labels(column, target)))


def _wrong_labels(column: pa.Array, target: Target) -> Sequence[Surprise]:
    """A warning for labels that the model's task does not have; training refuses them."""
    from trainer.model.heads import head_of

    if not is_number(column.type):
        return [Surprise("wrong_label", f"a label must be a boolean or a number, got {column.type}")]
    head, values = head_of(target), np.asarray(column.drop_null()).astype(np.float64)
    wrong = values[head.bad_labels(values)]
    if not len(wrong):
        return []
    text = f"{len(wrong):,} of {len(values):,} labels are not {head.allowed}, such as {wrong[0]:g}: {head.remedy}"
    return [Surprise("wrong_label", text)]
