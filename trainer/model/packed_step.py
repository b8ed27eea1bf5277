"""The dense part of a step as one array in and one array out, for devices that do not have the tables.

An accelerator takes a batch's activations and gives their gradients back. Each array that crosses between host and device costs a
transfer, so everything of an event stands in one row of one array: its activations, dense numbers, labels and weight. The answer of a
replica is one flat array: for each event the gradients of its activations and its logits, then the hidden units that were on.

Where several slices train one model, a step has two programs. The first one's answer has, in place of the hidden units, the replica's segment of the
dense gradients, which are summed over its slice: the host puts the segments together, and adds those of the other hosts. The second one takes
the sum, a segment for each replica, and updates the dense weights. So each gradient crosses once each way, on however many devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model.dense_step import DensePart, DenseResult, DenseState
from trainer.model.inputs import InputLayout
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What a step on all replicas gives to the host.

    Attributes:
        logits: before the step, without dropout, float32 [events] or [events, outputs].
        deep, linear: the loss's gradients by the activations of the deep part and of the linear part, float32 [events, columns].
        units_on: see :meth:`~trainer.model.dense_model.DenseModel.units_on`, bool [units].
    """

    logits: Array
    deep: Array
    linear: Array
    units_on: Array


@dataclass(frozen=True, slots=True)
class PackedStep:
    """The columns of the two arrays of a step.

    Attributes:
        dense: the dense part.
        events: of a replica.
        linear_columns: of the activations, those of the linear part; they stand after the deep part's.
        dense_columns: of the dense numbers.
    """

    dense: DensePart
    events: int
    linear_columns: int
    dense_columns: int

    @classmethod
    def of(cls, dense: DensePart, layout: InputLayout, events: int) -> PackedStep:
        """The step of a model on ``events`` of a replica."""
        linear = len(layout.features) * dense.head.width if dense.config.linear else 0
        return cls(dense, events, linear, layout.dense_width)

    @property
    def activation_columns(self) -> int:
        """Of the deep part and of the linear part."""
        return self.dense.deep_columns + self.linear_columns

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Of one event's labels: empty for one label."""
        return tuple(self.dense.head.label_shape(1))[1:]

    @property
    def columns(self) -> int:
        """Of the array that enters: activations, dense numbers, labels, and the weight of the event."""
        return self.activation_columns + self.dense_columns + prod(self.label_shape) + 1

    @property
    def answer_columns(self) -> int:
        """Of each event in the array that leaves: gradients and logits."""
        return self.activation_columns + self.dense.head.width

    @property
    def answer_size(self) -> int:
        """The floats of the array that leaves a replica."""
        return self.events * self.answer_columns + self.dense.model.counted_units

    def pack(self, deep: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> Array:
        """The array that enters, float32 [events of all replicas, columns]; ``labels``: as the loss takes them.

        Events of weight 0 are added so that each replica has as many.
        """
        rows = len(weights)
        parts = [deep, linear, dense, labels.reshape(rows, prod(self.label_shape)), weights.reshape(rows, 1)]
        packed = np.zeros((-(-rows // self.events) * self.events, self.columns), np.float32)
        np.concatenate(parts, axis=1, out=packed[:rows])
        return packed

    def run(self, step: Callable[..., DenseResult], state: Mapping[str, Any], packed: Any) -> tuple[Any, DenseState]:
        """The step of one replica: from a float32 tensor [events, columns] to the flat answer, and the state after it.

        ``step``: from the state, activations, dense numbers, labels and weights, as :meth:`DensePart.step <trainer.model.dense_step.DensePart.step>`.
        """
        found = step(state, *self._split(packed))
        units_on = tf.cast(found.units_on, tf.float32)
        return tf.concat([self._of_events(found.gradients, found.logits), units_on], axis=0), found.state

    def differentiate(
        self, state: Mapping[str, Any], packed: Any, replica: Any, *, replicas: int, total_of: Callable[[Any], Any]
    ) -> tuple[Any, DenseState]:
        """The first program of a step of several slices: the flat answer of the replica of this number, and the state with its random state after it."""
        found = self.dense.differentiate(state, *self._split(packed), replicas=replicas, total_of=total_of)
        flat = tf.concat([tf.zeros([0]), *(tf.reshape(one, [-1]) for one in found.by_weights)], axis=0)
        segment = self.segment_floats(replicas)
        flat = tf.pad(flat, [[0, replicas * segment - self.gradient_floats]])
        own = tf.reshape(flat, [replicas, segment])[replica]
        answer = tf.concat([self._of_events(found.by_activations, found.logits), own], axis=0)
        return answer, {**state, "changing": found.changing}

    def update(
        self, state: Mapping[str, Any], segment: Any, replica: Any, *, replicas: int, total_of: Callable[[Any], Any]
    ) -> DenseState:
        """The second program: the state after one update by the gradients of all hosts, of which each replica is given its segment, [1, floats]."""
        is_own = tf.equal(tf.range(replicas), tf.cast(replica, tf.int32))
        placed = tf.where(is_own[:, None], segment, tf.zeros_like(segment))
        flat = tf.reshape(total_of(placed), [-1])[: self.gradient_floats]
        parts = tf.split(flat, self.dense.model.sizes)
        return self.dense.update(
            state, [tf.reshape(one, weight.shape) for one, weight in zip(parts, state["weights"], strict=True)]
        )

    @property
    def gradient_floats(self) -> int:
        """Of the gradients of all dense weights."""
        return sum(self.dense.model.sizes)

    def segment_floats(self, replicas: int) -> int:
        """The gradients that cross between the host and each of so many replicas."""
        return -(-self.gradient_floats // replicas)

    def _split(self, packed: Any) -> tuple[Any, ...]:
        """The activations, dense numbers, labels and weights of a replica's events."""
        sizes = [self.activation_columns, self.dense_columns, prod(self.label_shape), 1]
        activations, dense, labels, weights = tf.split(packed, sizes, axis=1)
        return activations, dense, tf.reshape(labels, [self.events, *self.label_shape]), weights[:, 0]

    def _of_events(self, gradients: Any, logits: Any) -> Any:
        """The part of a flat answer that is of events."""
        logits = tf.reshape(logits, [self.events, self.dense.head.width])
        return tf.reshape(tf.concat([gradients, logits], axis=1), [-1])

    def unpack(self, answers: Array, rows: int) -> StepAnswer:
        """The answers of all replicas, float32 [replicas, …], on ``rows`` events; all count the same units."""
        of_events = answers[:, : self.events * self.answer_columns].reshape(-1, self.answer_columns)[:rows]
        deep, linear, logits = np.split(of_events, [self.dense.deep_columns, self.activation_columns], axis=1)
        if self.dense.head.width == 1:
            logits = logits[:, 0]
        return StepAnswer(logits, deep, linear, answers[0, self.events * self.answer_columns :] != 0)

    def dense_gradients(self, answers: Array) -> Array:
        """The gradients of all dense weights, flat, in the answers of :meth:`differentiate`."""
        segments = answers[:, self.events * self.answer_columns :]
        return np.ascontiguousarray(segments).reshape(-1)[: self.gradient_floats]

    def pack_gradients(self, gradients: Array, replicas: int) -> Array:
        """What :meth:`update` takes on all replicas, float32 [replicas, floats]."""
        packed = np.zeros((replicas, self.segment_floats(replicas)), np.float32)
        packed.reshape(-1)[: len(gradients)] = gradients
        return packed
