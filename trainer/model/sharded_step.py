"""The dense part of a step whose update is shared out over the devices of a slice: each has the slots of its segment of the weights alone.

Gradients are summed by a reduce-scatter along both sides of a mesh; a device updates its segment, and segments are gathered along both sides again. So as many
bytes cross as for sums, slots take 1/devices of the memory, and an update that part of the time. Weight-update sharding: Xu et al.,
arXiv:2004.13336; in two legs: Kumar et al., MLSys 2021. Sums are in the order of the legs: equal to those of one sum but for the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from trainer.model.dense_step import DensePart, DenseResult, DenseState
from trainer.model.optimizers.dense_updates import updated
from trainer.model.optimizers.optimizer_slots import SLOTS, step_rate
from trainer.planning.meshes import Groups, SliceMesh
from transforms.arrays import Array

#: Dense weights of so many bytes are updated in segments, as those of hosts (``trainer/job/host/dense/sharded_updates.py``); not measured on a TPU.
SHARDED_BYTES = 32 << 20
_FLOAT_BYTES = 4


class Collectives(Protocol):
    """What devices exchange inside a step."""

    def replica(self) -> Any:
        """The number of this device, an integer tensor."""

    def total(self, value: Any) -> Any:
        """The sum of a tensor over all devices."""

    def reduce_scatter(self, flat: Any, groups: Groups) -> Any:
        """The part of this device, by its place in its group, of the sum over the group: float32 [floats / devices of a group]."""

    def all_gather(self, part: Any, groups: Groups) -> Any:
        """The parts of the devices of this device's group, one after another."""


def pays(optimizer: str, weights: Sequence[Any], devices: int, sharded_bytes: int = SHARDED_BYTES) -> bool:
    """Whether devices update their segments of the weights in place of all of them: weights of enough bytes, by an optimizer with slots."""
    size = _FLOAT_BYTES * sum(prod(one.shape) for one in weights)
    return devices > 1 and bool(SLOTS[optimizer]) and size >= max(sharded_bytes, 1)


