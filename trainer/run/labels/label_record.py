"""The label record: the labels as trained, saved beside the counters so that a changed label is found. Pure.

A record has a label for every stored event of each fragment, NaN where there is none. It belongs to the counts of the same
commit: an event that was trained has the label with which it was trained last, any other has that with which it will be.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from transforms.arrays import Array

#: Labels of a fragment with more distinct ones are stored as they are.
_MOST_DISTINCT = 256
#: The labels in which the distinct ones are looked for first.
_SAMPLE_ROWS = 1 << 14
_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class CompactLabels:
    """The labels of a fragment's stored events. Labels are equal if their bits are.

    Attributes:
        rows: the number of events.
        distinct: the distinct labels as uint32, ascending; empty if there are more than 256 or no event.
        codes: uint8; without ``distinct`` the labels in little endian, else the place of each in ``distinct``: no byte for one
            distinct label, a bit per event for two, a byte per event for more.
    """

    rows: int
    distinct: Array
    codes: Array

    @classmethod
    def of(cls, labels: Array) -> CompactLabels:
        """The labels float32 [rows], as they are."""
        bits = label_bits(labels)
        found = _coded(bits)
        if found is None:
            return cls(len(bits), np.zeros(0, np.uint32), bits.astype("<u4").view(np.uint8))
        distinct, codes = found
        packed = np.packbits(codes.astype(bool)) if len(distinct) == 2 else codes.astype(np.uint8)
        return cls(len(bits), distinct, packed[:0] if len(distinct) == 1 else packed)

    def decode(self) -> Array:
        """The labels, float32 [rows]."""
        match len(self.distinct):
            case 0:
                bits = self.codes.view("<u4").astype(np.uint32)
            case 1:
                bits = np.full(self.rows, self.distinct[0])
            case 2:
                bits = self.distinct[np.unpackbits(self.codes, count=self.rows)]
            case _:
                bits = self.distinct[self.codes]
        labels: Array = bits.view(np.float32)
        return labels


def label_bits(labels: Array) -> Array:
    """The bits of labels, uint32, by which they are compared."""
    bits: Array = np.ascontiguousarray(labels, np.float32).view(np.uint32)
    return bits


def _coded(bits: Array) -> tuple[Array, Array] | None:
    """The distinct values, ascending, and the place of each value in them; None for too many or no values."""
    for sample in (bits[:_SAMPLE_ROWS], bits):
        distinct = np.unique(sample)
        if not 0 < len(distinct) <= _MOST_DISTINCT:
            return None
        codes = np.minimum(np.searchsorted(distinct, bits), len(distinct) - 1)
        if (distinct[codes] == bits).all():
            return distinct, codes
    raise AssertionError("all values are among those of all values")


@dataclass(frozen=True, eq=False)
class LabelRecord:
    """The labels as trained, by fragment key.

    ``trained_again``: by how much the counts of events have been lowered in all, since their labels changed.
    """

    fragments: Mapping[str, CompactLabels] = field(default_factory=dict)
    trained_again: int = 0

    @cached_property
    def packed(self) -> Array:
        """The compressed labels of all fragments, uint8."""
        compress = zlib.compressobj(1)
        parts = [
            compress.compress(part.tobytes())
            for one in self.fragments.values()
            for part in (one.distinct.astype("<u4"), one.codes)
        ]
        return np.frombuffer(b"".join((*parts, compress.flush())), np.uint8)

    def to_document(self) -> dict[str, Any]:
        """A JSON object without ``packed``, the inverse of :meth:`read`."""
        shapes = [[key, one.rows, len(one.distinct)] for key, one in self.fragments.items()]
        return {"fragments": shapes, "trained_again": self.trained_again}

    @classmethod
    def read(cls, document: DocumentField, packed: Array) -> LabelRecord:
        """The record at ``document``. Raises :class:`TornCheckpoint` unless both parts are valid and match."""
        shapes = [_read_shape(item) for item in document.at("fragments").items()]
        if len({key for key, _, _ in shapes}) != len(shapes):
            raise TornCheckpoint("the fragments of a label record must be distinct", where=document.place)
        content = _unpacked(packed, sum(map(_stored_bytes, shapes)), document.place)
        fragments, at = {}, 0
        for shape in shapes:
            stop = at + _stored_bytes(shape)
            fragments[shape[0]] = _read_labels(shape, content[at:stop], document.place)
            at = stop
        return cls(fragments, document.at("trained_again").count())


#: The key of a fragment, its rows, and the number of its distinct labels.
_Shape = tuple[str, int, int]


def _read_shape(item: DocumentField) -> _Shape:
    parts = item.items()
    if len(parts) != 3:
        raise TornCheckpoint("a fragment of a label record must be three values, got another list", where=item.place)
    rows = parts[1].count(most=_MOST_ROWS)
    return parts[0].text(), rows, parts[2].count(most=min(rows, _MOST_DISTINCT))


def _code_bytes(rows: int, distinct: int) -> int:
    match distinct:
        case 0:
            return 4 * rows
        case 1:
            return 0
        case 2:
            return -(-rows // 8)
        case _:
            return rows


def _stored_bytes(shape: _Shape) -> int:
    _, rows, distinct = shape
    return 4 * distinct + _code_bytes(rows, distinct)


def _unpacked(packed: Array, size_bytes: int, place: str) -> Array:
    """The decompressed bytes. It takes no more memory than they have, whatever the sizes that a document states."""
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise TornCheckpoint("the labels of a record must be bytes", where=place, value=f"{packed.dtype} {packed.shape}",
                             allowed="uint8, one dimension")  # fmt: skip
    decompress = zlib.decompressobj()
    try:
        content = decompress.decompress(packed.tobytes(), size_bytes + 1)
    except zlib.error as error:
        raise TornCheckpoint("the labels of a record must be compressed bytes", where=place, value=str(error)) from None
    if len(content) != size_bytes or not decompress.eof or decompress.unused_data:
        raise TornCheckpoint("the labels of a record must have the length that its fragments state, got another",
                             where=place, value=len(content), allowed=f"{size_bytes} bytes")  # fmt: skip
    return np.frombuffer(content, np.uint8)


def _read_labels(shape: _Shape, content: Array, place: str) -> CompactLabels:
    key, rows, count = shape
    distinct, codes = content[: 4 * count].view("<u4").astype(np.uint32), content[4 * count :]
    ascending = bool((distinct[1:] > distinct[:-1]).all())
    # The bits after the last event of packed bits must be 0, so that equal labels have equal bytes.
    last = int(codes[-1]) & (0xFF >> (rows % 8)) if count == 2 and rows % 8 else 0
    if not ascending or last or (count > 2 and int(codes.max()) >= count):
        raise TornCheckpoint(
            "the codes of a label record must be indexes of its ascending labels, got other numbers",
            where=f"{place}, fragment {key[:200]}",
        )
    return CompactLabels(rows, distinct, codes)
