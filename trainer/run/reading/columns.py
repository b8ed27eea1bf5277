"""The columns of one fragment as numpy views over Arrow buffers, ready to be stacked into batches.

An event whose label is null is skipped and counted; a null id is the empty bag; a null number is 0. A number or weight
that is NaN or infinite in float32 is an error with its row, since it would spread to every weight: handle it in the
expression (``if_else(x == x, x, 0.0)`` for NaN, ``clip`` for infinities). Ids and their lists are checked when they are stacked.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.errors import BadFeature, BadLabel
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import InputLayout, TypedInput, width_of
from trainer.model.task_heads import AnyHead
from trainer.run.reading import kernels
from transforms.arrays import Array
from transforms.columns.arrays import one_array
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import Numbers, RaggedItems, Vectors, WeightedItems, cast_to_layout, from_arrow
from transforms.errors import DataError
from transforms.types import ColumnType, Dense, DType, Ragged

LABEL_COLUMN = "__label__"
#: The column of each row's stored event, if a reader leaves events out.
ROW_COLUMN = "__row__"


@dataclass(frozen=True, slots=True, eq=False)
class HeldIds:
    """The ids of one input: how they are stored (:mod:`trainer.run.reading.kernels`), and their arrays.

    Attributes:
        size: the ids of every event; 0 for lists.
        ids: int64.
        offsets: of lists, int32 [events + 1].
        weights: float32 per id.
        valid: the bits of events that are not null, from ``first_bit`` on, uint8.
    """

    kind: int
    size: int
    events: int
    ids: Array
    offsets: Array | None = None
    weights: Array | None = None
    valid: Array | None = None
    first_bit: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class IdColumns:
    """Where the ids of every embedded input are in memory.

    Attributes:
        inputs: the inputs, in the order of the layout.
        table: int64 [inputs, :data:`~trainer.run.reading.kernels.FIELDS`], for the kernels.
        owner: what holds the memory that the addresses in ``table`` point into.
    """

    inputs: tuple[TypedInput, ...]
    table: Array
    owner: object

    @property
    def events(self) -> int:
        """The events of the fragment; 0 without inputs."""
        return int(self.table[0, kernels.EVENTS]) if len(self.table) else 0

    @property
    def count(self) -> int:
        """The ids of all inputs."""
        return int(self.table[:, kernels.COUNT].sum())

    @property
    def size_bytes(self) -> int:
        """The bytes of all ids, offsets and weights."""
        table = self.table
        per_id = table[:, kernels.WIDTH] + 4 * (table[:, kernels.WEIGHTS] != 0)
        per_event = 4 * (table[:, kernels.OFFSETS] != 0)
        return int((table[:, kernels.COUNT] * per_id + table[:, kernels.EVENTS] * per_event).sum())


@dataclass(frozen=True, slots=True, eq=False)
class DecodedFragment:
    """One fragment in memory, or some of its events.

    Attributes:
        ids: the embedded inputs of all rows of the fragment.
        dense: float32 [rows, width of the dense inputs].
        labels: float32 [rows], or of several labels [rows, tasks] with NaN where an event has no label of a task.
        first: the row in ``ids`` of event 0.
        taken: the row in ``ids`` of each event, int64; None if event i is row ``first + i``.
        positions: the stored event of each row, int64, ascending; None if row i is event i.
        unlabelled: the number of events left out because their label is null.
    """

    key: str
    rows: int
    ids: IdColumns
    dense: Array
    labels: Array
    taken: Array | None = None
    positions: Array | None = None
    unlabelled: int = 0
    first: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumns:
    """The columns of a fragment, or of a range of its rows, as arrays; labels are not checked yet.

    Attributes:
        ids: the embedded inputs of the fragment.
        dense: float32 [rows, width of the dense inputs].
        labels: float64 [rows], or [rows, tasks] of several labels; 0 if missing.
        present: bool of its shape, whether a label is not null; None if all are.
        positions: the stored event of each row, int64, ascending; None if row i is event i.
        first: the row in ``ids`` of the first row.
        taken: the row in ``ids`` of each row, int64, ascending; None if row i is ``first + i``.
    """

    key: str
    rows: int
    ids: IdColumns
    dense: Array
    labels: Array
    present: Array | None = None
    positions: Array | None = None
    first: int = 0
    taken: Array | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of all arrays; of a part, about its share of the ids."""
        others = (self.dense, self.labels, self.present, self.positions)
        share = self.rows / max(self.ids.events, 1)
        return int(self.ids.size_bytes * share) + sum(one.nbytes for one in others if one is not None)

    def part(self, first: int, stop: int) -> StoredColumns:
        """Rows ``first`` to ``stop``, without a copy."""
        present = None if self.present is None else self.present[first:stop]
        return replace(
            self,
            rows=stop - first,
            dense=self.dense[first:stop],
            labels=self.labels[first:stop],
            present=None if present is None or present.all() else present,
            positions=np.arange(first, stop) if self.positions is None else self.positions[first:stop],
            first=self.first + first,
        )

    def take(self, rows: Array) -> StoredColumns:
        """The given rows of a :meth:`part`, int64, ascending; ids are not copied."""
        if len(rows) == self.rows:
            return self
        present = None if self.present is None else self.present[rows]
        return replace(
            self,
            rows=len(rows),
            dense=self.dense[rows],
            labels=self.labels[rows],
            present=None if present is None or present.all() else present,
            positions=rows if self.positions is None else self.positions[rows],
            taken=rows + self.first,
        )


