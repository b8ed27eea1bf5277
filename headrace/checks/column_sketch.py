"""What is kept of an input's values over a partition: counts, and distributions that are merged over partitions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checks.id_sketch import IdSketch, merged_ids, sketch_ids
from headrace.checks.number_sketch import NumberSketch, merged_numbers, sketch_numbers
from headrace.checks.statistics import is_number
from transforms.derived_documents import Derivation, Omitted, document_of, whole
from transforms.documents import Part, parse_document
from transforms.errors import DataError
from transforms.types import ColumnType, Ragged, Vector, Weighted

#: The most bytes of a document, without compression.
_MOST_BYTES = 1 << 22
_STRICT = Derivation()
_ZERO_AND_ONE = sketch_numbers(np.array([0.0, 1.0])).bins


@dataclass(frozen=True, slots=True)
class ColumnSketch:
    """The values of an input over events.

    Attributes:
        rows: events.
        empty: null values and empty lists.
        lengths: those of lists; None for one value per event.
        numbers: numbers that are not ids, and weights; None without.
        ids: texts, booleans and ids; None without.
    """

    rows: Annotated[int, whole(0)]
    empty: Annotated[int, whole(0)]
    lengths: Omitted[NumberSketch | None] = None
    numbers: Omitted[NumberSketch | None] = None
    ids: Omitted[IdSketch | None] = None

    def check_read(self, part: Part) -> None:
        """Raise :class:`DataError` for more empty events than events."""
        if self.empty > self.rows:
            raise part.at("empty").refused("at most the rows")

    @property
    def empty_share(self) -> float | None:
        """The share of empty events; None without events."""
        return self.empty / self.rows if self.rows else None

    @property
    def true_share(self) -> float | None:
        """The share of true, or of 1, among values that are nothing but false and true, or 0 and 1; else None. Of a label it is the label rate."""
        ids, numbers = self.ids, self.numbers
        if ids is not None and ids.values and set(ids.top) <= {"True", "False"}:
            return dict(zip(ids.top, ids.top_counts, strict=True)).get("True", 0) / ids.values
        if numbers is None or not numbers.values or not set(numbers.bins) <= {*_ZERO_AND_ONE}:
            return None
        return dict(zip(numbers.bins, numbers.counts, strict=True)).get(_ZERO_AND_ONE[1], 0) / numbers.values

    def to_bytes(self) -> bytes:
        """A compressed document, the inverse of :func:`read_sketch`."""
        return zlib.compress(json.dumps(document_of(self), separators=(",", ":")).encode())


def sketch_column(column: pa.Array, column_type: ColumnType) -> ColumnSketch:
    """The sketch of a column in the Arrow layout of its type."""
    lengths, items, weights, empty = None, column, None, column.null_count
    if isinstance(column_type, Ragged | Weighted):
        sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        lengths, empty, items = sketch_numbers(sizes), int((sizes == 0).sum()), column.flatten()
        if isinstance(column_type, Weighted):
            items, weights = items.flatten()
    elif isinstance(column_type, Vector):
        items = column.flatten()
    are_numbers = (
        weights is None
        and column_type.buckets is None
        and is_number(items.type)
        and not pa.types.is_boolean(items.type)
    )
    measured = items if are_numbers else weights
    has_ids = not are_numbers and not pa.types.is_temporal(items.type)
    return ColumnSketch(
        len(column),
        empty,
        lengths,
        None if measured is None else sketch_numbers(np.asarray(measured.drop_null())),
        sketch_ids(items) if has_ids else None,
    )


def merged_sketches(sketches: Sequence[ColumnSketch]) -> ColumnSketch:
    """The sketch of the events of all."""

    def of(name: str) -> list[NumberSketch]:
        return [found for one in sketches if (found := getattr(one, name)) is not None]

    lengths, numbers = of("lengths"), of("numbers")
    ids = [one.ids for one in sketches if one.ids is not None]
    return ColumnSketch(
        sum(one.rows for one in sketches),
        sum(one.empty for one in sketches),
        merged_numbers(lengths) if lengths else None,
        merged_numbers(numbers) if numbers else None,
        merged_ids(ids) if ids else None,
    )


def read_sketch(content: bytes, where: str) -> ColumnSketch:
    """The sketch of a document. Raises :class:`DataError` for anything else, of whatever size it would become."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(content, _MOST_BYTES)
    except zlib.error as error:
        raise DataError("a sketch must be compressed JSON", where=where, value=str(error)) from None
    if not inflate.eof or inflate.unused_data:
        raise DataError("a sketch must be a whole document", where=where, value=f"{len(content):,} bytes", allowed=f"{_MOST_BYTES:,} bytes of JSON")  # fmt: skip
    return _STRICT.read(ColumnSketch, parse_document(text, where, most_bytes=_MOST_BYTES))
