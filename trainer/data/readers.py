"""Read the columns of a read solution into batches: numpy views over Arrow buffers, no Python loop over rows.

A fragment is decoded whole, in a background thread, one or a few ahead of training and across epoch boundaries.
Batches are slices; events keep their stored order. Loads neither TensorFlow nor Beam.

An event whose label is null is skipped and counted; a null id is the empty bag; a null number is 0. A number or weight
that is NaN or infinite in float32 is an error with its row, since it would spread to every weight: handle it in the
expression (``if_else(x == x, x, 0.0)`` for NaN, ``clip`` for infinities).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from trainer.embedding.engine import IdBatch
from trainer.errors import BadFeature, BadLabel
from trainer.model.heads import BINARY, Head
from trainer.model.inputs import InputLayout, TypedInput, width_of
from transforms.columns.columns import Numbers, RaggedItems, Vectors, WeightedItems, cast_to_layout, from_arrow
from transforms.errors import DataError
from transforms.types import Dense, DType
from warehouse.solution.parts import SolutionFragment

Array = np.ndarray[Any, np.dtype[Any]]

#: Reads one fragment: a column for every input by its name, and the label; row i is event i of the fragment.
ReadFragment = Callable[[SolutionFragment], pa.Table]

LABEL_COLUMN = "__label__"
#: The column of each row's stored event, if a reader leaves events out.
ROW_COLUMN = "__row__"


@dataclass(frozen=True, slots=True)
class FragmentRef:
    """A fragment and its place: number ``position`` of its partition. Content may repeat, places do not."""

    partition: str
    position: int
    fragment: SolutionFragment

    @property
    def key(self) -> str:
        """The name of the place: ``partition#position``."""
        return f"{self.partition}#{self.position}"


@dataclass(frozen=True, slots=True)
class DecodedFragment:
    """One fragment in memory.

    Attributes:
        ids: of each embedded input, int64, within its buckets.
        offsets: of each embedded input, int64 [rows + 1], ascending from 0 to the number of ids.
        weights: of each embedded input, float32 per id, or None.
        dense: float32 [rows, width of the dense inputs].
        labels: float32 [rows].
        positions: the stored event of each row, int64, ascending; None if row i is event i.
        unlabelled: the number of events left out because their label is null.
    """

    key: str
    rows: int
    ids: tuple[Array, ...]
    offsets: tuple[Array, ...]
    weights: tuple[Array | None, ...]
    dense: Array
    labels: Array
    positions: Array | None = None
    unlabelled: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Events ``start`` to ``stop`` of the fragment at ``key``; of its ``positions``, if given."""

    key: str
    start: int
    stop: int
    positions: Array | None = None

    @property
    def events(self) -> slice | Array:
        """The stored events, as an index."""
        return slice(self.start, self.stop) if self.positions is None else self.positions[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one optimizer step, padded to a fixed shape: ``rows`` events, then empty bags and zeros of weight 0.

    ``dense``: float32 [batch_rows, width of the dense inputs]; ``labels`` and ``weights``: float32 [batch_rows].
    """

    rows: int
    ids: IdBatch
    dense: Array
    labels: Array
    weights: Array
    spans: tuple[Span, ...]


