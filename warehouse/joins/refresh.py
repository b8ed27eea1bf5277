"""The work on joined columns: what is outdated is leased, computed and published, some fragments at a time."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from transforms.columns.arrays import one_array
from transforms.errors import DataError, StorageError
from transforms.joins.definition import JoinDefinition
from warehouse.joins.changed_values import cause_text, changed_events
from warehouse.joins.computation import Computation, by_keys, split
from warehouse.joins.leases import JoinLease, first_fragments, lease_fragments, leased_elsewhere, renewed
from warehouse.joins.outdated import (
    DATA_ERRORS,
    JoinVersions,
    OutdatedFragment,
    OutdatedJoins,
    UnreadableJoins,
    join_versions,
    outdated_joins,
)
from warehouse.joins.publication import ComputedColumn, publish_columns
from warehouse.joins.repair import changed_fragments, repaired_columns
from warehouse.joins.time_ranges import timed_fragments
from warehouse.joins.views import TimedFragment, Views
from warehouse.matching.join_checks import time_column
from warehouse.models.joined_columns import JoinedRecord, record_failure
from warehouse.models.new_joined_columns import write_joined_columns
from warehouse.tables.manifests import PlacedFragment, current_fragments
from warehouse.tables.raw import read_raw
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)


#: Computes the columns of a computation: over all its fragments, in their order.
Compute: TypeAlias = Callable[[Computation], Mapping[str, pa.Array]]


@dataclass(frozen=True, slots=True)
class JoinStep:
    """What one step has done.

    Attributes:
        table: The table whose columns were computed.
        other_table: The table that they were joined from.
        fragments: How many fragments were looked at.
        changed_fragments: How many of them have new values.
        columns: How many columns were computed.
        failed: The columns that failed, each with the error.
    """

    table: str
    other_table: str
    fragments: int
    changed_fragments: int
    columns: int
    failed: tuple[tuple[str, str], ...] = ()


class JoinWorker:
    """Computes outdated joined columns, one step after the other, beside other workers.

    Args:
        warehouse: the warehouse.
        name: the worker's name.
        only: the columns (table and name) that are computed, in place of those that live models read.
        compute: computes columns, as :meth:`~warehouse.joins.computation.Computation.columns` does in this process.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        name: str,
        only: Collection[tuple[str, str]] | None = None,
        compute: Compute = lambda work: work.columns(),
    ) -> None:
        self._warehouse, self._name, self._only, self._compute = warehouse, name, only, compute
        self._idle_at: JoinVersions | None = None

    def step(self) -> JoinStep | None:
        """Compute the joined columns of some fragments; None if none are outdated, or others compute them."""
        versions = self._warehouse.catalog.query(join_versions)
        if self._only is None and (versions == self._idle_at or not versions.columns):
            return None
        left = False
        for joins in outdated_joins(self._warehouse, self._only):
            if isinstance(joins, UnreadableJoins):
                return _unreadable(self._warehouse, joins)
            lease = lease_fragments(self._warehouse, self._name, joins)
            if lease is None:
                left = True
                continue
            with renewed(self._warehouse, lease):
                return _compute(self._warehouse, joins, lease, self._compute)
        if not left and self._only is None:
            self._idle_at = versions
        return None

    @property
    def waiting(self) -> int:
        """How many fragments workers compute now."""
        return leased_elsewhere(self._warehouse)


def next_computation(warehouse: Warehouse) -> Computation | None:
    """The columns that a worker would compute first, over the fragments that it would lease; None if none are outdated. Nothing is leased."""
    for joins in outdated_joins(warehouse):
        if isinstance(joins, UnreadableJoins):
            continue
        first, *others = first_fragments(joins.fragments)
        own = [first.own, *(one.own for one in others if _names(one) == _names(first))]
        group = next(iter(by_keys(record for record, _ in first.columns)))
        return Computation(warehouse.storage, (joins.table, joins.other), joins.views, own, group)
    return None


def _names(fragment: OutdatedFragment) -> tuple[str, ...]:
    return tuple(record.column for record, _ in fragment.columns)


