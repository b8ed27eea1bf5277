"""Writing Arrow columns as a memo file; equal columns give equal bytes in any chunking and slicing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.columns.arrays import compact_array
from transforms.errors import DataError
from transforms.types import DType
from warehouse.files.memo_format.column_kinds import ELEMENTS, Kind, stored_type
from warehouse.files.memo_format.directory import (
    HEAD,
    MAGIC,
    ColumnRecord,
    Directory,
    Segment,
    aligned,
    directory_bytes,
    segment_checksum,
)
from warehouse.files.memo_format.encoding import Codec, Encoding, encode_bytes, encode_integers, most_constants

#: The index of the stored directory among the pieces of a file.
STORED_DIRECTORY = 1
_BITS_OF = {DType.FLOAT32: np.dtype(np.int32), DType.FLOAT64: np.dtype(np.int64)}


def encode_columns(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> tuple[Directory, list[Any]]:
    """The directory and the bytes, in pieces, of a file of these columns of equal length, in order.

    Raises :class:`DataError` for a type that no component has (:mod:`transforms.types`), and for nulls that it does not allow.
    """
    segments = _Segments()
    placed = {name: _add_column(segments, name, compact_array(column)) for name, column in columns.items()}
    rows = len(next(iter(columns.values())))
    return segments.to_file(rows, placed)


class _Segments:
    """Segments in the order of first use; equal ones are stored once."""

    def __init__(self) -> None:
        self._contents: list[Any] = []
        self._encodings: list[Encoding] = []
        self._checksums: list[bytes] = []
        self._known: dict[tuple[Encoding, bytes], list[int]] = {}
        self._lengths: dict[tuple[int, int], tuple[Any, int]] = {}

    def add(self, encoding: Encoding, content: Any) -> int:
        """The index of the segment with these bytes."""
        content = memoryview(content).cast("B") if len(content) else b""
        checksum = segment_checksum(content)
        same = self._known.setdefault((encoding, checksum), [])
        for place in same:
            # Compared as arrays: memoryviews are compared byte by byte.
            if np.array_equal(np.frombuffer(self._contents[place], np.uint8), np.frombuffer(content, np.uint8)):
                return place
        same.append(len(self._contents))
        self._contents.append(content)
        self._encodings.append(encoding)
        self._checksums.append(checksum)
        return same[-1]

    def add_lengths(self, offsets: np.ndarray[Any, np.dtype[Any]], constants: int) -> int:
        """The index of the segment with the lengths; a buffer of offsets that lists share is encoded once."""
        key = (offsets.ctypes.data, len(offsets))
        if key not in self._lengths:
            place = self.add(*encode_integers(np.diff(offsets), constants))
            self._lengths[key] = (offsets, place)  # the reference keeps the address from being reused
        return self._lengths[key][1]

    def to_file(self, rows: int, columns: dict[str, ColumnRecord]) -> tuple[Directory, list[Any]]:
        """The directory and the pieces of the file."""
        end = HEAD.size + directory_bytes(len(self._contents), columns)
        parts: list[Any] = []
        found = []
        for content, checksum, encoding in zip(self._contents, self._checksums, self._encodings, strict=True):
            start = aligned(end)
            found.append(Segment(start, len(content), checksum, encoding))
            parts += [bytes(start - end), content]
            end = start + len(content)
        directory = Directory(rows, end, found, columns)
        stored = directory.to_bytes()
        return directory, [HEAD.pack(MAGIC, len(stored)), stored, *parts]


def _add_column(segments: _Segments, name: str, array: pa.Array) -> ColumnRecord:
    stored = stored_type(array.type)
    if stored is None:
        raise DataError("the type of a memo must be that of a component", where=f"column {name}", value=str(array.type),
                        allowed="the results of transforms.columns.arrow_types.arrow_type")  # fmt: skip
    parts: dict[str, int] = {}
    constants = most_constants(len(array))
    if array.null_count:
        if stored.kind is Kind.VECTOR:
            raise DataError("a vector must not be null", where=f"column {name}", value=f"{array.null_count} nulls")
        valid = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        parts["valid"] = segments.add(Encoding(Codec.RAW, len(array)), valid)
    items = array
    if stored.kind in (Kind.RAGGED, Kind.WEIGHTED):
        if array.null_count:
            array = pc.fill_null(array, pa.scalar([], array.type))
        offsets = np.frombuffer(array.offsets.buffers()[1], np.int32)[: len(array) + 1] if len(array) else _NO_OFFSETS
        parts["lengths"] = segments.add_lengths(offsets, constants)
        items = compact_array(array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    elif stored.kind is Kind.VECTOR:
        items = compact_array(array.values.slice(0, len(array) * stored.size))
    if stored.kind is Kind.WEIGHTED:
        items, weights = items.flatten()
        parts["weights"] = _add_elements(segments, name, weights, DType.FLOAT32, parts, constants)
    parts["values"] = _add_elements(segments, name, items, stored.element, parts, constants, stored.kind is Kind.DENSE)
    return ColumnRecord(stored.kind, ELEMENTS.index(stored.element), stored.size, **parts)


_NO_OFFSETS = np.zeros(1, np.int32)


def _add_elements(
    segments: _Segments,
    name: str,
    items: pa.Array,
    element: DType,
    parts: dict[str, int],
    constants: int,
    dense: bool = False,
) -> int:
    """The index of the elements' segment; that of text goes into ``parts``. ``constants``: see :func:`encode_integers`."""
    if items.null_count and not dense:
        raise DataError("an item of a list must not be null", where=f"column {name}", value=f"{items.null_count} nulls")
    if element is DType.STRING:
        return _add_text(segments, items, parts, constants)
    if element is DType.BOOL:
        bits = pc.fill_null(items, False) if items.null_count else items
        packed = np.packbits(bits.to_numpy(zero_copy_only=False), bitorder="little")
        return segments.add(Encoding(Codec.RAW, len(items)), packed)
    if element in _BITS_OF:
        floats = pc.fill_null(items, pa.scalar(0.0, items.type)) if items.null_count else items
        bits = floats.to_numpy(zero_copy_only=True).view(_BITS_OF[element])
        return segments.add(*encode_integers(bits, constants))
    whole = items.cast(pa.int64()) if element is DType.TIMESTAMP else items
    if whole.null_count:
        whole = pc.fill_null(whole, pc.min(whole) if whole.null_count < len(whole) else 0)
    return segments.add(*encode_integers(whole.to_numpy(zero_copy_only=True), constants))


def _add_text(segments: _Segments, items: pa.Array, parts: dict[str, int], constants: int) -> int:
    if items.null_count:
        items = pc.fill_null(items, "")
    if not len(items):
        parts["text"] = segments.add(*encode_bytes(b""))
        return segments.add(*encode_integers(np.zeros(0, np.int32)))
    _, places, content = items.buffers()
    offsets = np.frombuffer(places, np.int32)[items.offset : items.offset + len(items) + 1]
    text = memoryview(content or b"")[int(offsets[0]) : int(offsets[-1])]
    parts["text"] = segments.add(*encode_bytes(text))
    return segments.add_lengths(offsets, constants)
