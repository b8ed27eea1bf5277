"""The tables of a SparseCore engine as arguments and results of a traced step, not as variables.

So a step of tables that fit in no memory here can be lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu.tpu_embedding_v3 import PartitionedCsrFormatTensor

from trainer.tables.tpu.host_inputs import bags_of
from trainer.tables.tpu.replicated_tables import TotalOf
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tables.tpu.table_states import PARAMETERS

#: The parts of a stack's ids on a replica, in the order of TensorFlow's operators.
_CSR_PARTS = ("row_pointers", "sorted_sample_ids", "sorted_token_ids", "sorted_gains")


class TracedArray:
    """Stands for a variable of the tables while the step is traced: read once, assigned once."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def read_value(self) -> Any:
        """The value now."""
        return self.value

    def assign(self, value: Any) -> None:
        """Set the value."""
        self.value = value

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> Any:
        return self.value


class TracedTables:
    """The engine's tables as arguments of a step."""

    def __init__(self, engine: SparseCoreEngine) -> None:
        self._engine = engine
        self._embedding = engine.embedding
        self._embedding._built = True
        self._embedding._copy_tensors_to_device = lambda partitioned_tensors: partitioned_tensors

    @property
    def array_names(self) -> dict[str, list[str]]:
        """By stack, the names of its arrays."""
        found = {}
        for stack, tables in self._embedding._stacked_table_to_tables.items():
            found[stack] = [PARAMETERS, *tables[0].optimizer._slot_names()]
        return found

    def table_specs(self) -> dict[str, dict[str, Any]]:
        """The types of a replica's arrays of the spread tables."""
        shapes = {}
        for place in self._engine.spread_places().values():
            shards, rows, columns = place.part_shape(0)
            shapes[place.stack] = (shards * rows, columns)
        return {
            stack: {name: tf.TensorSpec(shapes[stack]) for name in names} for stack, names in self.array_names.items()
        }

    def csr_specs(self) -> dict[str, list[Any]]:
        """The types of a replica's ids, which TensorFlow's host preprocessing gives a batch without ids."""
        engine, embedding = self._engine, self._embedding
        ids = tuple(
            tf.RaggedTensor.from_row_splits(
                tf.zeros([0], tf.int64), tf.zeros([bags_of(feature, engine.events) + 1], tf.int64)
            )
            for feature in engine.spread
        )
        gains = tuple(one.with_values(tf.zeros([0])) for one in ids)
        made = embedding.enqueue(ids, gains)
        return {
            stack: [
                tf.TensorSpec(part.shape, part.dtype) for part in (getattr(of_stack[0], name) for name in _CSR_PARTS)
            ]
            for stack, of_stack in made.items()
        }

    def replicated_specs(self) -> dict[str, dict[str, Any]]:
        """The types of a replica's arrays of the replicated tables."""
        return self._engine.replicated.array_specs()

    def bag_specs(self) -> list[tuple[Any, Any]]:
        """The types of a replica's ids and gains of each feature of a replicated table."""
        replicated = self._engine.replicated
        shapes = [[bags_of(one, self._engine.events), replicated.bound_of(one)] for one in replicated.features]
        return [(tf.TensorSpec(shape, tf.int32), tf.TensorSpec(shape)) for shape in shapes]

    def begin(
        self,
        csr: Mapping[str, Sequence[Any]],
        minibatches: Any,
        arrays: Mapping[str, Mapping[str, Any]],
        replicated: Mapping[str, Mapping[str, Any]],
        bags: Sequence[tuple[Any, Any]],
    ) -> Any:
        """Make the arguments the values of the tables and ids that the engine uses; the activations and what the update needs."""
        self._embedding._variables = _traced(arrays)
        self._engine.replicated.variables = _traced(replicated)
        counts = self._embedding._table_to_sample_count
        parts = {
            stack: PartitionedCsrFormatTensor(
                *of_stack, sample_count=counts[stack], num_minibatches_per_physical_sparse_core=minibatches
            )
            for stack, of_stack in csr.items()
        }
        activations, kept = self._embedding.dequeue(parts)
        own = dict(zip(self._engine.replicated.features, bags, strict=True))
        inputs = tuple(zip(*(own.get(one, (None, None)) for one in self._engine.features), strict=True))
        return self._engine.activations(activations, inputs), (kept, inputs)

    def end(self, gradients: Any, kept: Any, total_of: TotalOf) -> None:
        """Update the tables; ``total_of``: the sum of a tensor over all devices."""
        self._engine.apply_gradients(gradients, kept, total_of=total_of)

    def arrays(self) -> dict[str, dict[str, Any]]:
        """The values of the spread tables now."""
        return _values(self._embedding._variables)

    def replicated(self) -> dict[str, dict[str, Any]]:
        """The values of the replicated tables now."""
        return _values(self._engine.replicated.variables)


def _traced(arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, TracedArray]]:
    return {name: {part: TracedArray(value) for part, value in parts.items()} for name, parts in arrays.items()}


def _values(variables: Mapping[str, Mapping[str, TracedArray]]) -> dict[str, dict[str, Any]]:
    return {name: {part: one.value for part, one in parts.items()} for name, parts in variables.items()}