def decode(
    table: pa.Table, layout: InputLayout, key: str, *, labelled: bool = True, head: AnyHead = BINARY
) -> DecodedFragment:
    """A fragment's columns as arrays; ``key`` names the fragment in errors. Without ``labelled``, labels are zeros.

    Events whose label is null are left out.

    Raises :class:`BadFeature` or :class:`BadLabel` naming the fragment, the input and the row.
    """
    return with_labels(read_columns(table, layout, key, labelled=labelled), head)


def read_columns(table: pa.Table, layout: InputLayout, key: str, *, labelled: bool = True) -> StoredColumns:
    """A fragment's columns as arrays; without ``labelled``, labels are zeros.

    Raises :class:`BadFeature`, and :class:`BadLabel` for a column of labels that are not numbers.
    """
    ids = _id_columns(table, layout, key)
    dense = np.empty((table.num_rows, layout.number_width), np.float32, order="F")  # written column by column
    at = 0
    for item in layout.dense:
        width = width_of(item.type)
        dense[:, at : at + width] = _numbers(_column(table, item, key), item, key).reshape(-1, width)
        at += width
    labels, present = stored_labels(table, key) if labelled else (np.zeros(table.num_rows), None)
    return StoredColumns(key, table.num_rows, ids, dense, labels, present, _positions(table))


def with_labels(stored: StoredColumns, head: AnyHead = BINARY) -> DecodedFragment:
    """The events of stored columns that have a label, of several labels any.

    Raises :class:`BadLabel` naming the fragment and the event for a label that ``head`` does not accept.
    """
    labels = _checked_labels(stored.labels, stored.present, stored.positions, stored.key, head)
    whole = DecodedFragment(
        stored.key,
        stored.rows,
        stored.ids,
        stored.dense,
        labels,
        taken=stored.taken,
        positions=stored.positions,
        first=stored.first,
    )
    if stored.present is None:
        return whole
    kept = take_events(whole, np.flatnonzero(has_label(stored.present)))
    return replace(kept, unlabelled=whole.rows - kept.rows)


def has_label(present: Array) -> Array:
    """Whether each event has any label, bool [rows], from [rows] or [rows, tasks]."""
    return present if present.ndim == 1 else np.asarray(present.any(axis=1))


def _positions(table: pa.Table) -> Array | None:
    if ROW_COLUMN not in table.column_names:
        return None
    positions: Array = table.column(ROW_COLUMN).to_numpy().astype(np.int64, copy=False)
    return positions