def fragment_stream(
    fragments: Sequence[FragmentRef], read: ReadFragment, layout: InputLayout, *, ahead: int, head: Head = BINARY
) -> Iterator[DecodedFragment]:
    """Decode the fragments in order; a thread reads up to ``ahead`` of them in advance.

    An error of reading or decoding is raised in place of its fragment. Closing the iterator ends the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fragment-reader") as pool:
        remaining = iter(fragments)
        waiting: deque[Future[DecodedFragment]] = deque()

        def submit(count: int) -> None:
            waiting.extend(pool.submit(_load, ref, read, layout, head) for ref in islice(remaining, count))

        submit(ahead)
        try:
            while waiting:
                decoded = waiting.popleft().result()
                submit(1)
                yield decoded
        finally:
            for future in waiting:
                future.cancel()


def _load(ref: FragmentRef, read: ReadFragment, layout: InputLayout, head: Head) -> DecodedFragment:
    table = read(ref.fragment)
    if table.num_rows != ref.fragment.live_rows:
        raise BadFeature("a fragment must have the rows that the read solution states", where=_where(ref.key),
                         value=table.num_rows, allowed=str(ref.fragment.live_rows))  # fmt: skip
    if ROW_COLUMN not in table.column_names and table.num_rows != ref.fragment.rows:
        raise BadFeature("a reader that leaves deleted events out must return a column of event numbers",
                         where=_where(ref.key), allowed=f"a column {ROW_COLUMN}",
                         next_step="read_fragment(..., rows=True)")  # fmt: skip
    return decode(table, layout, ref.key, head=head)


def decode(
    table: pa.Table, layout: InputLayout, key: str, *, labelled: bool = True, head: Head = BINARY
) -> DecodedFragment:
    """A fragment's columns as arrays; ``key`` names the fragment in errors. Without ``labelled``, labels are zeros.

    Events whose label is null are left out.

    Raises :class:`BadFeature` or :class:`BadLabel` naming the fragment, the input and the row.
    """
    bags = [_bags(_column(table, item, key), item, key) for item in layout.embedded]
    dense = np.zeros((table.num_rows, layout.dense_width), np.float32)
    at = 0
    for item in layout.dense:
        width = width_of(item.type)
        dense[:, at : at + width] = _numbers(_column(table, item, key), item, key).reshape(-1, width)
        at += width
    labels, present = label_values(table, key, head) if labelled else (np.zeros(table.num_rows, np.float32), None)
    ids, offsets = tuple(bag[0] for bag in bags), tuple(bag[1] for bag in bags)
    weights = tuple(bag[2] for bag in bags)
    whole = DecodedFragment(key, table.num_rows, ids, offsets, weights, dense, labels, _positions(table))
    if present is None:
        return whole
    kept = take_events(whole, np.flatnonzero(present))
    return replace(kept, unlabelled=whole.rows - kept.rows)


def _positions(table: pa.Table) -> Array | None:
    if ROW_COLUMN not in table.column_names:
        return None
    positions: Array = table.column(ROW_COLUMN).to_numpy().astype(np.int64)
    return positions


def take_events(decoded: DecodedFragment, rows: Array) -> DecodedFragment:
    """The fragment with the given rows only, int64, ascending; all rows return it unchanged."""
    if len(rows) == decoded.rows:
        return decoded
    positions = rows if decoded.positions is None else decoded.positions[rows]
    taken = [_take_bags(ids, offsets, rows) for ids, offsets in zip(decoded.ids, decoded.offsets, strict=True)]
    return DecodedFragment(
        key=decoded.key,
        rows=len(rows),
        ids=tuple(ids[at] for ids, (at, _) in zip(decoded.ids, taken, strict=True)),
        offsets=tuple(offsets for _, offsets in taken),
        weights=tuple(None if w is None else w[at] for w, (at, _) in zip(decoded.weights, taken, strict=True)),
        dense=decoded.dense[rows],
        labels=decoded.labels[rows],
        positions=positions,
        unlabelled=decoded.unlabelled,
    )


def _take_bags(ids: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    """The mask of the ids in the bags of ``rows``, and the offsets of these bags."""
    lengths = np.diff(offsets)
    kept = np.zeros(len(lengths), bool)
    kept[rows] = True
    return np.repeat(kept, lengths), np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int64)


_Stored = Numbers | RaggedItems | WeightedItems | Vectors


def _column(table: pa.Table, item: TypedInput, key: str) -> _Stored:
    if item.name not in table.column_names:
        raise BadFeature("a fragment must have a column for every input", where=f"{_where(key)}, input {item.name}",
                         allowed=", ".join(table.column_names))  # fmt: skip
    try:
        column = from_arrow(cast_to_layout(table.column(item.name), item.type), item.type)
    except DataError as error:
        raise BadFeature("a fragment's column must have its input's type",
                         where=f"{_where(key)}, input {item.name}", value=str(table.column(item.name).type),
                         allowed=str(item.type)) from error  # fmt: skip
    assert isinstance(column, (Numbers, RaggedItems, WeightedItems, Vectors))  # inputs of text do not pass lay_out
    return column


def _bags(column: _Stored, item: TypedInput, key: str) -> tuple[Array, Array, Array | None]:
    ids, offsets = _ids_and_offsets(column)
    if offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
        raise BadFeature("the offsets of an input's lists must ascend to its number of ids",
                         where=f"{_where(key)}, input {item.name}", value=int(offsets[-1]), allowed=str(len(ids)),
                         next_step="write the column again with a program that checks its offsets")  # fmt: skip
    buckets = item.type.buckets or 0
    if len(ids) and (ids.min() < 0 or ids.max() >= buckets):
        at = int(np.flatnonzero((ids < 0) | (ids >= buckets))[0])
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise BadFeature("an id must lie in its buckets", where=f"{_where(key)}, row {row}, input {item.name}",
                         value=int(ids[at]), allowed=f"[0, {buckets})",
                         next_step="hash the input with .hash_buckets(n)")  # fmt: skip
    return ids, offsets, _weights(column, offsets, item, key) if isinstance(column, WeightedItems) else None


def _ids_and_offsets(column: _Stored) -> tuple[Array, Array]:
    if isinstance(column, Numbers):
        if column.valid is None:
            return column.values, np.arange(len(column) + 1, dtype=np.int64)
        return column.values[column.valid], np.concatenate([[0], np.cumsum(column.valid)]).astype(np.int64)
    assert isinstance(column.items, Numbers)
    if isinstance(column, Vectors):
        return column.items.values, np.arange(len(column) + 1, dtype=np.int64) * column.size
    return column.items.values, column.offsets.astype(np.int64)


def _weights(column: WeightedItems, offsets: Array, item: TypedInput, key: str) -> Array:
    if not np.isfinite(column.weights).all():
        at = int(np.flatnonzero(~np.isfinite(column.weights))[0])
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise BadFeature("the weight of an id must be finite", where=f"{_where(key)}, row {row}, input {item.name}",
                         value=float(column.weights[at]), allowed="a finite float32",
                         next_step="replace it in the expression: x.ids().weighted_by(x.weights().fill_nan(0).clip(low, high))")  # fmt: skip
    return column.weights


def _numbers(column: _Stored, item: TypedInput, key: str) -> Array:
    """The numbers of a dense input as float32."""
    numbers = column.items if isinstance(column, Vectors) else column
    assert isinstance(numbers, Numbers)  # lists without buckets do not pass lay_out
    with np.errstate(over="ignore"):
        values: Array = numbers.values.astype(np.float32)
    if numbers.valid is not None:
        values[~numbers.valid] = 0.0
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        row = at // width_of(item.type)
        raise BadFeature("a dense input must be finite", where=f"{_where(key)}, row {row}, input {item.name}",
                         value=float(numbers.values[at]), allowed="a finite float32, or null",
                         next_step="replace it in the expression: .fill_nan(0.0) replaces NaN, .clip(low, high) infinities")  # fmt: skip
    return values


def label_values(table: pa.Table, key: str, head: Head = BINARY) -> tuple[Array, Array | None]:
    """The labels, float32 [rows], 0 if missing, and whether each exists, bool [rows] or None if all do.

    Raises :class:`BadLabel` with the row for a label that ``head`` does not accept.
    """
    values, present = stored_labels(table, key)
    bad = head.bad_labels(values) if present is None else head.bad_labels(values) & present
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise BadLabel(f"a {head.task} label must be {head.allowed}", where=f"{_where(key)}, row {row}",
                       value=values[row].item(), allowed=f"{head.allowed}; null where it has not come yet",
                       next_step=head.remedy)  # fmt: skip
    return values.astype(np.float32), present


def stored_labels(table: pa.Table, key: str) -> tuple[Array, Array | None]:
    """Labels as float64, 0 for null, and whether each is not null."""
    if LABEL_COLUMN not in table.column_names:
        raise BadFeature("a fragment must have a label", where=_where(key), allowed=", ".join(table.column_names))
    stored = table.column(LABEL_COLUMN)
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


def make_batches(decoded: Iterable[DecodedFragment], layout: InputLayout, *, batch_rows: int) -> Iterator[Batch]:
    """The fragments' events in order, ``batch_rows`` at a time, across fragments; only the last batch may be shorter."""
    pieces: list[tuple[DecodedFragment, int, int]] = []
    filled = 0
    for fragment in decoded:
        start = 0
        while start < fragment.rows:
            stop = min(fragment.rows, start + batch_rows - filled)
            pieces.append((fragment, start, stop))
            filled += stop - start
            start = stop
            if filled == batch_rows:
                yield _assemble(pieces, filled, batch_rows, layout)
                pieces, filled = [], 0
    if filled:
        yield _assemble(pieces, filled, batch_rows, layout)


