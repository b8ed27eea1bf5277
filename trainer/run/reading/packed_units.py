"""A unit as one buffer, as readers send it: ids in as few bytes as their buckets allow, offsets only where lists differ in length.

An Arrow stream of the same columns is twice as long, and to decode it costs more than all else for units of some thousand rows, since
that takes a call per column. A packed unit is decoded by a few calls for all columns. It is a header of int64, a row of int64
per embedded input (:mod:`trainer.run.reading.packing`), and sections that begin at multiples of 8 bytes: for each embedded input its ids,
then the bits of those that are not null, offsets (int32) and weights (float32), as far as there are any; the dense inputs (float32, one
after the other); labels, as bytes if all are small whole numbers, else float64, and the bits of those that are not null; and the stored
events (uint32, counted from the first), unless they follow one another. Numbers are little-endian.

What arrives is checked before anything is made of it: lengths against that of the buffer, offsets, numbers and events. Ids are checked
when they are stacked, as all ids are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trainer.errors import BadFeature
from trainer.model.heads import BINARY
from trainer.model.inputs import InputLayout, TypedInput
from trainer.model.task_heads import AnyHead
from trainer.run.reading import kernels, packing
from trainer.run.reading.columns import DecodedFragment, IdColumns, StoredColumns, refuse_ids, with_labels
from trainer.run.reading.taken_ids import with_own_ids
from trainer.run.reading.unit_requests import UnitRequest
from trainer.wire.flight.error_documents import BadAnswer
from transforms.arrays import Array
from transforms.types import ColumnType, Dense, Ragged, Vector, Weighted

_MAGIC = int.from_bytes(b"HRUNIT\x00\x01", "little")
#: The header: the magic number, the digest of the inputs (4), rows, the bytes of a label, whether labels and events are there with
#: bits and numbers, and the first event.
_HEADER = 10
_DESCRIBED = 5


@dataclass(frozen=True, slots=True, eq=False)
class PackedUnit:
    """The bytes of a unit as they arrived, uint8, not checked."""

    content: Array

    @classmethod
    def of(cls, content: Any) -> PackedUnit:
        """A unit in a buffer; an unaligned one is copied."""
        found = np.frombuffer(content, np.uint8)
        found = found if found.ctypes.data % 8 == 0 else found.copy()
        found.flags.writeable = False  # kernels are compiled for the one or the other
        return cls(found)


#: What a reader delivers: arrays in its own process, or their packed bytes.
Delivered: TypeAlias = StoredColumns | PackedUnit


class UnitDecoder:
    """Decodes units, whichever way they were delivered, with the same result; any number of threads may call it."""

    def __init__(self, layout: InputLayout, head: AnyHead = BINARY) -> None:
        self._layout, self._head = UnitLayout.of(layout, head), head

    def __call__(self, request: UnitRequest, delivered: Delivered) -> DecodedFragment:
        """The events of a unit that have a label.

        Raises :class:`BadLabel` naming the fragment and the event, and :class:`BadAnswer` for bytes that are not those of the unit.
        """
        stored = delivered if isinstance(delivered, StoredColumns) else unpack_unit(delivered, self._layout, request)
        return with_labels(stored, self._head)


@dataclass(frozen=True, slots=True, eq=False)
class UnitLayout:
    """What every unit of a model has.

    Attributes:
        inputs: the embedded inputs.
        dense_width: the numbers of an event.
        digest: the SHA-256 of the names and types of all inputs, int64 [4]; a unit of other inputs is not understood.
        types: what :mod:`trainer.run.reading.packing` must know of each embedded input, int64 [inputs, 4].
        tasks: the number of labels of an event; 0: one label, in arrays of one dimension.
    """

    inputs: tuple[TypedInput, ...]
    dense_width: int
    digest: Array
    types: Array
    tasks: int = 0

    @classmethod
    def of(cls, layout: InputLayout, head: AnyHead = BINARY) -> UnitLayout:
        """The units of a layout."""
        text = "\n".join(f"{item.name}\t{item.type}" for item in (*layout.embedded, *layout.dense))
        tasks = [name for name, _ in head.each if name]
        text += "".join(f"\nlabel {name}" for name in tasks)
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int64)
        types = [
            [item.type.buckets or 0, _size_of(item.type), isinstance(item.type, Weighted), isinstance(item.type, Dense)]
            for item in layout.embedded
        ]
        return cls(layout.embedded, layout.number_width, digest, np.array(types, np.int64).reshape(-1, 4), len(tasks))


def _size_of(column_type: ColumnType) -> int:
    """The ids of every event, 0 for lists."""
    if isinstance(column_type, (Ragged, Weighted)):
        return 0
    return column_type.size if isinstance(column_type, Vector) else 1


def pack_unit(stored: StoredColumns, layout: UnitLayout) -> Array:
    """The bytes of stored columns, uint8.

    Raises :class:`BadFeature` for an id out of its buckets, and for lists whose offsets do not ascend.
    """
    stored = with_own_ids(stored)
    first, stop, positions = stored.first, stored.first + stored.rows, stored.positions
    described = np.zeros((len(layout.types), _DESCRIBED), np.int64)
    wrong = packing.describe(stored.ids.table, first, stop, described)
    begin = first if positions is None else int(positions[0]) if stored.rows else 0
    follow = positions is None or not stored.rows or int(positions[-1]) - begin == stored.rows - 1
    labels = np.ascontiguousarray(stored.labels).reshape(-1)
    small = np.empty(len(labels), np.uint8)
    label_bytes = 1 if packing.narrow_labels(labels, small) else 8
    header = [_MAGIC, *layout.digest.tolist(), stored.rows, label_bytes, stored.present is not None, not follow, begin]  # fmt: skip
    sections = _Sections.of(header, described, layout)
    out = np.empty(sections.total, np.uint8)
    wrong = wrong or packing.pack(stored.ids.table, first, stop, described, sections.places, out)[0]
    if wrong:
        refuse_ids(stored.ids, stored.key)
        raise BadFeature("the ids of a unit must be sound", where=f"fragment {stored.key}")
    out[: 8 * _HEADER].view(np.int64)[:] = header
    out[8 * _HEADER : sections.begin].view(np.int64)[:] = described.reshape(-1)
    sections.dense(out)[:] = stored.dense.T
    sections.labels(out)[:] = small if label_bytes == 1 else labels
    if stored.present is not None:
        sections.present(out)[:] = np.packbits(stored.present.reshape(-1), bitorder="little")
    if positions is not None and not follow:
        sections.events(out)[:] = positions - begin
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Sections:
    """Where everything is in the bytes of a unit.

    Attributes:
        places: int64 [inputs, 4], of :mod:`trainer.run.reading.packing`.
        begin: the end of the descriptions.
        starts: where the dense inputs, labels, their bits, and events are.
        total: the length of the unit.
    """

    rows: int
    width: int
    labels_per_event: int
    label_bytes: int
    places: Array
    begin: int
    starts: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, header: Sequence[int], described: Array, layout: UnitLayout) -> _Sections:
        """The sections of a unit; counts must be checked before."""
        rows, label_bytes, has_nulls, has_events = header[5:9]
        begin = 8 * (_HEADER + described.size)
        places = np.empty((len(described), 4), np.int64)
        at = packing.place(described, layout.types, rows, begin, places)
        starts = []
        labels = rows * max(layout.tasks, 1)
        bits = (labels + 7) // 8
        for size in (4 * rows * layout.dense_width, labels * label_bytes, has_nulls * bits, has_events * 4 * rows):
            starts.append(at)
            at += (size + 7) // 8 * 8
        return cls(rows, layout.dense_width, max(layout.tasks, 1), label_bytes, places, begin, tuple(starts), at)

    def dense(self, content: Array) -> Array:
        """Float32 [width, rows]."""
        return self._at(content, 0, 4 * self.width * self.rows).view(np.float32).reshape(self.width, self.rows)

    def labels(self, content: Array) -> Array:
        """Uint8 or float64 [rows x labels of an event]."""
        return self._at(content, 1, self.label_bytes * self.rows * self.labels_per_event).view(
            np.uint8 if self.label_bytes == 1 else np.float64
        )

    def present(self, content: Array) -> Array:
        """The bits of labels that are not null."""
        return self._at(content, 2, (self.rows * self.labels_per_event + 7) // 8)

    def events(self, content: Array) -> Array:
        """Uint32 [rows], counted from the first event."""
        return self._at(content, 3, 4 * self.rows).view(np.uint32)

    def _at(self, content: Array, number: int, size: int) -> Array:
        return content[self.starts[number] : self.starts[number] + size]


def unpack_unit(unit: PackedUnit, layout: UnitLayout, request: UnitRequest) -> StoredColumns:
    """The columns in the bytes of a unit, as views, all checked but for the bounds of ids.

    Raises :class:`BadAnswer` for bytes that are not those of the requested unit.
    """
    content = unit.content
    header, described = _head(content, layout, request)
    rows, first_event = header[5], header[9]
    wrong = packing.find_unsound(described, layout.types, rows, len(content))
    _require(wrong < 0, request, "store its inputs in ways that their types have", wrong)
    sections = _Sections.of(header, described, layout)
    _require(sections.total == len(content), request, "have the length that its header states", len(content))
    table = np.empty((len(described), kernels.FIELDS), np.int64)
    wrong = packing.point(content, described, sections.places, layout.types, rows, table)
    _require(wrong < 0, request, "have offsets that ascend, and finite weights", wrong)
    dense = sections.dense(content)
    _require(
        kernels.are_finite(dense.reshape(-1).view(np.uint32)), request, "have finite numbers", "NaN or an infinity"
    )
    positions = np.arange(first_event, first_event + rows)
    if header[8]:
        positions = sections.events(content).astype(np.int64) + first_event
        _require(bool((positions[1:] > positions[:-1]).all()), request, "have its events in order", "others")
    end = request.first_row + request.rows
    inside = not rows or (request.first_row <= positions[0] and positions[-1] < end)
    _require(bool(inside), request, "have events that were asked for", first_event)
    if (chosen := request.chosen) is not None:
        _require(
            bool(chosen[positions - request.first_row].all()), request, "have events that were asked for", "others"
        )
    present: Array | None = None
    if header[7]:
        present = np.unpackbits(
            sections.present(content), count=rows * sections.labels_per_event, bitorder="little"
        ).view(bool)
    labels = sections.labels(content).astype(np.float64)
    labels = labels if present is None else np.where(present, labels, 0.0)
    if layout.tasks:
        labels = labels.reshape(rows, layout.tasks)
        present = None if present is None else present.reshape(rows, layout.tasks)
    ids = IdColumns(layout.inputs, table, content)
    return StoredColumns(request.fragment, rows, ids, dense.T, labels, present, positions)


def _head(content: Array, layout: UnitLayout, request: UnitRequest) -> tuple[list[int], Array]:
    """The header and the descriptions; the numbers of the header are in their ranges."""
    inputs = len(layout.inputs)
    begin = 8 * (_HEADER + _DESCRIBED * inputs)
    _require(len(content) >= begin, request, "have the length that its header states", len(content))
    header: list[int] = content[: 8 * _HEADER].view(np.int64).tolist()
    _require(header[0] == _MAGIC, request, "have the format of this release", hex(header[0]))
    _require(header[1:5] == layout.digest.tolist(), request, "have the inputs of the model", "others")
    rows, label_bytes, *flags = header[5:9]
    most = min(request.rows, len(content))
    _require(0 <= rows <= most, request, "have no more events than were asked for", rows)
    in_range = label_bytes in (1, 8) and all(flag in (0, 1) for flag in flags) and 0 <= header[9] <= 2**62
    _require(in_range, request, "have a sound header", header[5:])
    return header, content[8 * _HEADER : begin].view(np.int64).reshape(inputs, _DESCRIBED)


def _require(holds: bool, request: UnitRequest, rule: str, value: object) -> None:
    if not holds:
        raise BadAnswer(
            f"a unit must {rule}", where=f"fragment {request.fragment}, event {request.first_row}", value=value
        )