def take_events(decoded: DecodedFragment, rows: Array) -> DecodedFragment:
    """The fragment with the given rows only, int64, ascending; all rows return it unchanged."""
    if len(rows) == decoded.rows:
        return decoded
    return replace(
        decoded,
        rows=len(rows),
        dense=decoded.dense[rows],
        labels=decoded.labels[rows],
        taken=rows + decoded.first if decoded.taken is None else decoded.taken[rows],
        positions=rows if decoded.positions is None else decoded.positions[rows],
    )


_Stored = Numbers | RaggedItems | WeightedItems | Vectors


def _column(table: pa.Table, item: TypedInput, key: str) -> _Stored:
    return _column_of(_conformed(_array(table, item, key), item, key), item)


def _array(table: pa.Table, item: TypedInput, key: str) -> pa.Array:
    """The column of an input as one array."""
    at = table.schema.get_field_index(item.name)
    if at < 0:
        raise BadFeature("a fragment must have a column for every input", where=f"{_where(key)}, input {item.name}",
                         allowed=", ".join(table.column_names))  # fmt: skip
    return one_array(table.column(at))


def _conformed(array: pa.Array, item: TypedInput, key: str) -> pa.Array:
    """An array in the Arrow layout of an input's type."""
    try:
        return cast_to_layout(array, item.type)
    except DataError as error:
        raise BadFeature("a fragment's column must have its input's type",
                         where=f"{_where(key)}, input {item.name}", value=str(array.type),
                         allowed=str(item.type)) from error  # fmt: skip


def _column_of(array: pa.Array, item: TypedInput) -> _Stored:
    column = from_arrow(array, item.type)
    assert isinstance(column, (Numbers, RaggedItems, WeightedItems, Vectors))  # inputs of text do not pass lay_out
    return column


def refuse_ids(columns: IdColumns, key: str) -> None:
    """Raise :class:`BadFeature` for the first input with offsets that do not ascend, or an id out of its buckets."""
    for item, described in zip(columns.inputs, columns.table, strict=True):
        held = held_ids(described)
        where, ids, offsets = _where(key), held.ids, held.offsets
        if offsets is not None and (offsets[0] < 0 or offsets[-1] > len(ids) or (offsets[1:] < offsets[:-1]).any()):
            raise BadFeature("the offsets of an input's lists must ascend to its number of ids",
                             where=f"{where}, input {item.name}", value=int(offsets[-1]), allowed=str(len(ids)),
                             next_step="write the column again with a program that checks its offsets")  # fmt: skip
        buckets = item.type.buckets or 0
        outside = (ids < 0) | (ids >= buckets)
        if held.valid is not None:
            bits = np.unpackbits(held.valid, bitorder="little")[held.first_bit :]
            outside &= bits[: len(ids)] == 1
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            row = at // held.size if offsets is None else int(np.searchsorted(offsets, at, side="right")) - 1
            raise BadFeature("an id must lie in its buckets", where=f"{where}, row {row}, input {item.name}",
                             value=int(ids[at]), allowed=f"[0, {buckets})",
                             next_step="hash the input with .hash_buckets(n)")  # fmt: skip


