"""The figures of a trained model by the values of raw columns, such as by country, and the area inside groups, such as of users."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainer.errors import RunMismatch
from trainer.evaluation.host_totals import HostTotals
from trainer.evaluation.segments import SegmentCounts, grouped_auc, segment_counts
from trainer.evaluation.shared_arrays import gather_bytes, shuffled
from trainer.model.metrics import chances_spread
from trainer.model.scores import AnyScores, Scores, TaskScores, TasksScores, read_scores
from trainer.model.task_heads import AnyHead
from trainer.options.document_field import DocumentField
from trainer.serving.scored_events import ScoredEvents
from trainer.serving.shared_values import SharedValues, Value, share_values
from trainer.tables.routes.exchange import Exchange, OneHost
from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.derived_documents import document_of
from transforms.errors import InputError
from warehouse.solution.parts import SolutionFragment

#: This process without others.
ALONE: Final = OneHost()
#: A value with at least this share of an equal part of a host, as 1 over it, is computed by all hosts together.
_LARGE_SHARE: Final = 4
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
        grouped_auc: by binary label, "" for the only one, the area inside the segments (:func:`~trainer.evaluation.segments.grouped_auc`)
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
    exchange: Exchange = ALONE,
) -> Evaluation:
    """The figures of scored events, also divided by the values of raw columns: those of all hosts, on each of them.

    Args:
        events: of this host.
        fragments: of the events, in time order.
        columns: their names; none: only the figures of all events.
        read_columns: reads them.
        most: the segments of each column that have figures of their own.
        exchange: of the hosts, which call it at once.

    Raises :class:`InputError` for a column of lists, and :class:`~trainer.errors.RunMismatch` on hosts that ask for other figures.
    """
    _check_equal(exchange, [*columns, most])
    values: dict[str, list[pa.Array]] = {name: [] for name in columns}
    for fragment, positions in zip(fragments, events.positions, strict=True):
        raw = read_columns(fragment) if columns else {}
        for name in columns:
            column = one_array(raw[name])
            values[name].append(column if positions is None else column.take(pa.array(positions)))
    own = _Events(events.head, events.labels, events.logits)
    by = tuple(_segmented(own, name, parts, most, exchange) for name, parts in values.items())
    return Evaluation(own.figures(exchange), by)


def _check_equal(exchange: Exchange, asked: Sequence[str | int]) -> None:
    """Raise unless all hosts ask for the same figures."""
    heard = [json.loads(one) for one in gather_bytes(exchange, json.dumps(asked).encode())]
    for rank, other in enumerate(heard):
        if other != heard[0]:
            raise RunMismatch("all hosts must have the same --by and --most", where=f"host {rank}", value=str(other)[:200],
                              allowed=str(heard[0])[:200], next_step="start all hosts with the same options")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Events:
    """Labels and logits of some events, in the shapes of ``head``."""

    head: AnyHead
    labels: Array
    logits: Array

    def take(self, rows: Array) -> _Events:
        return _Events(self.head, self.labels[rows], self.logits[rows])

    def figures(self, exchange: Exchange) -> Figures:
        """The figures of these events of all hosts."""
        collector = self.head.collector()
        collector.add(self.labels, self.logits)
        scores = collector.scores(exchange)
        of_label = scores.tasks if isinstance(scores, TasksScores) else {"": scores}
        found = {name: _errors(of_label[name], own, scored, exchange) for name, _, own, scored in self.binary()}
        return Figures(scores, found)

    def binary(self) -> Iterator[tuple[str, Array, Array, Array]]:
        """By binary label: the places of the events that have it, their labels and their logits."""
        at = 0
        for t, (name, one) in enumerate(self.head.each):
            labels = self.labels if self.labels.ndim == 1 else self.labels[:, t]
            logits = self.logits if self.logits.ndim == 1 else self.logits[:, at]
            at += one.width
            if one.task == "binary":
                known = np.flatnonzero(~np.isnan(labels))
                yield (name if self.labels.ndim > 1 else ""), known, labels[known], logits[known]


def _errors(scores: TaskScores, labels: Array, logits: Array, exchange: Exchange) -> Errors:
    assert isinstance(scores, Scores)
    spread = chances_spread(labels, logits, exchange)
    return Errors(
        auc=None if scores.auc is None else area_error(scores.positives, scores.events - scores.positives, scores.auc),
        calibration=None if scores.calibration is None else scores.calibration * spread / scores.positives,
    )


def _segmented(own: _Events, column: str, parts: Sequence[pa.Array], most: int, exchange: Exchange) -> Segmented:
    """The figures by a column. All hosts together compute those of values with many events; each other value has a host that does."""
    codes, names = _codes(column, parts)
    assert len(codes) == len(own.labels), "each scored event has a value of the column, or none"
    hosts = exchange.hosts
    counts = np.bincount(codes, minlength=len(names))
    shared = share_values(exchange, names, counts, max(most, _LARGE_SHARE * hosts))
    place = {name: k for k, name in enumerate(names)}
    shown = [name for name, _ in shared.frequent[:most]]
    large = [name for name, count in shared.frequent if hosts > 1 and count * _LARGE_SHARE * hosts >= shared.events]
    are_shown, are_large = frozenset(shown), frozenset(large)
    rows_of = _Rows(codes, counts)

    def of(found: Sequence[Value]) -> _Events:
        return own.take(rows_of.of([place[name] for name in found if name in place]))

    figures: dict[Value, Figures] = {}
    areas = _Areas(own.head)
    for name in large:
        events = of([name])
        if name in are_shown:
            figures[name] = events.figures(exchange)
        areas.add_shared(events, exchange)
    held, place_held = _held(own, codes, [name in are_large for name in names], shared, exchange)
    areas.add_held(held, place_held, len(shared.owned))
    rows_held = _Rows(place_held, np.bincount(place_held, minlength=len(shared.owned)))
    held_shown = are_shown - are_large
    mine = {name: held.take(rows_held.of([k])).figures(ALONE) for k, name in enumerate(shared.owned) if name in held_shown}  # fmt: skip
    figures |= _gathered(mine, exchange)
    rest = [name for name in names if name not in are_shown]
    return Segmented(
        column=column,
        values=shared.count,
        segments=tuple(Segment(name, figures[name]) for name in shown),
        others=of(rest).figures(exchange) if shared.count > len(shown) else None,
        grouped_auc=areas.means(exchange),
    )


class _Rows:
    """The rows of each code, ascending."""

    def __init__(self, codes: Array, counts: Array) -> None:
        self._places = np.argsort(codes, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def of(self, codes: Sequence[int]) -> Array:
        """The rows of these codes, ascending."""
        parts = (self._places[self._starts[one] : self._starts[one + 1]] for one in codes)
        return np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))


def _held(
    own: _Events, codes: Array, are_large: Sequence[bool], shared: SharedValues, exchange: Exchange
) -> tuple[_Events, Array]:
    """The events of all hosts whose value has this host, but for those of large values; and the place of each event's value."""
    number = np.zeros(len(shared.host_of), np.int64)  # of a value among those of its host
    for host in range(exchange.hosts):
        of_host = np.flatnonzero(shared.host_of == host)
        number[of_host] = np.arange(len(of_host))
    is_small = ~np.array(are_large, bool)[codes] if len(codes) else np.zeros(0, bool)
    host_of = shared.host_of[codes] if len(codes) else codes
    parts = []
    for host in range(exchange.hosts):
        rows = np.flatnonzero((host_of == host) & is_small)
        logits = np.asarray(own.logits[rows], np.float64)
        parts.append([number[codes[rows]], own.labels[rows].reshape(-1), logits.reshape(-1)])
    numbers, labels, scores = shuffled(exchange, parts)
    places = np.concatenate([of_host[one] for of_host, one in zip(shared.places, numbers, strict=True)])
    width = own.head.width
    shaped = np.concatenate(scores).reshape((-1, width) if width > 1 else -1)
    return _Events(own.head, np.concatenate(labels).reshape(own.head.label_shape(len(places))), shaped), places