def compute_joins(
    warehouse: Warehouse, table: str, joins: Mapping[str, JoinDefinition], worker: str = "analyze"
) -> None:
    """Compute joined columns of all fragments of a table, also before a model with them is submitted.

    Raises :class:`DataError` for a column that fails.
    """
    if not joins:
        return
    warehouse.catalog.run(
        lambda connection: write_joined_columns(connection, table, joins, warehouse.clock()), idempotent=True
    )
    steps = JoinWorker(warehouse, worker, {(table, name) for name in joins})
    while (done := steps.step()) is not None:
        for column, error in done.failed:
            raise DataError(
                "a joined column must be computed before its analysis", where=f"table {table}, {column}", value=error
            )


def _compute(warehouse: Warehouse, joins: OutdatedJoins, lease: JoinLease, compute: Compute) -> JoinStep:
    """Compute and publish the columns of leased fragments; columns that fail are noted, and do not stop the others."""
    before = _Before(warehouse, joins)
    by_columns: defaultdict[tuple[str, ...], list[OutdatedFragment]] = defaultdict(list)
    known: dict[str, JoinedRecord] = {}
    for one in lease.fragments:
        known.update((record.column, record) for record, _ in one.columns)
        by_columns[_names(one)].append(one)
    failed: dict[str, str] = {}
    computed: list[ComputedColumn] = []
    for names, fragments in by_columns.items():
        records = [known[name] for name in names]
        try:
            computed += _computed(warehouse, joins, fragments, records, before, compute)
        except DATA_ERRORS as error:
            if len(records) == 1:
                failed[names[0]] = str(error)
                continue
            for record in records:  # which of them is it?
                try:
                    computed += _computed(warehouse, joins, fragments, [record], before, compute)
                except DATA_ERRORS as own_error:
                    failed[record.column] = str(own_error)
    changed = publish_columns(warehouse, joins.table.name, joins.other, computed) if computed else 0
    for name, why in failed.items():
        _note_failure(warehouse, known[name], (joins.table.version, joins.other.version), why)
    columns = {one.record.column for one in computed}
    return JoinStep(
        joins.table.name, joins.other.name, len(lease.fragments), changed, len(columns), tuple(sorted(failed.items()))
    )


def _unreadable(warehouse: Warehouse, joins: UnreadableJoins) -> JoinStep:
    for record in joins.records:
        _note_failure(warehouse, record, (joins.table.version, joins.other.version), joins.error)
    failed = tuple((record.column, joins.error) for record in joins.records)
    return JoinStep(joins.table.name, joins.other.name, 0, 0, 0, failed)


def _note_failure(warehouse: Warehouse, record: JoinedRecord, versions: tuple[int, int], error: str) -> None:
    _LOG.warning("joined column %s of table %s fails: %s", record.column, record.table, error)
    note = partial(record_failure, record=record, versions=versions, error=error)
    warehouse.catalog.run(note, idempotent=True)


def _computed(
    warehouse: Warehouse,
    joins: OutdatedJoins,
    fragments: Sequence[OutdatedFragment],
    records: Sequence[JoinedRecord],
    before: _Before,
    compute: Compute,
) -> list[ComputedColumn]:
    """The columns of fragments; those that have values of before are repaired where few rows have changed."""
    names = {record.column for record in records}
    found: list[tuple[list[OutdatedFragment], Mapping[str, Sequence[pa.Array | None]]]] = []
    for group in by_keys(records):
        by_views: defaultdict[object, list[OutdatedFragment]] = defaultdict(list)
        for one in fragments:
            by_views[before.versions(group, one.own)].append(one)
        for versions, some in by_views.items():
            own = [one.own for one in some]
            work = Computation(
                warehouse.storage, (joins.table, joins.other), joins.views, own, group, os.cpu_count() or 1
            )
            repaired = None if versions is None else _repaired(work, group, before)
            if repaired is None:
                found.append((some, {name: split(column, own) for name, column in compute(work).items()}))
            else:
                found.append((some, repaired))
    computed: list[ComputedColumn] = []
    for some, values in found:
        for at, one in enumerate(some):
            for record, view in one.columns:
                if record.column in names and record.column in values:
                    array = values[record.column][at]
                    changed, cause = before.compared(record, one.own, array)
                    computed.append(ComputedColumn(one.own.placed, record, view, array, changed, cause))
    return computed


