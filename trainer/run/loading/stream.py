"""The batches of a share of a stream, read in this process. Loads neither TensorFlow nor Beam."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from trainer.errors import BadFeature
from trainer.model.inputs import InputLayout
from trainer.run.loading.batch_order import BatchOrder, FragmentRows
from trainer.run.loading.fragment_pool import FragmentPool, LoadFragment
from trainer.run.loading.options import ReadAhead, Share
from trainer.run.reading.batches import Batch, BatchPiece, BatchShape, assemble
from trainer.run.reading.columns import DecodedFragment, take_events
from trainer.tables.batches import IdBatch, id_dtype
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class BatchForm:
    """How events become batches.

    Attributes:
        layout: the inputs.
        batch_rows: the events of a batch.
        tasks: the labels of an event if a model has several; 0: labels have one dimension.
        pads: a batch with fewer events is filled up with events of weight 0, which have no ids.
    """

    layout: InputLayout
    batch_rows: int
    tasks: int = 0
    pads: bool = False

    def assemble(self, pieces: list[BatchPiece], rows: int) -> Batch:
        """The batch of ``rows`` events; raises what :func:`~trainer.run.reading.batches.assemble` raises."""
        if not rows:
            return self._empty()
        return assemble(pieces, BatchShape.of(self.layout, self.batch_rows if self.pads else rows))

    def _empty(self) -> Batch:
        """A batch without events."""
        rows, layout = self.batch_rows if self.pads else 0, self.layout
        offsets = np.zeros((len(layout.embedded), rows + 1), np.int64)
        weights = np.zeros(0, np.float32) if layout.is_weighted else None
        ids = IdBatch(np.zeros(0, id_dtype(layout.bounds)), offsets, weights, layout.bounds)
        shape = (rows, self.tasks) if self.tasks else (rows,)
        dense, labels = np.zeros((rows, layout.dense_width), np.float32), np.zeros(shape, np.float32)
        return Batch(0, ids, dense, labels, np.zeros(rows, np.float32), ())


@dataclass(frozen=True, slots=True)
class BatchStream:
    """The batches of one share.

    Attributes:
        order: of all batches.
        first: the batches of the stream that were handed out before; shares take turns from there on.
        share: the share.
        equal_steps: all ranks have equally many steps: one without an event has a batch without events.
    """

    order: BatchOrder
    first: int
    share: Share
    equal_steps: bool = False

    @property
    def steps(self) -> int:
        """The batches of the share."""
        return self.share.steps(self.order.batches - self.first, equal=self.equal_steps)

    def read(self, load: LoadFragment, form: BatchForm, ahead: ReadAhead, *, done: int = 0) -> Iterator[Batch]:
        """The batches of the share after the first ``done``.

        Raises what ``load`` raises, and :class:`~trainer.errors.BadFeature` for fragments that do not have the events of the plan. Deterministic.
        """
        numbers = [self.first + self.share.batch(step) for step in range(done, self.steps)]
        needs = (self.order.fragments(one) if one < self.order.batches else () for one in numbers)
        turns = self.share.world * self.share.workers
        rounds = self.order.lanes // math.gcd(self.order.lanes, turns)  # the lanes that the share has batches of
        with FragmentPool(load, needs, ahead, rounds=rounds) as pool, closing(iter(pool)) as held:  # type: ignore[type-var]
            for number, fragments in zip(numbers, held, strict=True):
                events = self.order.events(number) if number < self.order.batches else []
                yield form.assemble(_pieces(events, fragments), sum(len(one.rows) for one in events))


def _pieces(events: list[FragmentRows], fragments: Mapping[int, DecodedFragment]) -> list[BatchPiece]:
    return [_piece(fragments[one.fragment], one.rows) for one in events]


def _piece(fragment: DecodedFragment, rows: Array) -> BatchPiece:
    """Stored events of a fragment; contiguous ones are not copied. Raises :class:`BadFeature` for events that it does not have."""
    at = rows
    if fragment.positions is not None:
        at = np.minimum(np.searchsorted(fragment.positions, rows), max(fragment.rows - 1, 0))
    first, last = int(at[0]), int(at[-1])
    if last >= fragment.rows or (fragment.positions is not None and (fragment.positions[at] != rows).any()):
        raise BadFeature("a fragment must have the events that have a label in the plan, got others", where=f"fragment {fragment.key}",
                         value=f"{fragment.rows:,} events", next_step="read the table version of the plan")  # fmt: skip
    if last - first + 1 == len(rows):
        return fragment, first, last + 1
    return take_events(fragment, at), 0, len(rows)
