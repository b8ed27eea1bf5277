"""Read the labels of a range before training: find the trainable events and reject bad labels before the first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trainer.errors import BadFeature, BadLabel
from trainer.model.heads import Head, LabelFigures
from trainer.model.task_heads import AnyHead, heads_of
from trainer.run.reading.columns import ROW_COLUMN, has_label, stored_labels
from trainer.run.reading.stream import FragmentRef, ReadFragment
from transforms.arrays import Array
from warehouse.solution.solution import ReadSolution

#: The column of a label reader that is false for deleted events.
LIVE_COLUMN = "__live__"


@dataclass(frozen=True, slots=True)
class FragmentLabels:
    """The labels of one fragment's stored events.

    Attributes:
        values: float32 [rows], 0 without a label; of several labels the :meth:`codes <trainer.model.task_heads.TaskHeads.codes>`.
        labelled: whether the event has a label, or any of several, bool [rows].
        live: whether the event is not deleted, bool [rows].
    """

    values: Array
    labelled: Array
    live: Array


@dataclass
class TrainableEvents:
    """The trainable events of fragments: stored events with a label that are not deleted. One bit per event.

    Attributes:
        masks: packed bits by fragment key; None for all events.
        unlabelled: the events of each fragment that are not deleted and have no label.
        figures: statistics of the labels of the scanned fragments.
    """

    rows: dict[str, int] = field(default_factory=dict)
    masks: dict[str, Array | None] = field(default_factory=dict)
    unlabelled: dict[str, int] = field(default_factory=dict)
    figures: LabelFigures = field(default_factory=LabelFigures)

    def of(self, key: str) -> Array:
        """The mask of a fragment, bool [stored events]; all events of a fragment that was not scanned."""
        packed, rows = self.masks.get(key), self.rows[key]
        return np.ones(rows, bool) if packed is None else np.unpackbits(packed, count=rows).astype(bool)

    def note(self, key: str, labels: FragmentLabels) -> None:
        """Store the trainable events of a fragment."""
        mask = labels.labelled & labels.live
        self.masks[key] = None if mask.all() else np.packbits(mask)
        self.unlabelled[key] = int((labels.live & ~labels.labelled).sum())


#: Called with every fragment's labels as they are read, and its key.
OnLabels = Callable[[str, FragmentLabels], None]


def scan_labels(
    every: Iterable[FragmentRef],
    needed: Iterable[FragmentRef],
    read: ReadFragment,
    head: AnyHead,
    *,
    on_labels: OnLabels | None = None,
) -> TrainableEvents:
    """Read the labels of the ``needed`` fragments; all events of the other fragments of ``every`` are trainable.

    ``read`` returns the labels of all stored events with :data:`LIVE_COLUMN`, or a fragment's columns.
    Raises :class:`BadLabel` with the first bad label and their number.
    """
    found = TrainableEvents({ref.key: ref.fragment.rows for ref in every})
    tasks = [(_BadLabels(name, one), _Sums(one)) for name, one in head.each]
    events = 0
    for ref in needed:
        columns, labels = _labels_of(read(ref.fragment), ref, head)
        found.note(ref.key, labels)
        events += int((labels.labelled & labels.live).sum())
        for (bad, sums), (values, present) in zip(tasks, columns, strict=True):
            known = present & labels.live
            sums.add(values[known & ~bad.look(ref, values, known)])
        if on_labels is not None:
            on_labels(ref.key, labels)
    for bad, sums in tasks:
        bad.refuse(sums.events)
    unlabelled = sum(found.unlabelled.values())
    each = tuple(sums.figures(unlabelled) for _, sums in tasks)
    found.figures = each[0] if isinstance(head, Head) else LabelFigures(events, unlabelled, tasks=each)
    return found


def check_labels(solution: ReadSolution, read: ReadFragment) -> LabelFigures:
    """Statistics of the labels of a range. Raises :class:`BadLabel` for labels that the model's task does not accept."""
    refs = [
        FragmentRef(part.key, position, fragment)
        for part in solution.partitions
        for position, fragment in enumerate(part.fragments)
    ]
    return scan_labels(refs, refs, read, heads_of(solution.target)).figures


