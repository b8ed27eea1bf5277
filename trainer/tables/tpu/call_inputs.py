"""What a call of several steps reads, as four arrays for each machine of a slice.

A machine of a slice has some of its replicas, one after another. The four arrays of a call are sent to each machine once; there
TensorFlow cuts them into the inputs of a replica's step, beside the step before. So a call costs four copies a machine, on however many inputs,
steps and replicas, and the process that trains may be on another machine than the devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.host_inputs import bags_of, replica_inputs
from trainer.tables.tpu.remote_values import sent_values
from trainer.tables.tpu.replicated_tables import bags_as_arrays
from trainer.tables.tpu.slices import StepInputs
from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class CallArrays:
    """The inputs of one machine. An *element* is what one replica reads for one step; elements are in order of steps, then of replicas.

    Attributes:
        ids: int32 or int64, of all elements, in each the features in order.
        gains: float32, what each id counts for.
        lengths: int32 [elements, bags], the ids of each bag, features in order.
        others: float32 [elements, columns], the other arrays of an element side by side.
    """

    ids: Array
    gains: Array
    lengths: Array
    others: Array

    @property
    def nbytes(self) -> int:
        """Bytes that are sent to the machine."""
        return self.ids.nbytes + self.gains.nbytes + self.lengths.nbytes + self.others.nbytes


class CallInputs:
    """Packs batches for ``engine``, and unpacks them on the machines of its slice.

    Args:
        engine: of the slice.
        other_specs: the types of the other arrays of one replica, float32, with all of its events in their first dimension.
        machines: of the slice, with equally many replicas each, one machine after another.
    """

    def __init__(self, engine: TpuEngine, other_specs: tuple[Any, ...], *, machines: int = 1) -> None:
        self._engine, self._machines = engine, machines
        self._replicas = engine.replicas // machines
        self._bags = [bags_of(feature, engine.events) for feature in engine.features]
        self._shapes = [tuple(spec.shape) for spec in other_specs]
        self._columns = [math.prod(shape) for shape in self._shapes]
        self._traced: Any = None

    def pack(self, batches: Sequence[StepInputs]) -> list[CallArrays]:
        """The inputs of each machine. Raises :class:`BadBatch` for a batch of another size than a step, or that does not fit the tables."""
        for ids, _ in batches:
            self._engine.check_step(ids)
        return [self._of_machine(batches, machine) for machine in range(self._machines)]

    def _of_machine(self, batches: Sequence[StepInputs], machine: int) -> CallArrays:
        replicas, events = self._replicas, self._replicas * self._engine.events
        ids: list[Array] = [np.zeros(0, np.int32)]
        gains: list[Array] = [np.zeros(0, np.float32)]
        lengths = np.zeros((len(batches), replicas, sum(self._bags)), np.int32)
        others = np.zeros((len(batches), replicas, sum(self._columns)), np.float32)
        for step, (batch, arrays) in enumerate(batches):
            cuts = []
            first_bag = 0
            for one, bags in zip(
                replica_inputs(batch, self._engine.features, machine, events), self._bags, strict=True
            ):
                lengths[step, :, first_bag : first_bag + bags] = np.diff(one.splits).reshape(replicas, bags)
                cuts.append((one, one.splits[::bags].tolist()))
                first_bag += bags
            for replica in range(replicas):
                ids += [one.ids[ends[replica] : ends[replica + 1]] for one, ends in cuts]
                gains += [one.gains[ends[replica] : ends[replica + 1]] for one, ends in cuts]
            column = 0
            for array, columns in zip(arrays, self._columns, strict=True):
                own = array[machine * events : (machine + 1) * events]
                others[step, :, column : column + columns] = own.reshape(replicas, columns)
                column += columns
        elements = len(batches) * replicas
        return CallArrays(
            np.concatenate(ids),
            np.concatenate(gains),
            lengths.reshape(elements, sum(self._bags)),
            others.reshape(elements, sum(self._columns)),
        )

    def elements(self, arrays: CallArrays) -> Any:
        """A ``tf.data.Dataset`` of the elements of one machine, on the device that TensorFlow has chosen for new tensors.

        An element is (ids of each feature, gains of each feature), both ragged but for replicated tables, and the other arrays.
        """
        import tensorflow as tf

        if self._traced is None:
            shapes = ([None], [None, sum(self._bags)], [None, sum(self._columns)])
            signature = [
                tf.TensorSpec(shape, dtype)
                for shape, dtype in zip(shapes, (tf.float32, tf.int32, tf.float32), strict=True)
            ]
            self._traced = {
                dtype: tf.function(self._dataset, [tf.TensorSpec([None], dtype), *signature], autograph=False)
                for dtype in (tf.int32, tf.int64)
            }
        made = [sent_values(one) for one in (arrays.ids, arrays.gains, arrays.lengths, arrays.others)]
        return self._traced[made[0].dtype](*made)

    def _dataset(self, ids: Any, gains: Any, lengths: Any, others: Any) -> Any:
        import tensorflow as tf

        totals = tf.cumsum(tf.reduce_sum(tf.cast(lengths, tf.int64), axis=1))
        starts = tf.concat([tf.zeros([1], tf.int64), totals], axis=0)

        def element(k: Any) -> Any:
            ends = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(tf.cast(lengths[k], tf.int64))], axis=0)
            own_ids, own_gains = (values[starts[k] : starts[k + 1]] for values in (ids, gains))
            of_ids, of_gains, first = [], [], 0
            for feature, bags in zip(self._engine.features, self._bags, strict=True):
                begin, end = ends[first], ends[first + bags]
                splits = ends[first : first + bags + 1] - begin
                values = tf.cast(own_ids[begin:end], tf.int64)
                found = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
                one = found, found.with_values(own_gains[begin:end])
                if bound := self._engine.replicated.bound_of(feature):
                    one = bags_as_arrays(*one, feature, self._engine.events, bound)
                of_ids.append(one[0])
                of_gains.append(one[1])
                first += bags
            parts = tf.split(others[k], self._columns) if self._columns else []
            shaped = tuple(tf.reshape(part, shape) for part, shape in zip(parts, self._shapes, strict=True))
            return (tuple(of_ids), tuple(of_gains)), shaped

        count = tf.cast(tf.shape(lengths)[0], tf.int64)
        made = tf.data.Dataset.range(count).map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return made.prefetch(self._replicas)
