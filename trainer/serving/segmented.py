"""The figures of a trained model by the values of raw columns, such as by country, and the area inside groups, such as of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.evaluation.segments import segment_counts
from trainer.model.metrics import AnyScores, Scores, TaskScores, TasksScores, sigmoid
from trainer.model.task_heads import AnyHead
from trainer.serving.scored_events import ScoredEvents
from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.errors import InputError
from warehouse.solution.parts import SolutionFragment

#: Reads raw columns of all stored events of a fragment.
ReadColumns = Callable[[SolutionFragment], pa.Table]


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors of the figures of binary predictions; None where the figure is undefined.

    Attributes:
        auc: of the area (:func:`area_error`).
        calibration: of the predicted over the observed, were the predictions the true chances.
    """

    auc: float | None
    calibration: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of some events, and their errors by binary label; "" for the only label."""

    scores: AnyScores
    errors: Mapping[str, Errors]


@dataclass(frozen=True, slots=True)
class Segment:
    """The figures of the events with one value of a column; ``value`` is None for events without one."""

    value: str | None
    figures: Figures


@dataclass(frozen=True, slots=True)
class Segmented:
    """The figures by one column.

    Attributes:
        column: its name.
        values: how many it has.
        segments: those of most events, the largest first; equal ones by value.
        others: the figures of all other values together; None if there are none.
        grouped_auc: by binary label, "" for the only one, the area inside the segments (:meth:`~trainer.evaluation.segments.SegmentCounts.grouped_auc`)
            of all values; None where no segment has both labels.
    """

    column: str
    values: int
    segments: tuple[Segment, ...]
    others: Figures | None
    grouped_auc: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures over all events, and by each column."""

    figures: Figures
    by: tuple[Segmented, ...]


def evaluate_by(
    events: ScoredEvents,
    fragments: Sequence[SolutionFragment],
    columns: Sequence[str],
    read_columns: ReadColumns,
    *,
    most: int = 20,
) -> Evaluation:
    """The figures of scored events, also divided by the values of raw columns.

    Args:
        fragments: of the events, in time order.
        columns: their names; none: only the figures of all events.
        read_columns: reads them.
        most: the segments of each column that have figures of their own.

    Raises :class:`InputError` for a column of lists.
    """
    values: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for fragment, positions in zip(fragments, events.positions, strict=True):
        raw = read_columns(fragment) if columns else {}
        for name in columns:
            column = one_array(raw[name])
            values[name].append(column if positions is None else column.take(pa.array(positions)))
    head, labels, logits = events.head, events.labels, events.logits
    by = tuple(_segmented(head, name, parts, labels, logits, most) for name, parts in values.items())
    return Evaluation(_figures(head, labels, logits), by)


def _figures(head: AnyHead, labels: Array, logits: Array) -> Figures:
    collector = head.collector()
    collector.add(labels, logits)
    scores = collector.scores()
    of_label = scores.tasks if isinstance(scores, TasksScores) else {"": scores}
    return Figures(
        scores, {name: _errors(of_label[name], own[known]) for name, known, _, own in _binary(head, labels, logits)}
    )


def _errors(scores: TaskScores, logits: Array) -> Errors:
    assert isinstance(scores, Scores)
    chances = sigmoid(logits)
    spread = math.sqrt(float((chances * (1 - chances)).sum()))
    return Errors(
        auc=None if scores.auc is None else area_error(scores.positives, scores.events - scores.positives, scores.auc),
        calibration=None if scores.calibration is None else scores.calibration * spread / scores.positives,
    )


def _segmented(
    head: AnyHead, column: str, parts: Sequence[pa.Array], labels: Array, logits: Array, most: int
) -> Segmented:
    codes, names = _codes(column, parts)
    assert len(codes) == len(labels), "each scored event has a value of the column, or none"
    counts = np.bincount(codes, minlength=len(names))
    order = sorted(range(len(names)), key=lambda one: (-int(counts[one]), names[one] or ""))
    places = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])

    def of(segments: Sequence[int]) -> Figures:
        own = np.sort(np.concatenate([places[starts[one] : starts[one + 1]] for one in segments]))
        return _figures(head, labels[own], logits[own])

    rest = order[most:]
    return Segmented(
        column=column,
        values=len(names),
        segments=tuple(Segment(names[one], of([one])) for one in order[:most]),
        others=of(rest) if rest else None,
        grouped_auc={name: _grouped(codes, len(names), *events) for name, *events in _binary(head, labels, logits)},
    )


def _codes(column: str, parts: Sequence[pa.Array]) -> tuple[Array, list[str | None]]:
    """The place of each event's value among the distinct ones, and these as texts; None for events without one."""
    if not parts:
        return np.zeros(0, np.int64), []
    joined = pa.chunked_array(parts)
    if pa.types.is_nested(joined.type):
        raise InputError("a column that divides events must have single values", where=f"--by {column}", value=str(joined.type),
                         allowed="integers, texts, booleans, times", next_step="name a column without lists")  # fmt: skip
    encoded = one_array(pc.dictionary_encode(joined, null_encoding="encode"))
    names = [None if value is None else str(value) for value in encoded.dictionary.to_pylist()]
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), names


def _binary(head: AnyHead, labels: Array, logits: Array) -> Iterator[tuple[str, Array, Array, Array]]:
    """By binary label: the events that have it, the labels, and the logits."""
    at = 0
    for t, (name, one) in enumerate(head.each):
        own = labels if labels.ndim == 1 else labels[:, t]
        scores = logits if logits.ndim == 1 else logits[:, at]
        at += one.width
        if one.task == "binary":
            known = ~np.isnan(own)
            yield (name if labels.ndim > 1 else ""), known, own, scores


def _grouped(codes: Array, count: int, known: Array, labels: Array, scores: Array) -> float | None:
    found = segment_counts(codes[known], count, labels[known] == 1, scores[known]).grouped_auc()
    return None if math.isnan(found) else found


def area_error(positives: int, negatives: int, area: float) -> float:
    """The standard error of an area under the ROC curve (Hanley and McNeil, Radiology 1982, equation 2). NaN without both labels."""
    if not positives or not negatives:
        return math.nan
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (positives - 1) * (first - area * area) + (negatives - 1) * (second - area * area)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))