def _labels_of(table: pa.Table, ref: FragmentRef, head: AnyHead) -> tuple[list[tuple[Array, Array]], FragmentLabels]:
    """Each label as float64 with whether it is there, and all as :class:`FragmentLabels`, by stored event."""
    values, present = stored_labels(table, ref.key)
    labelled = np.ones(values.shape, bool) if present is None else present
    rows = ref.fragment.rows
    if LIVE_COLUMN in table.column_names:
        live = np.asarray(table.column(LIVE_COLUMN).to_numpy(), bool)
    elif ref.fragment.live_rows == rows:
        live = np.ones(rows, bool)
    else:
        values, labelled, live = _placed(table, ref, values, labelled)
    if len(values) != rows:
        raise BadFeature("a fragment must have the rows that the read solution states",
                         where=f"fragment {ref.key}", value=len(values), allowed=str(rows))  # fmt: skip
    with np.errstate(over="ignore"):
        known = values.astype(np.float32)
    if isinstance(head, Head):
        return [(values, labelled)], FragmentLabels(known, labelled, live)
    codes = head.codes(np.where(labelled, known, np.float32("nan")))
    columns = [(values[:, t], labelled[:, t]) for t in range(len(head.each))]
    return columns, FragmentLabels(codes, has_label(labelled), live)


def _placed(table: pa.Table, ref: FragmentRef, values: Array, labelled: Array) -> tuple[Array, Array, Array]:
    if ROW_COLUMN not in table.column_names:
        raise BadFeature("a reader that leaves deleted events out must return a column of event numbers",
                         where=f"fragment {ref.key}", allowed=f"a column {ROW_COLUMN}",
                         next_step="read_fragment(..., rows=True)")  # fmt: skip
    places = table.column(ROW_COLUMN).to_numpy()
    rows = ref.fragment.rows
    shape, live = (rows, *values.shape[1:]), np.zeros(rows, bool)
    at_place, is_there = np.zeros(shape), np.zeros(shape, bool)
    at_place[places], is_there[places], live[places] = values, labelled, True
    return at_place, is_there, live


class _BadLabels:
    """Labels that the task does not accept: the first one, and their number."""

    def __init__(self, name: str, head: Head) -> None:
        self._name, self._head = name, head
        self._first: tuple[str, float | int] | None = None
        self._events = self._fragments = 0

    def look(self, ref: FragmentRef, values: Array, known: Array) -> Array:
        """The bad labels of one fragment among those that are ``known``, bool [rows]."""
        bad: Array = self._head.bad_labels(values) & known
        if not bad.any():
            return bad
        row = int(np.flatnonzero(bad)[0])
        place = f"fragment {ref.key}, row {row}, {ref.fragment.path}"
        value: float = values[row].item()
        self._first = self._first or (place, int(value) if value.is_integer() else value)
        self._events += int(bad.sum())
        self._fragments += 1
        return bad

    def refuse(self, events: int) -> None:
        """Raise :class:`BadLabel` if there was any; ``events``: the number of good labels."""
        if self._first is None:
            return
        place, value = self._first
        raise BadLabel(f"a {self._head.task} label must be {self._head.allowed}, got others in {self._events:,} "
                       f"{'event' if self._events == 1 else 'events'} of {self._fragments:,} "
                       f"{'fragment' if self._fragments == 1 else 'fragments'}, and {events:,} that fit",
                       where=f"{f'label {self._name}, ' if self._name else ''}{place}, is the first", value=value,
                       allowed=f"{self._head.allowed}; null where it has not come yet", next_step=self._head.remedy)  # fmt: skip


class _Sums:
    """Mean and deviation of labels, fragment by fragment (Chan et al., 1979), and how often each class occurs."""

    def __init__(self, head: Head) -> None:
        self._counts = np.zeros(0 if head.task == "regression" else head.classes, np.int64)
        self.events = 0
        self._mean = self._squares = 0.0

    def add(self, values: Array) -> None:
        """Add labels, float64."""
        if not len(values):
            return
        mean = float(values.mean())
        total = self.events + len(values)
        apart = mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + apart**2 * self.events * len(values) / total
        self._mean += apart * len(values) / total
        self.events = total
        if len(self._counts):
            known = values[(values >= 0) & (values < len(self._counts))]
            self._counts += np.bincount(known.astype(np.int64), minlength=len(self._counts))

    def figures(self, unlabelled: int) -> LabelFigures:
        """The statistics of all labels."""
        deviation = math.sqrt(self._squares / self.events) if self.events else 0.0
        return LabelFigures(self.events, unlabelled, self._mean, deviation, tuple(self._counts.tolist()))
