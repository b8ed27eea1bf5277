"""How the inputs of a model differ from those of the range before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.checks.column_sketch import ColumnSketch
    from headrace.checks.drift import Drift, Limits
    from headrace.checks.partition_sketches import PartitionSketches
    from headrace.screens.drift import DriftRow, DriftScreen, SketchesScreen, SketchRow
    from transforms.analysis.expectation import Expect
    from warehouse.warehouse import Warehouse

Progress = Callable[[int, int], None]


def drift(
    warehouse: Warehouse,
    model: str,
    *,
    against: timedelta,
    last: timedelta,
    end: datetime | None = None,
    limits: Limits,
    progress: Progress,
) -> DriftScreen:
    """The inputs and labels of a model in its ``last`` partitions before ``end``, compared with the partitions of the time ``against`` before those.

    Raises :class:`InputError` for a range without partitions, and :class:`~transforms.errors.NotFound` for an unknown model.
    """
    from headrace.checks.column_sketch import merged_sketches
    from headrace.checks.drift import chance_distance, drift_of
    from headrace.screens.drift import DriftScreen

    name, version = _named(model)
    upto, table = _end(warehouse, name, version, end)
    first = upto - last
    parts, expectations, shown_version = _sketched(warehouse, name, version, first - against, upto, progress)
    before, now = [one for one in parts if one.start < first], [one for one in parts if one.start >= first]
    for which, found, start, stop in (("before", before, first - against, first), ("now", now, first, upto)):
        if not found:
            raise InputError(f"the range {which} must hold partitions", where=f"table {table}", value=f"{start.isoformat()} to {stop.isoformat()}",
                             next_step=f"choose other ranges by --end, --last and --against: headrace table show {table}")  # fmt: skip
    old_rows, new_rows = (sum(next(iter(one.sketches.values())).rows for one in part) for part in (before, now))
    has_too_few = not old_rows or not new_rows or chance_distance(old_rows, new_rows) > limits.ks
    rows = []
    for column in parts[0].sketches:
        old, new = (merged_sketches([one.sketches[column] for one in part]) for part in (before, now))
        rows.append(_row(column, drift_of(old, new, expectations.get(column), limits)))
    return DriftScreen(
        name, shown_version, table, before[0].partition, before[-1].partition, len(before), now[0].partition, now[-1].partition, len(now), has_too_few, tuple(rows)
    )  # fmt: skip


def sketches(
    warehouse: Warehouse,
    model: str,
    column: str,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    progress: Progress,
) -> SketchesScreen:
    """The values of an input, or of a label, by partition. Raises :class:`InputError` for an unknown one."""
    from headrace.screens.drift import SketchesScreen
    from transforms.errors import nearest

    name, version = _named(model)
    parts, _, shown_version = _sketched(warehouse, name, version, start, end, progress)
    known = list(parts[0].sketches)
    if column not in known:
        raise InputError(
            "the model has no such input", where=f"model {name}", value=column, allowed=nearest(column, known)
        )
    return SketchesScreen(
        name, shown_version, column, tuple(_sketch_row(one.partition, one.sketches[column]) for one in parts)
    )


def _named(model: str) -> tuple[str, int | None]:
    from headrace.reading import parsed_name

    return parsed_name(model)


def _end(warehouse: Warehouse, name: str, version: int | None, end: datetime | None) -> tuple[datetime, str]:
    """The end of the newest range, and the model's table."""
    from warehouse.models.models import get_model
    from warehouse.tables.manifests import table_manifests

    with warehouse.catalog.read() as connection:
        record = get_model(connection, name, version)
        ends = [one.end for one in table_manifests(connection, record.table)]
    if end is None and not ends:
        raise InputError(
            "the table must hold partitions", where=f"table {record.table}", next_step="headrace table add, or append"
        )
    return (max(ends) if end is None else end), record.table


def _sketched(
    warehouse: Warehouse,
    name: str,
    version: int | None,
    start: datetime | None,
    end: datetime | None,
    progress: Progress,
) -> tuple[Sequence[PartitionSketches], dict[str, Expect], int]:
    """The sketches by partition, what is expected of inputs, and the model's version."""
    from headrace.checks.partition_sketches import partition_sketches
    from headrace.reading import opened_reading
    from warehouse.models.models import get_model, stored_expectations

    with opened_reading(warehouse, name, version, start, end, holder="headrace checks") as reading:
        found = list(partition_sketches(warehouse, reading.solution, reading.load, progress))
        number = reading.solution.model_version
    with warehouse.catalog.read() as connection:
        expectations = stored_expectations(connection, get_model(connection, name, number).id)
    return found, expectations, number


def _row(name: str, found: Drift) -> DriftRow:
    from headrace.screens.drift import DriftRow

    return DriftRow(
        input=name,
        rows_before=found.before.rows,
        rows=found.now.rows,
        empty_share_before=found.before.empty_share,
        empty_share=found.now.empty_share,
        distinct_before=None if found.before.ids is None else found.before.ids.distinct,
        distinct=None if found.now.ids is None else found.now.ids.distinct,
        median_before=_median(found.before),
        median=_median(found.now),
        true_share_before=found.before.true_share,
        true_share=found.now.true_share,
        psi=found.psi,
        ks=found.ks,
        new_share=found.new_share,
        new_share_error=found.new_share_error,
        findings=found.findings,
    )


def _median(sketch: ColumnSketch) -> float | None:
    return None if sketch.numbers is None else sketch.numbers.quantile(0.5)


def _sketch_row(partition: str, found: ColumnSketch) -> SketchRow:
    from headrace.screens.drift import SketchRow

    numbers, ids = found.numbers, found.ids
    return SketchRow(
        partition=partition,
        rows=found.rows,
        empty_share=found.empty_share,
        distinct=None if ids is None else ids.distinct,
        quantiles=()
        if numbers is None
        else tuple(one for share in (0.0, 0.25, 0.5, 0.75, 1.0) if (one := numbers.quantile(share)) is not None),
        mean_length=None if found.lengths is None else found.lengths.quantile(0.5),
        top=() if ids is None else ids.top,
        top_counts=() if ids is None else ids.top_counts,
        true_share=found.true_share,
    )
