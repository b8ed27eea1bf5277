"""A batch as bytes: ids in as few bytes as their buckets allow, lengths of bags only where they differ, no padding.

The bytes are a header (int64), a row per input (:mod:`trainer.run.batch_files.packing`), a row of int64 per span, and sections that begin at
multiples of 8 bytes: the dense inputs (float32, event by event); labels, as bytes if all are small whole numbers, else float32; the stored
events (uint32) of spans in which they do not follow one another; and of each input ids, lengths and weights. Numbers are little-endian.

Bytes are untrusted: all that a batch is made of is checked while it is unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from trainer.errors import DamagedBatches
from trainer.model.heads import Head
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.run.batch_files import packing
from trainer.run.reading.batches import Batch, Span
from trainer.tables.batches import IdBatch, id_dtype
from transforms.arrays import Array
from transforms.types import Weighted

#: The header: events, bytes of a label, spans, stored events that are listed.
_HEADER = 4
#: A row of a span: the number of its fragment, its first stored event, its events, and whether they are listed.
_SPAN = 4


@dataclass(frozen=True, slots=True, eq=False)
class BatchLayout:
    """What all batches of a file have in common.

    Attributes:
        batch_rows: the events of a whole batch.
        types: of each embedded input the bound of its ids, and whether they have weights; int64 [inputs, 2].
        bounds: the rows of the table of each embedded input.
        dense_width: the numbers of an event.
        is_weighted: whether the ids of any input have weights.
        head: the task of the model.
        fragments: the name of each fragment in spans, and its stored events.
        most_labels: of each label, the largest that a byte holds and the task has; int64 [labels].
    """

    batch_rows: int
    types: Array
    bounds: tuple[int, ...]
    dense_width: int
    is_weighted: bool
    head: AnyHead
    fragments: tuple[tuple[str, int], ...]
    most_labels: Array

    @classmethod
    def of(
        cls, layout: InputLayout, head: AnyHead, batch_rows: int, fragments: Sequence[tuple[str, int]]
    ) -> BatchLayout:
        """The batches of a model's inputs, cut from some fragments."""
        types = [[item.type.buckets or 0, isinstance(item.type, Weighted)] for item in layout.embedded]
        return cls(
            batch_rows,
            np.array(types, np.int64).reshape(-1, 2),
            layout.bounds,
            layout.dense_width,
            layout.is_weighted,
            head,
            tuple(fragments),
            np.array([_most_label(one) for _, one in head.each], np.int64),
        )


def _most_label(head: Head) -> int:
    """The largest label of a task that a byte holds; where one is allowed, so are all below it."""
    bad = np.flatnonzero(head.bad_labels(np.arange(256.0)))
    return int(bad[0]) - 1 if len(bad) else 255


class BatchPacker:
    """Packs the batches of a layout."""

    def __init__(self, layout: BatchLayout) -> None:
        self._layout = layout
        self._numbers = {key: number for number, (key, _) in enumerate(layout.fragments)}

    def __call__(self, batch: Batch) -> Array:
        """The bytes of a batch, uint8."""
        layout, ids, rows = self._layout, batch.ids, batch.rows
        described = np.empty((len(layout.types), packing.FIELDS), np.int64)
        packing.describe(ids.offsets, rows, layout.types, described)
        spans, events = self._spans(batch.spans)
        labels = _small(batch.labels[:rows])
        sections = _Sections.of((rows, labels.itemsize, len(spans), len(events)), layout)
        places = np.empty((len(described), packing.PLACES), np.int64)
        out = np.zeros(packing.place(described, layout.types, rows, sections.inputs, places), np.uint8)
        out[: 8 * _HEADER].view(np.int64)[:] = sections.header
        out[8 * _HEADER : sections.spans].view(np.int64)[:] = described.reshape(-1)
        sections.view(out, sections.spans, spans.size, np.int64)[:] = spans.reshape(-1)
        sections.view(out, sections.dense, rows * layout.dense_width, np.float32)[:] = batch.dense[:rows].reshape(-1)
        sections.view(out, sections.labels, labels.size, labels.dtype)[:] = labels.reshape(-1)
        sections.view(out, sections.events, len(events), np.uint32)[:] = events
        weights = _NO_WEIGHTS if ids.weights is None else ids.weights
        packing.pack(ids.ids, ids.offsets, weights, rows, described, places, layout.types, out)
        return out

    def _spans(self, spans: Sequence[Span]) -> tuple[Array, Array]:
        """The rows of spans, and the stored events of those that are listed."""
        rows = np.zeros((len(spans), _SPAN), np.int64)
        listed: list[Array] = []
        for row, span in zip(rows, spans, strict=True):
            first, count = span.start, span.stop - span.start
            if span.positions is not None and count:
                own = span.positions[span.start : span.stop]
                first = int(own[0])
                if int(own[-1]) - first != count - 1:
                    row[3] = 1
                    listed.append(own)
            row[:3] = self._numbers[span.key], first, count
        return rows, np.concatenate(listed).astype(np.uint32) if listed else np.zeros(0, np.uint32)


def _small(labels: Array) -> Array:
    """Labels (float32) as bytes, if they are the same then."""
    with np.errstate(invalid="ignore"):
        small = labels.astype(np.uint8)
    # Compared as bits, since -0.0 is not 0.0.
    is_same = np.array_equal(small.astype(np.float32).view(np.int32), np.ascontiguousarray(labels).view(np.int32))
    return small if is_same else np.ascontiguousarray(labels)


