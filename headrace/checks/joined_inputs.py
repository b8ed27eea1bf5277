"""Warnings about joined columns: what may not have been known yet when an event happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checks.sample import sample_rows
from headrace.checks.surprises import Surprise

if TYPE_CHECKING:
    from transforms.joins.definition import JoinDefinition
    from warehouse.tables.table import Table
    from warehouse.warehouse import Warehouse

#: How much later rows are read, to see whether a column lives by rows of the last hour.
DELAY_MICROS = 3_600 * 10**6
#: An area that falls by less is no warning.
FALL = 0.02
#: The share of rows that are known later than declared from which a warning is given.
LATE_SHARE = 0.01


def joined_surprises(
    warehouse: Warehouse,
    table: Table,
    joins: Mapping[str, JoinDefinition],
    labels: Sequence[str],
    sample: pa.Table,
    label: pa.ChunkedArray | None,
    resample: Callable[[Mapping[str, JoinDefinition]], pa.Table],
) -> dict[str, tuple[Surprise, ...]]:
    """The warnings about joined columns, by column.

    Args:
        warehouse: the warehouse.
        table: the table of the events.
        joins: the joined columns.
        labels: the columns of the model's labels.
        sample: events with the joined columns.
        label: the values of a label of two classes over the sample; None without one.
        resample: gives the same events with other joined columns.
    """
    found: dict[str, list[Surprise]] = {name: [] for name in joins}
    for name, one in joins.items():
        if read := _early_labels(one, labels):
            found[name].append(Surprise("early_label", f"it reads the label {read} of table {one.table} at the time of its row; if labels come later, "
                                                       'say so: hr.table(..., available_after="1h") or known_at=COLUMN'))  # fmt: skip
        if one.known_at and (share := _late_share(warehouse, one)) > LATE_SHARE:
            found[name].append(Surprise("late_rows", f"{share:.1%} of rows of {one.table} are known later than available_after after their time; {one.known_at} "
                                                     "decides for them"))  # fmt: skip
    if label is not None:
        for name, text in _falling(joins, sample, label, resample).items():
            found[name].append(Surprise("falls_with_delay", text))
    return {name: tuple(surprises) for name, surprises in found.items() if surprises}


def _early_labels(definition: JoinDefinition, labels: Sequence[str]) -> str:
    """The label that a column reads without a delay."""
    from transforms.joins.columns_read import other_columns

    if definition.available_after_micros or definition.known_at:
        return ""
    read = {column.name for column in other_columns(definition)}
    return next((name for name in labels if name in read), "")


def _late_share(warehouse: Warehouse, definition: JoinDefinition) -> float:
    """The share of rows of the other table that are known later than ``available_after`` after their time."""
    from warehouse.joins.time_ranges import as_times
    from warehouse.matching.join_checks import time_column
    from warehouse.tables.manifests import current_fragments, get_table

    with warehouse.catalog.read() as connection:
        other, fragments = get_table(connection, definition.table), current_fragments(connection, definition.table)
    time = time_column(other, definition.table)
    rows, _ = sample_rows(warehouse, fragments, sorted({time, definition.known_at}), 10_000) if fragments else (None, 0)
    if rows is None or not rows.num_rows:
        return 0.0
    at, known = (as_times(rows.column(name)).cast(pa.int64()) for name in (time, definition.known_at))
    late = pc.greater(known, pc.add(at, definition.available_after_micros))
    return int(pc.sum(pc.fill_null(late, False)).as_py() or 0) / int(rows.num_rows)


def _falling(
    joins: Mapping[str, JoinDefinition],
    sample: pa.Table,
    label: pa.ChunkedArray,
    resample: Callable[[Mapping[str, JoinDefinition]], pa.Table],
) -> dict[str, str]:
    """What is to be said of numbers whose area under the curve falls if rows are read an hour later."""
    numbers = {
        name: one
        for name, one in joins.items()
        if pa.types.is_floating(kind := sample.column(name).type) or pa.types.is_integer(kind)
    }
    if not numbers:
        return {}
    later = {
        name: replace(one, available_after_micros=one.available_after_micros + DELAY_MICROS)
        for name, one in numbers.items()
    }
    delayed = resample({later[name].column: later[name] for name in numbers})
    found = {}
    for name in numbers:
        now, then = (area(one, label) for one in (sample.column(name), delayed.column(later[name].column)))
        if now is not None and then is not None and abs(now[0] - 0.5) - abs(then[0] - 0.5) > max(FALL, 2 * now[1]):
            found[name] = (
                f"alone it has an AUC of {max(now[0], 1 - now[0]):.3f}, and of {max(then[0], 1 - then[0]):.3f} if rows are read an hour later: "
                "what it sees may not be known yet when an event happens"
            )
    return found


def area(values: pa.ChunkedArray, label: pa.ChunkedArray) -> tuple[float, float] | None:
    """The area under the ROC curve of numbers for labels of 0 and 1, ties counted half, and its error without a relation; None without both classes."""
    numbers = np.asarray(values.cast(pa.float64()).fill_null(np.nan))
    truth = np.asarray(label.cast(pa.float64()).fill_null(np.nan))
    used = np.isfinite(numbers) & np.isin(truth, (0.0, 1.0))
    from trainer.evaluation.rank_counts import rank_counts  # only for joined numbers

    counts = rank_counts(truth[used] == 1.0, numbers[used])
    ones, zeros = counts.positives, counts.negatives
    if not ones or not zeros:
        return None
    return counts.auc, float(np.sqrt((ones + zeros + 1) / (12 * ones * zeros)))