@dataclass(frozen=True)
class ShardedStep:
    """The step of ``dense`` on the devices of ``mesh``. Its state has slots as segments: by kind of slot, float32 [floats of a segment]."""

    dense: DensePart
    mesh: SliceMesh

    @property
    def _sizes(self) -> list[int]:
        return [prod(one.shape) for one in self.dense.model.trainable]

    @property
    def segment_floats(self) -> int:
        """The floats that a device updates, with those that make segments equal."""
        return -(-sum(self._sizes) // self.mesh.devices)

    @property
    def floats(self) -> int:
        """Of all segments."""
        return self.segment_floats * self.mesh.devices

    @property
    def _slot_starts(self) -> list[float]:
        """The values of slots beside the weights' own: no update divides by them."""
        return [1.0] * len(SLOTS[self.dense.config.dense_optimizer])

    def state_specs(self) -> DenseState:
        """The types of the state of one device; see :meth:`DensePart.state_specs`."""
        return {**self.dense.state_specs(), "slots": [tf.TensorSpec([self.segment_floats]) for _ in self._slot_starts]}

    def states_of(self, whole: Mapping[str, Any]) -> list[DenseState]:
        """The state of each device, from that of :meth:`DensePart.read_state`."""
        vectors = []
        for kind, start in enumerate(self._slot_starts):
            vector = np.full(self.floats, start, np.float32)
            flat = [np.ravel(slots[kind]) for slots in whole["slots"]]
            np.concatenate(flat, out=vector[: sum(self._sizes)])
            vectors.append(vector.reshape(self.mesh.devices, -1))
        return [{**whole, "slots": [vector[segment] for vector in vectors]} for segment in self.mesh.segments]

    def whole_state(self, states: Sequence[Mapping[str, Any]]) -> DenseState:
        """The inverse of :meth:`states_of`."""
        vectors = []
        for kind in range(len(self._slot_starts)):
            rows: list[Array] = [np.zeros(0)] * self.mesh.devices
            for segment, state in zip(self.mesh.segments, states, strict=True):
                rows[segment] = state["slots"][kind]
            vectors.append(np.concatenate(rows))
        weights = states[0]["weights"]
        ends = np.cumsum(self._sizes).tolist()
        slots = [
            [vector[end - size : end].reshape(weight.shape) for vector in vectors]
            for weight, size, end in zip(weights, self._sizes, ends, strict=True)
        ]
        return {**states[0], "slots": slots}

    def step(
        self,
        state: Mapping[str, Any],
        activations: Any,
        dense: Any,
        labels: Any,
        weights: Any,
        *,
        collectives: Collectives,
    ) -> DenseResult:
        """See :meth:`DensePart.step`."""
        found = self.dense.differentiate(
            state, activations, dense, labels, weights, replicas=self.mesh.devices, total_of=collectives.total,
            sum_of=lambda gradient: gradient,
        )  # fmt: skip
        segment = tf.constant(self.mesh.segments, tf.int32)[collectives.replica()]
        gradient = collectives.reduce_scatter(self._flat(found.by_weights), self.mesh.columns)
        if self.mesh.x > 1:
            gradient = collectives.reduce_scatter(gradient, self.mesh.rows)
        own = tf.reshape(self._flat(state["weights"]), [self.mesh.devices, self.segment_floats])[segment]
        kind, config = self.dense.config.dense_optimizer, self.dense.config
        rate = step_rate(kind, config.dense_learning_rate, config.batch_rows)
        trust_of = self._trust_of(segment, collectives.total)
        own, *slots = updated(kind, rate, own, gradient, state["slots"], state["updates"], trust_of=trust_of)
        if self.mesh.x > 1:
            own = collectives.all_gather(own, self.mesh.rows)
        flat = collectives.all_gather(own, self.mesh.columns)
        parts = tf.split(flat[: sum(self._sizes)], self._sizes)
        after = {
            "weights": [tf.reshape(one, old.shape) for one, old in zip(parts, state["weights"], strict=True)],
            "slots": slots,
            "changing": found.changing,
            "updates": state["updates"] + 1.0,
        }
        units_on = self.dense.model.units_on(found.by_weights)
        if self.dense.model.counted_units:
            units_on = collectives.total(tf.cast(units_on, tf.int32)) > 0
        return DenseResult(found.logits, found.by_activations, after, units_on)

    def _flat(self, arrays: Sequence[Any]) -> Any:
        flat = tf.concat([tf.reshape(one, [-1]) for one in arrays], axis=0)
        return tf.pad(flat, [[0, self.floats - sum(self._sizes)]])

    def _trust_of(self, segment: Any, total_of: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        """The trust ratio of each float of this device's segment: norms of whole weights are sums over the devices."""
        sizes, shapes = self._sizes, [one.shape for one in self.dense.model.trainable]
        owners = np.repeat(np.arange(len(sizes) + 1), [*sizes, self.floats - sum(sizes)]).astype(np.int32)
        is_scaled = np.array(
            [*(self.dense.config.dense_optimizer != "lars" or len(shape) > 1 for shape in shapes), False]
        )

        def ratios(weight: Any, change: Any) -> Any:
            own = tf.reshape(tf.constant(owners), [self.mesh.devices, self.segment_floats])[segment]
            squares = tf.stack([tf.square(weight), tf.square(change)], axis=1)
            sums = total_of(tf.math.unsorted_segment_sum(squares, own, len(is_scaled)))
            norm, of_change = tf.sqrt(sums[:, 0]), tf.sqrt(sums[:, 1])
            is_known = tf.constant(is_scaled) & (norm > 0) & (of_change > 0)
            ratio = tf.where(is_known, norm / tf.where(is_known, of_change, 1.0), 1.0)
            return tf.gather(ratio, own)

        return ratios