def _repaired(
    work: Computation, records: Sequence[JoinedRecord], before: _Before
) -> dict[str, list[pa.Array | None]] | None:
    """The columns, from their values of before; None if too much has changed, or what was seen before cannot be read any more."""
    seen: tuple[dict[tuple[int, str], TimedFragment], ...] = ({}, {})
    for record in records:
        for own in work.own:
            for known, pieces in zip(seen, before.changed(record, own), strict=True):
                known.update((_place(one), one) for one in pieces)
    now, then = (list(known.values()) for known in seen)
    changed, known_records = changed_fragments(now, then, work.read_of_rows), {one.column: one for one in records}
    try:
        return repaired_columns(work, changed, lambda name, own: before.values(known_records[name], own))
    except (*DATA_ERRORS, StorageError) as error:
        _LOG.info("joined columns of table %s are computed again: %s", records[0].table, error)
        return None


def _place(one: TimedFragment) -> tuple[int, str]:
    """A fragment and its deletions."""
    deletions = one.placed.fragment.deletions
    return one.placed.row, "" if deletions is None else deletions.checksum


class _Before:
    """What fragments had before their columns were computed again."""

    def __init__(self, warehouse: Warehouse, joins: OutdatedJoins) -> None:
        self._warehouse, self._joins = warehouse, joins
        self._views: dict[int, Views] = {}
        self._values: dict[tuple[str, int], pa.Array] = {}

    def versions(self, records: Sequence[JoinedRecord], own: TimedFragment) -> tuple[int | None, ...] | None:
        """The versions of the other table that the values of a fragment follow; None if it has no values, or they follow other events."""
        found = []
        for record in records:
            views = self._views_of(record, own)
            if views is None or self._joins.known.checksums.get(views.digest(record, own)) != self._checksum(
                record, own
            ):
                return None
            found.append(self._version(record, own))
        return tuple(found)

    def changed(
        self, record: JoinedRecord, own: TimedFragment
    ) -> tuple[tuple[TimedFragment, ...], tuple[TimedFragment, ...]]:
        """The fragments of the other table that events may see now and not before, and before and not now."""
        views = self._views_of(record, own)
        assert views is not None, "it has values"
        return self._joins.views.changed(record, own, views)

    def values(self, record: JoinedRecord, own: TimedFragment) -> pa.Array:
        """The values of a fragment."""
        place = record.column, own.placed.row
        if place not in self._values:
            read = read_raw(self._warehouse.storage, own.placed.fragment, [record.column])
            self._values[place] = one_array(read.column(0))
        return self._values[place]

    def compared(self, record: JoinedRecord, own: TimedFragment, values: pa.Array | None) -> tuple[int | None, str]:
        """The events whose values differ from those of before, and why they were computed, as a sentence; ``values``: None: those of before."""
        rows, after = own.placed.fragment.rows, self._joins.views.contents(record, own)
        if not self._checksum(record, own):
            return None, cause_text(record.other_table, None, after, None, rows)
        changed = 0 if values is None else changed_events(self.values(record, own), values)
        views = self._views_of(record, own)
        before = None if views is None else views.contents(record, own)
        return changed, cause_text(record.other_table, before, after, changed, rows)

    def _version(self, record: JoinedRecord, own: TimedFragment) -> int | None:
        return self._joins.known.versions.get((record.column, self._checksum(record, own)))

    @staticmethod
    def _checksum(record: JoinedRecord, own: TimedFragment) -> str:
        return own.placed.fragment.digests.get(record.column, "")

    def _views_of(self, record: JoinedRecord, own: TimedFragment) -> Views | None:
        """The views of the version of the other table that the values of a fragment were computed from; None if that is not known."""
        version = self._version(record, own)
        if version is None:
            return None
        if version not in self._views:
            with self._warehouse.catalog.read() as connection:
                others = current_fragments(connection, record.other_table, at_version=version)
            self._views[version] = self._views_over(others)
        return self._views[version]

    def _views_over(self, others: Sequence[PlacedFragment]) -> Views:
        own_time, other_time = (time_column(one, one.name) for one in (self._joins.table, self._joins.other))
        return Views(own_time, timed_fragments(self._warehouse, others, other_time), other_time)