def _assemble(
    pieces: Sequence[tuple[DecodedFragment, int, int]], rows: int, batch_rows: int, layout: InputLayout
) -> Batch:
    dense = np.zeros((batch_rows, layout.dense_width), np.float32)
    labels = np.zeros(batch_rows, np.float32)
    at = 0
    for fragment, start, stop in pieces:
        dense[at : at + stop - start] = fragment.dense[start:stop]
        labels[at : at + stop - start] = fragment.labels[start:stop]
        at += stop - start
    weights = np.zeros(batch_rows, np.float32)
    weights[:rows] = 1.0
    spans = tuple(Span(fragment.key, start, stop, fragment.positions) for fragment, start, stop in pieces)
    return Batch(rows, _assemble_ids(pieces, batch_rows, layout), dense, labels, weights, spans)


def _assemble_ids(pieces: Sequence[tuple[DecodedFragment, int, int]], batch_rows: int, layout: InputLayout) -> IdBatch:
    features, is_weighted = len(layout.embedded), layout.is_weighted
    offsets = np.zeros((features, batch_rows + 1), np.int64)
    parts: list[Array] = [np.zeros(0, np.int64)]
    weights: list[Array] = [np.zeros(0, np.float32)]
    total = 0
    for f in range(features):
        offsets[f, 0] = total
        at = 1
        for fragment, start, stop in pieces:
            ends = fragment.offsets[f]
            parts.append(fragment.ids[f][ends[start] : ends[stop]])
            if is_weighted:
                given = fragment.weights[f]
                weights.append(
                    np.ones(len(parts[-1]), np.float32) if given is None else given[ends[start] : ends[stop]]
                )
            offsets[f, at : at + stop - start] = ends[start + 1 : stop + 1] + (total - ends[start])
            total += int(ends[stop] - ends[start])
            at += stop - start
        offsets[f, at:] = total
    return IdBatch(np.concatenate(parts), offsets, np.concatenate(weights) if is_weighted else None, layout.bounds)
