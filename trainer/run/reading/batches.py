"""Stack the events of decoded fragments into batches: one compiled call for the ids of all inputs of a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainer.errors import BadFeature
from trainer.model.inputs import InputLayout, TypedInput
from trainer.model.sequence_layout import SequencePlace
from trainer.run.reading import kernels
from trainer.run.reading.columns import DecodedFragment, refuse_ids, take_events
from trainer.run.reading.drawn_batches import DealtEvents, DrawnArrays, DrawnForm, WindowPart, deal_events, draw_arrays
from trainer.run.reading.newest_ids import first_disagreement, newest_first, sequence_lengths
from trainer.run.reading.shuffling import Window
from trainer.tables.batches import IdBatch, id_dtype
from transforms.arrays import Array


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

    ``dense``: float32 [batch_rows, width of the dense inputs, and a length for each sequence]; ``labels``: float32 [batch_rows], or of several
    labels [batch_rows, tasks] with NaN where an event has none; ``weights``: float32 [batch_rows].
    """

    rows: int
    ids: IdBatch
    dense: Array
    labels: Array
    weights: Array
    spans: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        weights = 0 if self.ids.weights is None else self.ids.weights.nbytes
        of_ids = self.ids.ids.nbytes + self.ids.offsets.nbytes + weights
        return of_ids + self.dense.nbytes + self.labels.nbytes + self.weights.nbytes


#: Rows ``[start, stop)`` of a fragment.
BatchPiece = tuple[DecodedFragment, int, int]


@dataclass(slots=True, eq=False)
class _Rows:
    """Rows ``start`` to ``stop`` of an added fragment; ``number`` and ``origin`` as in :meth:`BatchAssembler.add`."""

    number: int
    origin: int
    decoded: DecodedFragment
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def events(self) -> Array:
        """The stored events."""
        positions = self.decoded.positions
        return np.arange(self.start, self.stop) if positions is None else positions[self.start : self.stop]

    @property
    def first_event(self) -> int:
        positions = self.decoded.positions
        return self.start if positions is None else int(positions[self.start])


class _Rest:
    """The rows of a stream that are in no batch yet."""

    def __init__(self) -> None:
        self.parts: deque[_Rows] = deque()
        self.rows = 0

    def add(self, part: _Rows) -> None:
        self.parts.append(part)
        self.rows += part.rows

    def cut(self, rows: int) -> list[_Rows]:
        """Remove the first ``rows``."""
        found = []
        self.rows -= rows
        while rows:
            first = self.parts[0]
            stop = min(first.stop, first.start + rows)
            found.append(_Rows(first.number, first.origin, first.decoded, first.start, stop))
            rows -= stop - first.start
            first.start = stop
            if not first.rows:
                self.parts.popleft()
        return found