class _Areas:
    """The areas inside segments, by binary label."""

    def __init__(self, head: AnyHead) -> None:
        several = len(head.each) > 1
        names = [name if several else "" for name, one in head.each if one.task == "binary"]
        self._parts: dict[str, list[SegmentCounts]] = {name: [] for name in names}
        self._shared: dict[str, list[SegmentCounts]] = {name: [] for name in names}

    def add_shared(self, events: _Events, exchange: Exchange) -> None:
        """Add one segment of all hosts."""
        for name, _, labels, logits in events.binary():
            found = HostTotals(exchange).rank_counts(labels == 1, logits)
            self._shared[name].append(SegmentCounts.of(found))

    def add_held(self, events: _Events, places: Array, count: int) -> None:
        """Add segments that this host alone has."""
        for name, known, labels, logits in events.binary():
            self._parts[name].append(segment_counts(places[known], count, labels == 1, logits))

    def means(self, exchange: Exchange) -> dict[str, float | None]:
        """The mean area over the segments of all hosts by their events; None where no segment has both labels."""
        found = {}
        for name, own in self._parts.items():
            mean = grouped_auc([*own, *(self._shared[name] if exchange.rank == 0 else ())], HostTotals(exchange))
            found[name] = None if math.isnan(mean) else mean
        return found


def _gathered(own: Mapping[Value, Figures], exchange: Exchange) -> dict[Value, Figures]:
    """The figures of all hosts' values, on each of them."""
    if exchange.hosts == 1:
        return dict(own)
    document = [
        [name, document_of(one.scores), {label: [error.auc, error.calibration] for label, error in one.errors.items()}]
        for name, one in own.items()
    ]
    found = {}
    for content in gather_bytes(exchange, json.dumps(document).encode()):
        for name, scores, errors in json.loads(content):
            read = read_scores(DocumentField(scores, "figures of a segment"))
            found[name] = Figures(read, {label: Errors(*both) for label, both in errors.items()})
    return found


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


def area_error(positives: int, negatives: int, area: float) -> float:
    """The standard error of an area under the ROC curve (Hanley and McNeil, Radiology 1982, equation 2). NaN without both labels."""
    if not positives or not negatives:
        return math.nan
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (positives - 1) * (first - area * area) + (negatives - 1) * (second - area * area)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))
