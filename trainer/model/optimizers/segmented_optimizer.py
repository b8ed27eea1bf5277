"""The optimizer of a host that updates its segments of the dense weights: it has the slots of these alone.

Each piece of a weight is updated as a whole weight is. The updates are single operations, which run in the thread that calls them: TensorFlow's own
threads are in the backward pass meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model.optimizers.adam import AdamStep
from trainer.model.optimizers.dense_optimizer import DenseOptimizer
from trainer.model.optimizers.dense_updates import updated
from trainer.model.optimizers.segments import (
    ALIGNED_FLOATS,
    BY_ELEMENT,
    Piece,
    Segment,
    is_aligned,
    offsets_of,
    pieces_of,
)
from transforms.arrays import Array

#: As Keras's Adagrad.
_ADAGRAD_EPSILON = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class _HeldPiece:
    """A piece and its slots, in variables of their own."""

    piece: Piece
    weight: Any
    slots: tuple[Any, ...]


class SegmentedOptimizer:
    """See :class:`~trainer.model.optimizers.dense_optimizer.DenseOptimizer`, whose state it goes on with; segments are updated one by one.

    Args:
        kind: one of :data:`~trainer.model.optimizers.segments.BY_ELEMENT`.
        whole: in its initial state, with the slots of all weights.
        trainable: the variables of the weights in the vector.
        slots: of each of them, the variables of ``whole``, which are given up.
        segments: this host's, cut at multiples of :data:`~trainer.model.optimizers.segments.ALIGNED_FLOATS`.
    """

    def __init__(
        self,
        kind: str,
        whole: DenseOptimizer,
        trainable: Sequence[Any],
        slots: Sequence[Sequence[Any]],
        segments: Sequence[Segment],
    ) -> None:
        assert kind in BY_ELEMENT, "a segment is updated without the others"
        self._kind, self._trainable = kind, tuple(trainable)
        self.updates, self.rate = whole.updates, whole.rate
        place_of = {id(slot): (k, n) for k, group in enumerate(slots) for n, slot in enumerate(group)}
        self._kept = {k: one for k, one in enumerate(whole.variables) if id(one) not in place_of}
        self._places = {k: place_of[id(one)] for k, one in enumerate(whole.variables) if id(one) in place_of}
        self._kinds = whole.kinds()
        sizes = [prod(one.shape) for one in trainable]
        self._offsets = offsets_of(sizes)
        firsts = [_first_of([group[n] for group in slots]) for n in range(len(slots[0]))]
        self._segments = tuple(segments)
        self._pieces = [[self._hold(one, firsts) for one in pieces_of(sizes, segment)] for segment in segments]
        # An array without memory of its own: all slots of a kind begin with one value.
        self._whole: list[Array] | None = [np.broadcast_to(one, (self._offsets[-1],)) for one in firsts]
        self._adam: AdamStep | None = None
        self._rate: Any = None

    def _hold(self, piece: Piece, firsts: Sequence[Array]) -> _HeldPiece:
        assert not piece.start % ALIGNED_FLOATS, "weights are cut at multiples"
        weight = tf.Variable(np.ravel(self._trainable[piece.place].numpy())[piece.of_weight], trainable=False)
        slots = (tf.Variable(tf.fill([piece.stop - piece.start], first), trainable=False) for first in firsts)
        return _HeldPiece(piece, weight, tuple(slots))

    @property
    def slot_bytes(self) -> int:
        """The memory of this host's slots."""
        slots = (slot for held in self._pieces for one in held for slot in one.slots)
        return sum(4 * prod(slot.shape) for slot in slots)

    def begin(self) -> None:
        """Begin an update: it has the rate and the number of this moment."""
        self._whole = None
        self._rate = self.rate.value.read_value()
        if self._kind == "adam":
            self._adam = AdamStep.after(self.updates.value, self._rate)

    def update(self, segment: int, floats: Array) -> None:
        """Replace the gradients of a segment by its weights after the update; from any thread. ``floats``: in memory that a tensor can have."""
        for one in self._pieces[segment]:
            own = floats[one.piece.of_segment]
            self._update(one, borrowed(own))
            own[:] = memoryview(_read(one.weight))

    def _update(self, held: _HeldPiece, gradient: Any) -> None:
        weight = held.weight
        if self._adam is not None:
            mean, squares = held.slots
            self._adam.update(weight, mean, squares, gradient)
            return
        (slot,), before = held.slots, _read(weight)
        if self._kind == "adagrad":
            total = _read(slot) + tf.square(gradient)
            # TensorFlow makes this product of the quotient that Keras has in a graph.
            after = before - self._rate * gradient * tf.math.rsqrt(total + _ADAGRAD_EPSILON)
        else:
            after, total = updated(self._kind, self._rate, before, gradient, [_read(slot)], self.updates)
        assign(slot, total)
        assign(weight, after)

    def segment_slots(self, segment: int) -> list[Array]:
        """The slots of this host's segment, by kind of slot, float32 [floats of the segment]; none of a segment without weights."""
        held, (first, last) = self._pieces[segment], self._segments[segment]
        found = [np.zeros(last - first, np.float32) for _ in (held[0].slots if held else ())]
        for one in held:
            for vector, slot in zip(found, one.slots, strict=True):
                vector[one.piece.of_segment] = slot.numpy()
        return found

    def take_slots(self, whole: Sequence[Array]) -> None:
        """Take the slots of all weights, by kind of slot, float32 [floats of the vector], which :meth:`arrays` has until the next update."""
        self._whole = list(whole)

    def kinds(self) -> list[tuple[tuple[int, ...], str]]:
        """See :meth:`DenseOptimizer.kinds`."""
        return self._kinds

    def arrays(self) -> list[Array]:
        """See :meth:`DenseOptimizer.arrays`: after :meth:`take_slots`, or before the first update."""
        assert self._whole is not None, "slots are gathered first"
        return [self._array(k, self._whole) for k in range(len(self._kinds))]

    def _array(self, number: int, whole: Sequence[Array]) -> Array:
        if number in self._kept:
            return np.array(self._kept[number].value.numpy())
        (place, slot), (shape, _) = self._places[number], self._kinds[number]
        return whole[slot][self._offsets[place] :][: prod(shape)].reshape(shape)

    def load(self, arrays: Sequence[Array]) -> None:
        """See :meth:`DenseOptimizer.load`."""
        self._whole = None
        for number, variable in self._kept.items():
            variable.assign(arrays[number])
        number_of = {place: number for number, place in self._places.items()}
        for one in (one for held in self._pieces for one in held):
            place, cut = one.piece.place, one.piece.of_weight
            one.weight.assign(np.ravel(self._trainable[place].numpy())[cut])
            for n, slot in enumerate(one.slots):
                slot.assign(np.ravel(arrays[number_of[place, n]])[cut])


def borrowed(array: Array) -> Any:
    """A tensor in the memory of an array, which must be aligned, and not be written to while the tensor is used."""
    assert is_aligned(array), "TensorFlow ends the process otherwise"
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _read(variable: Any) -> Any:
    """The value of a variable: in a fifth of the time of its method, which matters for some pieces in each step."""
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)


def assign(variable: Any, tensor: Any) -> None:
    """Set a variable of TensorFlow to a tensor, whose memory it may have from now on: in a fifth of the time of its method."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor)


def _first_of(slots: Sequence[Any]) -> Array:
    """The value of all floats of new slots, float32 []."""
    for one in slots:
        if prod(one.shape):
            first: Array = one.numpy().reshape(-1)[:1].reshape(())
            return first
    return np.zeros((), np.float32)
