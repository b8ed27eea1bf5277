"""The result of a change or of its dry run, and the components that it makes models compute again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from transforms.graphs.graph import Node, raw_columns
from transforms.render import expression_text
from warehouse.config import WarehouseConfig
from warehouse.matching.match import MemoAction, Requeue
from warehouse.matching.model_match import match_model
from warehouse.matching.plan_context import PlanContext
from warehouse.matching.submit import blocks
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import all_models, stored_inputs
from warehouse.tables.evolution.fragment_schema import FragmentSchema
from warehouse.tables.evolution.schema_changes import SchemaChange
from warehouse.tables.manifests import (
    PlacedFragment,
    current_units,
    fragments_by_row,
    get_table,
)
from warehouse.tables.merges import members_of_merged, merged_places
from warehouse.tables.table import ColumnSchema, Fragment, merge_fragments
from warehouse.tables.versions import TableChangeKind


@dataclass(frozen=True, slots=True)
class Recompute:
    """A component of live models with memos that the new version invalidates.

    Attributes:
        fingerprint: its fingerprint.
        expression: its expression.
        inputs: its names as an input of ``models``; empty if it is only part of inputs.
        columns: the raw columns that it reads.
        models: the live models.
        memos: the number of memos to compute.
        rows: their rows.
    """

    fingerprint: str
    expression: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    models: tuple[str, ...]
    memos: int
    rows: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Joined columns of a table whose events may see the change.

    Attributes:
        table: the table that has the columns.
        columns: the columns.
        models: the live models that read them.
        fragments: the fragments with events that may see the change, by the times of partitions: at most these have other values.
        rows: their rows.
    """

    table: str
    columns: tuple[str, ...]
    models: tuple[str, ...]
    fragments: int
    rows: int


@dataclass(frozen=True)
class Change:
    """The result of a change of a table, or of its dry run.

    Attributes:
        table: the table.
        kind: the kind of the change.
        version: the table's version after the change.
        changed: whether anything changed.
        dry_run: whether it is a dry run.
        rows: events that were appended, given values (overlay, fix), or newly deleted.
        fragments: the number of new or changed fragments.
        partitions: the changed partitions.
        columns: the columns that the change affects.
        added_columns: the columns that are new in the table.
        widened_columns: the columns that hold values of a wider type now.
        unknown_keys: the number of keys without an event.
        notes: remarks for the user.
        recompute: the components to compute again.
        rejoins: the joined columns to compute again, also those of other tables.
    """

    table: str
    kind: TableChangeKind
    version: int
    changed: bool
    dry_run: bool
    rows: int
    fragments: int
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    added_columns: tuple[str, ...]
    unknown_keys: int
    notes: tuple[str, ...]
    recompute: tuple[Recompute, ...]
    widened_columns: tuple[SchemaChange, ...] = ()
    rejoins: tuple[Rejoin, ...] = ()


@dataclass(frozen=True, slots=True)
class AffectedFragment:
    """A fragment before a change (None: it is new) and after it."""

    before: Fragment | None
    after: PlacedFragment


def find_recomputes(
    connection: Connection,
    config: WarehouseConfig,
    table: str,
    affected: Sequence[AffectedFragment],
    now: float,
    columns: Sequence[ColumnSchema],
) -> tuple[Recompute, ...]:
    """The memos that live models over ``table`` will queue after a change, by component, most rows first.

    Each model is matched under its own admission policy; misses over unchanged columns are not counted.
    ``columns``: those of the table after the change.
    """
    if not affected:
        return ()
    affected = _as_units(connection, affected, FragmentSchema(columns))
    changed = [changed_columns(one) for one in affected]
    placed = tuple(one.after for one in affected)
    context = PlanContext(connection, config, get_table(connection, table), current_units(connection, table), now)
    memos: dict[str, dict[str, int]] = {}
    models: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    roots: dict[str, Node] = {}
    for model in all_models(connection, live=True):
        if model.table != table:
            continue
        inputs, first = stored_inputs(connection, model.id), 0
        decision = context.keep_decision(
            model, MergedGraph(tuple(item.component for item in inputs)), is_requested=False
        )
        for item in inputs:
            names.setdefault(item.fingerprint, set()).add(item.name)
        for first, last in blocks(len(placed), len(inputs)):
            block = placed[first:last]
            found = match_model(connection, inputs, block, decision, requeue=Requeue.NONE)
            for fingerprint, matches in found.matches.items():
                root = found.graph.operations[fingerprint]
                read = {column.name for column in raw_columns(root)}
                for position, one in matches.items():
                    if one.action in (MemoAction.QUEUE, MemoAction.WAIT) and not read.isdisjoint(
                        changed[first + position]
                    ):
                        roots[fingerprint] = root
                        models.setdefault(fingerprint, set()).add(model.name)
                        memos.setdefault(fingerprint, {})[one.request.memo_key] = block[position].fragment.rows
            first += len(block)
    recomputes = (
        _recompute(roots[fingerprint], names.get(fingerprint, set()), models[fingerprint], rows)
        for fingerprint, rows in memos.items()
    )
    return tuple(sorted(recomputes, key=lambda one: (-one.rows, one.expression)))


def _as_units(
    connection: Connection, affected: Sequence[AffectedFragment], columns: FragmentSchema
) -> list[AffectedFragment]:
    """The changes with fragments that are parts of a merged one replaced by that one, once."""
    places = merged_places(connection, {one.after.row for one in affected if one.before is not None})
    units = [one for one in affected if one.before is None or one.after.row not in places]
    after = {one.after.row: one.after for one in affected if one.after.row in places}
    merged = fragments_by_row(connection, {place.merged for place in places.values()})
    for number, rows in members_of_merged(connection, merged).items():
        members = merged[number].members
        changed = [
            after[row].fragment if row in after else columns.of(member)
            for row, member in zip(rows, members, strict=True)
        ]
        first = next(after[row] for row in rows if row in after)
        placed = replace(first, row=number, fragment=merge_fragments(changed), is_merged=True)
        units.append(AffectedFragment(merged[number], placed))
    return units


def _recompute(root: Node, names: set[str], models: set[str], memos: Mapping[str, int]) -> Recompute:
    columns = tuple(sorted({column.name for column in raw_columns(root)}))
    return Recompute(root.identity, expression_text(root, 100), tuple(sorted(names)), columns, tuple(sorted(models)),
                     len(memos), sum(memos.values()))  # fmt: skip


def changed_columns(one: AffectedFragment) -> set[str]:
    """The columns whose values differ; all columns of a new fragment."""
    before, after = {} if one.before is None else one.before.digests, one.after.fragment.digests
    return {column for column in before.keys() | after.keys() if before.get(column) != after.get(column)}
