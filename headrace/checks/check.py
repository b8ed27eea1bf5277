"""Every input of a model, tried over a sample: what it gives, or why it gives nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.checks.sample import sample_rows
from headrace.checks.statistics import Statistics, plain_type, statistics_of
from headrace.checks.surprises import Surprise, surprises_of, surprises_of_label
from transforms.errors import HeadraceError, InputError
from transforms.full_pass import is_resolved
from transforms.graph import Node, RawColumn, raw_columns
from transforms.plan import Artifacts, compile_plan, one_line
from transforms.types import ColumnType

if TYPE_CHECKING:
    from warehouse.table import Table
    from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class CheckedInput:
    """An input over the sample. ``found`` is None where ``error`` says why there is nothing to count."""

    name: str
    type: ColumnType
    found: Statistics | None
    surprises: tuple[Surprise, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Check:
    """What was found of a model, submitted or not.

    Attributes:
        rows: events in the sample, from so many ``partitions``, of ``table_rows`` in all.
        label: its name and what it looks like; None where it cannot be read.
    """

    table: str
    table_version: int
    table_rows: int
    rows: int
    partitions: int
    inputs: tuple[CheckedInput, ...]
    label: CheckedInput


def check_inputs(warehouse: Warehouse, components: Mapping[str, Node], label: str, table_name: str, rows: int) -> Check:
    """Run every component over about ``rows`` events of the table. One that fails is said to, and the others go on.

    Raises :class:`~transforms.errors.NotFound` for an unknown table and :class:`InputError` for one without events.
    """
    from warehouse.artifacts import ArtifactSource
    from warehouse.manifests import current_fragments, get_table

    with warehouse.catalog.read() as connection:
        table = get_table(connection, table_name)
        fragments = current_fragments(connection, table.name)
    if not fragments:
        raise InputError("the table must hold events to be checked on", where=f"table {table.name}", value=0,
                         next_step="headrace table add, or append")  # fmt: skip
    artifacts = ArtifactSource(warehouse.storage.home)
    ready, refused = _sorted_out(warehouse, components, table, artifacts)
    label_error = _label_error(table, label)
    needed = {column.name for root in ready.values() for column in raw_columns(root)}
    columns = sorted(needed | (set() if label_error else {label})) or [table.columns[0].name]
    sample, partitions = sample_rows(warehouse, fragments, columns, rows)
    inputs = _tried(components, ready, refused, sample, artifacts)
    return Check(
        table=table.name,
        table_version=table.version,
        table_rows=sum(placed.fragment.live_rows for placed in fragments),
        rows=sample.num_rows,
        partitions=partitions,
        inputs=inputs,
        label=_checked_label(label, label_error, sample),
    )


def _sorted_out(
    warehouse: Warehouse, components: Mapping[str, Node], table: Table, artifacts: Artifacts
) -> tuple[dict[str, Node], dict[str, str]]:
    """The components that can be run, full passes in place, and why the others cannot."""
    from warehouse.submit import check_component

    ready, refused = {}, {}
    for name, root in components.items():
        try:
            check_component(root, table, "")
            resolved = _resolved(warehouse, name, root, table.name)
            compile_plan({name: resolved}, artifacts)
            ready[name] = resolved
        except HeadraceError as error:
            refused[name] = one_line(error)
    return ready, refused


def _resolved(warehouse: Warehouse, name: str, root: Node, table: str) -> Node:
    """The component with what full passes found in place. Raises :class:`InputError` for one that was not made."""
    from warehouse.analyses import resolve_components

    if is_resolved([root]):
        return root
    resolution = resolve_components(warehouse, {name: root}, table)
    if resolution.missing:
        raise InputError("a full pass is missing", value="; ".join(one.describe() for one in resolution.missing),
                         next_step="headrace analyze with this file")  # fmt: skip
    return resolution.components[name]


def _tried(
    components: Mapping[str, Node],
    ready: Mapping[str, Node],
    refused: Mapping[str, str],
    sample: pa.Table,
    artifacts: Artifacts,
) -> tuple[CheckedInput, ...]:
    from transforms.columns import conform

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
        column = conform(sample.column(root.name), root.type) if isinstance(root, RawColumn) else result.columns[name]
        found = statistics_of(_one_array(column), root.type)
        surprises = (*surprises_of(found, root.type, root), *_untrainable(name, root.type))
        inputs.append(CheckedInput(name, root.type, found, surprises))
    return tuple(inputs)


def _untrainable(name: str, column_type: ColumnType) -> Sequence[Surprise]:
    """Whether the trainer has a place for an input of this type."""
    from trainer.config import TrainConfig
    from trainer.errors import UntrainableInput
    from trainer.inputs import TypedInput, lay_out

    try:
        lay_out((TypedInput(name, column_type),), TrainConfig(run_dir="."))
    except UntrainableInput as error:
        return [Surprise("untrainable", f"headrace train has no place for {column_type}: {error.next_step}")]
    return []


def _label_error(table: Table, label: str) -> str:
    try:
        table.column(label)
    except HeadraceError as error:
        return one_line(error)
    return ""


def _checked_label(label: str, error: str, sample: pa.Table) -> CheckedInput:
    if error:
        return CheckedInput(label, plain_type(pa.float64()), None, error=error)
    column = _one_array(sample.column(label))
    found = statistics_of(column, plain_type(column.type))
    return CheckedInput(label, plain_type(column.type), found, surprises_of_label(found))


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
