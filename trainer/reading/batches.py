"""Stack the events of decoded fragments into batches: one compiled call for the ids of all inputs of a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.embedding.engine import IdBatch
from trainer.model.inputs import InputLayout
from trainer.reading import kernels
from trainer.reading.columns import DecodedFragment, refuse_ids

Array = np.ndarray[Any, np.dtype[Any]]


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


_Piece = tuple[DecodedFragment, int, int]


@dataclass(slots=True, eq=False)
class _Rows:
    """The rows of an added fragment from ``start`` on that are in no batch yet."""

    unit: int
    decoded: DecodedFragment
    start: int = 0

    @property
    def rows(self) -> int:
        return self.decoded.rows - self.start

    @property
    def first_event(self) -> int:
        positions = self.decoded.positions
        return self.start if positions is None else int(positions[self.start])


class BatchAssembler:
    """Cuts a stream of decoded units into batches of ``batch_rows`` events, across units.

    Add units in order; :meth:`take` batches while one is :meth:`ready`. After :meth:`finish` the last batch may be shorter.
    """

    def __init__(self, layout: InputLayout, batch_rows: int) -> None:
        self._layout, self._batch_rows = layout, batch_rows
        self._queue: deque[_Rows] = deque()
        self._rows = 0
        self._finished = False

    def add(self, decoded: DecodedFragment, unit: int = 0) -> None:
        """Add the events of a unit after all others."""
        if decoded.rows:
            self._queue.append(_Rows(unit, decoded))
            self._rows += decoded.rows

    def finish(self) -> None:
        """The stream ends here: the events that are left become a last, shorter batch."""
        self._finished = True

    @property
    def ready(self) -> bool:
        """Whether :meth:`take` has a batch."""
        return self._rows >= (1 if self._finished else self._batch_rows)

    def take(self) -> Batch:
        """The next batch.

        Raises :class:`BadFeature` for an id outside the buckets of its input, or lists whose offsets do not ascend.
        """
        assert self.ready
        pieces: list[_Piece] = []
        filled = 0
        while filled < self._batch_rows and self._queue:
            first = self._queue[0]
            stop = min(first.decoded.rows, first.start + self._batch_rows - filled)
            pieces.append((first.decoded, first.start, stop))
            filled += stop - first.start
            first.start = stop
            if not first.rows:
                self._queue.popleft()
        self._rows -= filled
        return _assemble(pieces, filled, self._batch_rows, self._layout)

    def pending(self) -> list[tuple[int, int]]:
        """The units with events that are in no batch yet, each with the first such stored event, in order."""
        return [(one.unit, one.first_event) for one in self._queue]


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


def _assemble(pieces: Sequence[_Piece], rows: int, batch_rows: int, layout: InputLayout) -> Batch:
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
    return Batch(rows, _stack(pieces, batch_rows, layout), dense, labels, weights, spans)


_NO_ROWS = np.zeros(0, np.int64)


def _stack(pieces: Sequence[_Piece], batch_rows: int, layout: InputLayout) -> IdBatch:
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
    offsets = np.empty((len(layout.embedded), batch_rows + 1), np.int64)
    ids = np.empty(max(most, 0), np.int64)
    weights = np.empty(max(most, 0) if layout.is_weighted else 0, np.float32)
    wrong, count, _ = (
        (kernels.BAD_OFFSETS, 0, 0) if most < 0 else kernels.stack_ids(ranges, columns, rows, ids, offsets, weights)
    )
    if wrong:
        for fragment, _, _ in pieces:
            refuse_ids(fragment.ids, fragment.key)
    return IdBatch(ids[:count], offsets, weights[:count] if layout.is_weighted else None, layout.bounds)