_NO_WEIGHTS = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Sections:
    """Where the bytes of a batch begin that are of spans, of dense inputs, of labels, of listed events, and of inputs."""

    header: tuple[int, int, int, int]
    spans: int
    dense: int
    labels: int
    events: int
    inputs: int

    @classmethod
    def of(cls, header: tuple[int, int, int, int], layout: BatchLayout) -> _Sections:
        """The sections of a batch; the header must be checked before."""
        rows, label_bytes, spans, events = header
        begin = 8 * (_HEADER + layout.types.shape[0] * packing.FIELDS)
        dense = begin + 8 * _SPAN * spans
        labels = dense + _padded(4 * rows * layout.dense_width)
        listed = labels + _padded(label_bytes * rows * len(layout.most_labels))
        return cls(header, begin, dense, labels, listed, listed + _padded(4 * events))

    @staticmethod
    def view(content: Array, begin: int, count: int, dtype: Any) -> Array:
        """Numbers of the content."""
        found: Array = content[begin : begin + count * np.dtype(dtype).itemsize].view(dtype)
        return found


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8


def unpack_batch(content: Array, layout: BatchLayout) -> Batch:
    """The batch in bytes (uint8, at a multiple of 8), with arrays of its own.

    Raises :class:`DamagedBatches` for bytes that are not those of a batch of the layout; memory is taken for no more than they hold.
    """
    sections, described, count = _head(content, layout)
    rows, label_bytes, spans, events = sections.header
    batch_rows = layout.batch_rows
    ids = np.empty(count, id_dtype(layout.bounds))
    offsets = np.empty((len(described), batch_rows + 1), np.int64)
    id_weights = np.empty(count if layout.is_weighted else 0, np.float32)
    dense = np.empty((batch_rows, layout.dense_width), np.float32)
    labels = np.empty(layout.head.label_shape(batch_rows), np.float32)
    weights = np.empty(batch_rows, np.float32)
    wrong, which = packing.unpack(
        content, described, layout.types, rows, sections.dense, sections.labels, sections.inputs, label_bytes,
        layout.most_labels, ids, offsets, id_weights, dense.reshape(-1).view(np.uint32), labels.reshape(-1), weights,
    )  # fmt: skip
    if wrong:
        _refuse(_RULES[wrong], which)
    if label_bytes > 1:
        _check_labels(labels[:rows], layout.head)
    rows_of_spans = sections.view(content, sections.spans, _SPAN * spans, np.int64).reshape(-1, _SPAN).tolist()
    listed = sections.view(content, sections.events, events, np.uint32)
    bags = IdBatch(ids, offsets, id_weights if layout.is_weighted else None, layout.bounds)
    return Batch(rows, bags, dense, labels, weights, _spans(rows_of_spans, listed, rows, layout))


_RULES = {
    packing.BAD_SIZE: "have the length that its header states",
    packing.BAD_LENGTHS: "have as many ids as their lengths state",
    packing.BAD_ID: "have ids in their buckets",
    packing.BAD_WEIGHT: "have finite weights of ids",
    packing.BAD_NUMBER: "have finite numbers",
    packing.BAD_LABEL: "have labels of its task",
}


def _head(content: Array, layout: BatchLayout) -> tuple[_Sections, Array, int]:
    """The sections, the descriptions of inputs, and their ids; counts are in their ranges, and sections but those of inputs in the bytes."""
    inputs = len(layout.types)
    begin = 8 * (_HEADER + packing.FIELDS * inputs)
    _require(len(content) >= begin, "have a header", len(content))
    rows, label_bytes, spans, events = header = tuple(content[: 8 * _HEADER].view(np.int64).tolist())
    most = min(layout.batch_rows, len(content))
    is_sound = 0 < rows <= most and label_bytes in (1, 4) and 0 < spans <= rows and 0 <= events <= rows
    _require(is_sound, "have a sound header", header)
    sections = _Sections.of(header, layout)
    _require(sections.inputs <= len(content), "have the length that its header states", len(content))
    described = content[8 * _HEADER : begin].view(np.int64).reshape(inputs, packing.FIELDS)
    wrong, count = packing.survey(described, layout.types, rows, len(content))
    _require(wrong < 0, "store its inputs in ways that their types have", wrong)
    return sections, described, count


def _check_labels(labels: Array, head: AnyHead) -> None:
    """Raise :class:`DamagedBatches` for a label that the task does not have; one of several labels may be missing."""
    for t, (name, one) in enumerate(head.each):
        column = labels if labels.ndim == 1 else labels[:, t]
        bad = one.bad_labels(column)
        _require(not (bad & ~np.isnan(column) if name else bad).any(), f"have labels that are {one.allowed}", name)


def _spans(rows: Sequence[Sequence[int]], events: Array, batch_rows: int, layout: BatchLayout) -> tuple[Span, ...]:
    """The spans of a batch, checked: fragments of the file, events of these, as many as the batch has."""
    spans: list[Span] = []
    at = total = 0
    for number, first, count, is_listed in rows:
        is_sound = 0 <= number < len(layout.fragments) and 0 < count <= batch_rows - total and is_listed in (0, 1)
        _require(is_sound, "have sound spans", [number, first, count, is_listed])
        key, stored = layout.fragments[number]
        last, positions = first + count - 1, None
        if is_listed:
            positions = events[at : at + count].astype(np.int64)
            _require(len(positions) == count, "list the events of its spans", len(positions))
            _require(bool((positions[1:] > positions[:-1]).all()), "have the events of a span in order", key)
            first, last = int(positions[0]), int(positions[-1])
            at += count
        _require(first >= 0 and last < stored, "have events of its fragments", f"{key}: {first} to {last}")
        spans.append(Span(key, first, first + count) if positions is None else Span(key, 0, count, positions))
        total += count
    _require(total == batch_rows and at == len(events), "have as many events as its spans", total)
    return tuple(spans)


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        _refuse(rule, value)


def _refuse(rule: str, value: object) -> NoReturn:
    raise DamagedBatches(f"a batch of a file must {rule}", value=value)
