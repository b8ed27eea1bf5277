"""The dense part of a step as one array in and one array out, for devices that do not have the tables.

An accelerator takes a batch's activations and gives their gradients back. Each array that crosses between host and device costs a
transfer, so everything of an event stands in one row of one array: its activations, dense numbers, labels and weight. The answer of a
replica is one flat array: for each event the gradients of its activations and its logits, then the hidden units that were on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model.dense_step import DensePart, DenseState
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
        """The array that enters, float32 [events of all replicas, columns]; ``labels``: as the loss takes them."""
        rows = len(weights)
        parts = [deep, linear, dense, labels.reshape(rows, prod(self.label_shape)), weights.reshape(rows, 1)]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def run(
        self, state: Mapping[str, Any], packed: Any, *, replicas: int, total_of: Callable[[Any], Any]
    ) -> tuple[Any, DenseState]:
        """The step of one replica: from a float32 tensor [events, columns] to the flat answer, and the state after it.

        ``replicas``, ``total_of``: see :meth:`DensePart.step <trainer.model.dense_step.DensePart.step>`.
        """
        sizes = [self.activation_columns, self.dense_columns, prod(self.label_shape), 1]
        activations, dense, labels, weights = tf.split(packed, sizes, axis=1)
        labels = tf.reshape(labels, [self.events, *self.label_shape])
        found = self.dense.step(state, activations, dense, labels, weights[:, 0], replicas=replicas, total_of=total_of)
        logits = tf.reshape(found.logits, [self.events, self.dense.head.width])
        of_events = tf.concat([found.gradients, logits], axis=1)
        units_on = tf.cast(found.units_on, tf.float32)
        return tf.concat([tf.reshape(of_events, [-1]), units_on], axis=0), found.state

    def unpack(self, answers: Array) -> StepAnswer:
        """The answers of all replicas, float32 [replicas, answer_size]; all count the same units."""
        of_events = answers[:, : self.events * self.answer_columns].reshape(-1, self.answer_columns)
        deep, linear, logits = np.split(of_events, [self.dense.deep_columns, self.activation_columns], axis=1)
        if self.dense.head.width == 1:
            logits = logits[:, 0]
        return StepAnswer(logits, deep, linear, answers[0, self.events * self.answer_columns :] != 0)