def held_ids(described: Array) -> HeldIds:
    """The arrays of an input at the addresses in its row of the table, which their owner must outlive."""
    kind, ids, offsets, valid, weights, size, events, count, _, first_bit, width = described.tolist()
    return HeldIds(
        kind,
        size,
        events,
        _view(ids, count, np.dtype(np.int64 if width == 8 else f"u{width}")),
        _view(offsets, events + 1, np.dtype(np.int32)) if offsets else None,
        _view(weights, count, np.dtype(np.float32)) if weights else None,
        valid=_view(valid, (first_bit + events + 7) // 8, np.dtype(np.uint8)) if valid else None,
        first_bit=first_bit,
    )


def _view(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    if not count:
        return np.zeros(0, dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    view: Array = np.frombuffer(memory, np.uint8).view(dtype)  # type: ignore[call-overload, unused-ignore]
    return view


def _id_columns(table: pa.Table, layout: InputLayout, key: str) -> IdColumns:
    """Describe the ids of all embedded inputs for the kernels that stack them."""
    described = np.zeros((len(layout.embedded), kernels.FIELDS), np.int64)
    kept: list[object] = []
    for f, item in enumerate(layout.embedded):
        array = _array(table, item, key)
        row = _plain_ids(array, item.type)
        if row is None:
            held = _other_ids(array, item, key)
            arrays = (held.ids, held.offsets, held.valid, held.weights)
            addresses = (0 if one is None else one.ctypes.data for one in arrays)
            row = (held.kind, *addresses, held.size, held.events, len(held.ids), held.first_bit)
            kept.append(held)
        else:
            kept.append(array)
        *of_arrays, events, count, first_bit = row
        if events != table.num_rows:
            raise BadFeature("an input must have the rows of its fragment", where=f"{_where(key)}, input {item.name}",
                             value=events, allowed=str(table.num_rows))  # fmt: skip
        described[f] = (*of_arrays, events, count, item.type.buckets or 0, first_bit, 8)
    return IdColumns(layout.embedded, described, kept)


_INT64, _INT64_LISTS = (arrow_type(one) for one in (Dense(DType.INT64), Ragged(DType.INT64)))


def _plain_ids(array: pa.Array, column_type: ColumnType) -> tuple[int, ...] | None:
    """The fields from the kind to the bit of the first event, without the bound, of ids that are stored as their type is; else None.

    What memos hold is: this takes a few microseconds, and the general way some dozens, which are most of the cost of a small fragment.
    """
    events = len(array)
    if isinstance(column_type, Dense) and array.type == _INT64:
        bitmap, content = array.buffers()
        if content is None or content.size < 8 * (array.offset + events):
            return None
        ids = content.address + 8 * array.offset
        if not array.null_count:
            return kernels.FIXED, ids, 0, 0, 0, 1, events, events, 0
        if bitmap.size < (array.offset + events + 7) // 8:
            return None
        return kernels.NULLABLE, ids, 0, bitmap.address, 0, 1, events, events, array.offset
    if isinstance(column_type, Ragged) and array.type == _INT64_LISTS and events and not array.null_count:
        offsets, values = array.buffers()[1], array.values
        content = values.buffers()[1]
        if content is None or values.null_count or offsets.size < 4 * (array.offset + events + 1):
            return None
        first, count = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + events]].tolist()
        if first or not 0 <= count <= len(values) or content.size < 8 * (values.offset + count):
            return None  # a slice counts from its own first id, so that errors name its rows
        ids = content.address + 8 * values.offset
        return kernels.LISTS, ids, offsets.address + 4 * array.offset, 0, 0, 0, events, count, 0
    return None


def _other_ids(array: pa.Array, item: TypedInput, key: str) -> HeldIds:
    array = _conformed(array, item, key)
    found = _nullable_ids(array) if isinstance(item.type, Dense) and array.null_count else None
    return found or _id_arrays(_column_of(array, item), item, key)


def _nullable_ids(array: pa.Array) -> HeldIds:
    """One id per event, or none: the ids and the bitmap as they are."""
    bitmap, content = array.buffers()
    ids = np.frombuffer(content, np.int64)[array.offset : array.offset + len(array)]
    return HeldIds(kernels.NULLABLE, 1, len(array), ids, valid=np.frombuffer(bitmap, np.uint8), first_bit=array.offset)


def _id_arrays(column: _Stored, item: TypedInput, key: str) -> HeldIds:
    """How an input's ids are stored, and their arrays."""
    if isinstance(column, Numbers):
        return HeldIds(kernels.FIXED, 1, len(column), np.ascontiguousarray(column.values))
    assert isinstance(column.items, Numbers)
    ids = np.ascontiguousarray(column.items.values)
    if isinstance(column, Vectors):
        return HeldIds(kernels.FIXED, column.size, len(column), ids)
    offsets = np.ascontiguousarray(column.offsets.astype(np.int32, copy=False))
    weights = None
    if isinstance(column, WeightedItems):
        weights = np.ascontiguousarray(_weights(column, offsets, item, key))
    return HeldIds(kernels.LISTS, 0, len(column), ids, offsets, weights)


def _weights(column: WeightedItems, offsets: Array, item: TypedInput, key: str) -> Array:
    if not np.isfinite(column.weights).all():
        at = int(np.flatnonzero(~np.isfinite(column.weights))[0])
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise BadFeature("the weight of an id must be finite", where=f"{_where(key)}, row {row}, input {item.name}",
                         value=float(column.weights[at]), allowed="a finite float32",
                         next_step="replace it in the expression: x.ids().weighted_by(x.weights().fill_nan(0).clip(low, high))")  # fmt: skip
    return column.weights


def _numbers(column: _Stored, item: TypedInput, key: str) -> Array:
    """The numbers of a dense input as float32, which may be the stored ones."""
    numbers = column.items if isinstance(column, Vectors) else column
    assert isinstance(numbers, Numbers)  # lists without buckets do not pass lay_out
    with np.errstate(over="ignore"):
        values: Array = np.ascontiguousarray(numbers.values.astype(np.float32, copy=numbers.valid is not None))
    if numbers.valid is not None:
        values[~numbers.valid] = 0.0
    if not kernels.are_finite(values.view(np.uint32)):
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        row = at // width_of(item.type)
        raise BadFeature("a dense input must be finite", where=f"{_where(key)}, row {row}, input {item.name}",
                         value=float(numbers.values[at]), allowed="a finite float32, or null",
                         next_step="replace it in the expression: .fill_nan(0.0) replaces NaN, .clip(low, high) infinities")  # fmt: skip
    return values


def _checked_labels(values: Array, present: Array | None, positions: Array | None, key: str, head: AnyHead) -> Array:
    if values.ndim == 1 and isinstance(head, Head):
        return _checked_column(values, present, positions, key, head)
    columns = []
    for t, (name, one) in enumerate(head.each):
        known = None if present is None else present[:, t]
        column = _checked_column(values[:, t], known, positions, f"{key}, label {name}", one)
        columns.append(column if known is None else np.where(known, column, np.float32("nan")))
    return np.stack(columns, axis=1)


def _checked_column(values: Array, present: Array | None, positions: Array | None, key: str, head: Head) -> Array:
    bad = head.bad_labels(values) if present is None else head.bad_labels(values) & present
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        row = at if positions is None else int(positions[at])
        raise BadLabel(f"a {head.task} label must be {head.allowed}", where=f"{_where(key)}, row {row}",
                       value=values[at].item(), allowed=f"{head.allowed}; null where it has not come yet",
                       next_step=head.remedy)  # fmt: skip
    labels: Array = values.astype(np.float32)
    return labels


def stored_labels(table: pa.Table, key: str) -> tuple[Array, Array | None]:
    """Labels as float64, 0 for null, and whether each is not null; [rows, tasks] for a struct of several labels."""
    if LABEL_COLUMN not in table.column_names:
        raise BadFeature("a fragment must have a label", where=_where(key), allowed=", ".join(table.column_names))
    stored = table.column(LABEL_COLUMN)
    if pa.types.is_struct(stored.type):
        return _several_labels(one_array(stored), key)
    return _one_label(stored, key)


def _several_labels(stored: pa.StructArray, key: str) -> tuple[Array, Array | None]:
    found = [
        _one_label(column, f"{key}, label {field.name}")
        for column, field in zip(stored.flatten(), stored.type, strict=True)
    ]
    values = np.stack([values for values, _ in found], axis=1)
    if all(present is None for _, present in found):
        return values, None
    masks = [np.ones(len(stored), bool) if one is None else one for _, one in found]
    return values, np.stack(masks, axis=1)


def _one_label(stored: pa.Array | pa.ChunkedArray, key: str) -> tuple[Array, Array | None]:
    if pa.types.is_boolean(stored.type):
        column = from_arrow(stored, Dense(DType.BOOL))
    elif pa.types.is_integer(stored.type) or pa.types.is_floating(stored.type):
        column = from_arrow(stored.cast(pa.float64(), safe=False), Dense(DType.FLOAT64))
    else:
        raise BadLabel("a label must be a bool or a number", where=_where(key), value=str(stored.type))
    assert isinstance(column, Numbers)
    values: Array = column.values.astype(np.float64)
    if column.valid is None:
        return values, None
    return np.where(column.valid, values, 0.0), column.valid


def _where(key: str) -> str:
    return f"fragment {key}"