#: The batches of a window that are made together hold about as many bytes as the window, at least so many; a larger batch is made alone.
_DRAWN_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A batch that was made with others: the one at ``place`` in ``arrays``."""

    rows: int
    arrays: DrawnArrays
    place: int
    spans: tuple[Span, ...]

    def batch(self, shape: BatchShape) -> Batch:
        """The batch; raises what :func:`assemble` raises for gaps."""
        arrays, place = self.arrays, self.place
        weights = None if arrays.weights is None else arrays.weights[place]
        ids = IdBatch(arrays.ids[place], arrays.offsets[place], weights, shape.bounds)
        return _finished(self.rows, ids, arrays.dense[place], arrays.labels[place], self.spans, shape)


class _OpenWindow:
    """The events of a window in the order of the stream, and those that are in no batch yet in the order in which they are drawn."""

    def __init__(self, window: Window, parts: list[_Rows], shape: BatchShape) -> None:
        self.parts, self._shape = parts, shape
        self._events = np.concatenate([one.events for one in parts])
        self._order = window.order(self._events + np.repeat([one.origin for one in parts], [one.rows for one in parts]))
        self._cuts = window.cuts(len(self._events), shape.batch_rows)
        self._ends = np.cumsum([one.rows for one in parts])
        self._drawn = window.drawn
        self._made: deque[_Made] = deque()

    @property
    def left(self) -> int:
        return max(0, len(self._order) - self._drawn)

    def batch(self, rows: int) -> Batch | None:
        """The next batch, of the window's own cut, which is made with later ones; None if it does not have these ``rows``."""
        if not self._made:
            self._made.extend(self._make())
        if not self._made or self._made[0].rows != rows:
            self._made.clear()
            return None
        self._drawn += rows
        return self._made.popleft().batch(self._shape)

    def _make(self) -> list[_Made]:
        """The next batches as arrays, as many as fit :data:`_DRAWN_BYTES`; none if the window cannot be cut here."""
        first = int(np.searchsorted(self._cuts, self._drawn))
        if first + 1 >= len(self._cuts) or self._cuts[first] != self._drawn:
            return []
        window_bytes, event_bytes = self._sizes()
        together = max(_DRAWN_BYTES, window_bytes) // max(1, event_bytes * self._shape.batch_rows)
        stop = min(len(self._cuts) - 1, first + max(1, together))
        cuts = self._cuts[first : stop + 1]
        dealt = deal_events(self._order[cuts[0] : cuts[-1]], cuts[1:] - cuts[0], self._ends)
        arrays = draw_arrays(
            [WindowPart(one.decoded, one.start, one.stop) for one in self.parts], dealt, self._shape.drawn_form()
        )
        if arrays is None:  # the batch that has what is wrong raises it
            self._cuts = self._cuts[:0]
            return []
        return [
            _Made(size, arrays, k, spans)
            for k, (size, spans) in enumerate(zip(np.diff(cuts).tolist(), self._spans(dealt), strict=True))
        ]

    def _spans(self, dealt: DealtEvents) -> list[tuple[Span, ...]]:
        """The events of each batch."""
        events, keys = self._events[dealt.places], [one.decoded.key for one in self.parts]
        return [
            tuple(
                Span(key, 0, stop - begin, events[begin:stop])
                for key, (begin, stop) in zip(keys, pairwise(cuts), strict=True)
                if begin < stop
            )
            for cuts in dealt.parts.tolist()
        ]

    def _sizes(self) -> tuple[int, int]:
        """The bytes of the window's ids, and of an event in a batch, by the means of the window's fragments."""
        shape, ids, size = self._shape, 0.0, 0.0
        for one in self.parts:
            share = one.rows / max(1, one.decoded.ids.events)
            ids += share * one.decoded.ids.count
            size += share * one.decoded.ids.size_bytes
        numbers = 4 * (shape.number_width + 1) + 8 * len(shape.inputs)
        per_id = np.dtype(id_dtype(shape.bounds)).itemsize + 4 * shape.is_weighted
        return int(size), int(ids / max(1, len(self._events)) * per_id + numbers)

    def draw(self, count: int) -> list[BatchPiece]:
        """The next ``count`` events as pieces, in the order of the stream."""
        chosen = np.sort(self._order[self._drawn : self._drawn + count])
        self._drawn += count
        stops = np.searchsorted(chosen, self._ends)
        pieces = []
        for part, end, start, stop in zip(self.parts, self._ends, np.r_[0, stops[:-1]], stops, strict=True):
            if stop > start:
                rows = chosen[start:stop] - (end - part.rows) + part.start
                pieces.append((take_events(part.decoded, rows), 0, int(stop - start)))
        return pieces


class BatchAssembler:
    """Cuts a stream of decoded units into batches of ``batch_rows`` events, across units.

    Add units in order; :meth:`take` batches while one is :attr:`ready`, or one of fewer events while it :meth:`has` these. After
    :meth:`finish` the last batch may be shorter. With a ``window``, events are drawn from windows (:mod:`trainer.run.reading.shuffling`),
    which must be whole before.
    """

    def __init__(self, layout: InputLayout, batch_rows: int, window: Window | None = None) -> None:
        self._shape = BatchShape.of(layout, batch_rows)
        self._rest = _Rest()
        self._next = window
        self._open: _OpenWindow | None = None
        self._finished = False

    def add(self, decoded: DecodedFragment, number: int = 0, origin: int = 0) -> None:
        """Add events after all others.

        Args:
            number: names them in :meth:`pending`.
            origin: the place of stored event 0 of their fragment in the whole stream, which may be below 0.
        """
        if decoded.rows:
            self._rest.add(_Rows(number, origin, decoded, 0, decoded.rows))

    def finish(self) -> None:
        """The stream ends here: the events that are left become a last, shorter batch."""
        self._finished = True

    @property
    def ready(self) -> bool:
        """Whether :meth:`take` has a batch."""
        return self.has(1 if self._finished else self._shape.batch_rows)

    def has(self, rows: int) -> bool:
        """Whether :meth:`take` has so many events."""
        found = self._rest.rows
        if self._next is not None:
            left = 0 if self._open is None else self._open.left
            found = left + self._drawable(self._next, found)
        return found >= rows

    def _drawable(self, window: Window, rows: int) -> int:
        """How many of ``rows`` events are in whole windows and are not trained already."""
        whole = rows if self._finished else rows // window.rows * window.rows
        return max(0, whole - window.drawn)

    def take(self, rows: int | None = None) -> Batch:
        """The next batch, of ``rows`` events if they are given.

        Raises :class:`BadFeature` for an id outside the buckets of its input, or lists whose offsets do not ascend.
        """
        wanted = self._shape.batch_rows if rows is None else rows
        assert self.ready if rows is None else self.has(rows)
        if self._next is None:
            cut = self._rest.cut(min(wanted, self._rest.rows))
            pieces = [(one.decoded, one.start, one.stop) for one in cut]
        else:
            pieces = []
            while (need := wanted - sum(stop - start for _, start, stop in pieces)) and (window := self._window()):
                if need == wanted and (batch := window.batch(wanted)):
                    return batch
                pieces += window.draw(min(need, window.left))
        return assemble(pieces, self._shape)

    def _window(self) -> _OpenWindow | None:
        """The window to draw from, opened if it is whole; None if there is none."""
        while self._open is None or not self._open.left:
            assert self._next is not None
            rows = min(self._next.rows, self._rest.rows)
            if not rows or not (self._finished or rows == self._next.rows):
                return None
            self._open = _OpenWindow(self._next, self._rest.cut(rows), self._shape)
            self._next = self._next.following()
        return self._open

    def pending(self) -> list[tuple[int, int]]:
        """The numbers of what is to be added again to continue, each with its first such stored event, in order.

        Without shuffling these are the events that are in no batch yet; with it, also the others of their window.
        """
        parts = [*(self._open.parts if self._open is not None and self._open.left else ()), *self._rest.parts]
        found: dict[int, int] = {}
        for one in parts:
            found.setdefault(one.number, one.first_event)
        return list(found.items())


def make_batches(decoded: Iterable[DecodedFragment], layout: InputLayout, *, batch_rows: int) -> Iterator[Batch]:
    """The fragments' events in order, ``batch_rows`` at a time, across fragments; only the last batch may be shorter.

    Raises what :meth:`BatchAssembler.take` raises.
    """
    assembler = BatchAssembler(layout, batch_rows)
    for fragment in decoded:
        assembler.add(fragment)
        while assembler.ready:
            yield assembler.take()
    assembler.finish()
    while assembler.ready:
        yield assembler.take()


@dataclass(frozen=True, slots=True)
class BatchShape:
    """What all batches of a layout have in common; ``batch_rows``: to which they are padded."""

    batch_rows: int
    inputs: tuple[TypedInput, ...]
    number_width: int
    is_weighted: bool
    bounds: tuple[int, ...]
    sequences: tuple[SequencePlace, ...] = ()

    @classmethod
    def of(cls, layout: InputLayout, batch_rows: int) -> BatchShape:
        """The shape of batches of ``batch_rows``."""
        return cls(
            batch_rows, layout.embedded, layout.number_width, layout.is_weighted, layout.bounds, layout.sequences
        )

    def drawn_form(self) -> DrawnForm:
        """What batches that are made together need to know."""
        return DrawnForm(self.batch_rows, self.number_width, np.dtype(id_dtype(self.bounds)), self.is_weighted)


def assemble(pieces: Sequence[BatchPiece], shape: BatchShape) -> Batch:
    """The batch of some rows, at least one, in their order.

    Raises :class:`BadFeature` for an id outside the buckets of its input, for lists whose offsets do not ascend, and for an event with
    more or fewer gaps than ids of their sequence.
    """
    batch_rows, rows = shape.batch_rows, sum(stop - start for _, start, stop in pieces)
    dense = np.zeros((batch_rows, shape.number_width), np.float32)
    labels = np.zeros((batch_rows, *pieces[0][0].labels.shape[1:]) if pieces else batch_rows, np.float32)
    at = 0
    for fragment, start, stop in pieces:
        numbers = fragment.dense[start:stop]
        assert numbers.dtype == np.float32
        if numbers.size:
            row_step, column_step = (step // numbers.itemsize for step in numbers.strides)
            kernels.copy_numbers(numbers.ctypes.data, row_step, column_step, dense[at : at + stop - start])
        labels[at : at + stop - start] = fragment.labels[start:stop]
        at += stop - start
    spans = tuple(Span(fragment.key, start, stop, fragment.positions) for fragment, start, stop in pieces)
    return _finished(rows, _stack(pieces, shape), dense, labels, spans, shape)


def _finished(
    rows: int, ids: IdBatch, dense: Array, labels: Array, spans: tuple[Span, ...], shape: BatchShape
) -> Batch:
    """The batch of stacked arrays: its weights, and its sequences in their order."""
    weights = np.zeros(shape.batch_rows, np.float32)
    weights[:rows] = 1.0
    if shape.sequences:
        _check_gaps(ids, spans, shape)
        dense = np.concatenate([dense, sequence_lengths(ids, shape.sequences)], axis=1)
        ids = newest_first(ids, shape.sequences)
    return Batch(rows, ids, dense, labels, weights, spans)


def _check_gaps(ids: IdBatch, spans: Sequence[Span], shape: BatchShape) -> None:
    """Raise :class:`BadFeature` for the first event with more or fewer gaps than ids of their sequence."""
    found = first_disagreement(ids, shape.sequences)
    if found is None:
        return
    place, row = found
    assert place.gaps is not None
    counts = [int(ids.offsets[f, row + 1] - ids.offsets[f, row]) for f in (place.gaps, place.rows)]
    names = [shape.inputs[f].name for f in (place.gaps, place.rows)]
    for span in spans:
        size = span.stop - span.start
        if row < size:
            break
        row -= size
    event = span.start + row if span.positions is None else int(span.positions[span.start + row])
    raise BadFeature("gaps must be as many as the ids of their sequence", where=f"fragment {span.key}, row {event}, input {names[0]}",
                     value=counts[0], allowed=f"{counts[1]}, as input {names[1]}", next_step="make both inputs from one list")  # fmt: skip


_NO_ROWS = np.zeros(0, np.int64)


def _stack(pieces: Sequence[BatchPiece], shape: BatchShape) -> IdBatch:
    """The ids of all inputs of a batch, checked."""
    ranges = np.zeros((len(pieces), 4), np.int64)
    taken: list[Array] = []
    at = 0
    for p, (fragment, start, stop) in enumerate(pieces):
        if fragment.taken is None:
            ranges[p] = p, fragment.first + start, fragment.first + stop, -1
        else:
            ranges[p] = p, 0, stop - start, at
            taken.append(fragment.taken[start:stop])
            at += stop - start
    rows = np.concatenate(taken) if taken else _NO_ROWS
    columns = pieces[0][0].ids.table[None] if len(pieces) == 1 else np.stack([one.ids.table for one, _, _ in pieces])
    most = kernels.most_ids(ranges, columns, rows)
    offsets = np.empty((len(shape.inputs), shape.batch_rows + 1), np.int64)
    ids = np.empty(max(most, 0), id_dtype(shape.bounds))
    weights = np.empty(max(most, 0) if shape.is_weighted else 0, np.float32)
    wrong, count, _ = (
        (kernels.BAD_OFFSETS, 0, 0) if most < 0 else kernels.stack_ids(ranges, columns, rows, ids, offsets, weights)
    )
    if wrong:
        for fragment, _, _ in pieces:
            refuse_ids(fragment.ids, fragment.key)
        raise BadFeature("the ids of a batch must be sound", where=f"fragment {pieces[0][0].key}", value=wrong)
    return IdBatch(ids[:count], offsets, weights[:count] if shape.is_weighted else None, shape.bounds)
