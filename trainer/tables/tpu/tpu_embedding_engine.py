"""The engine of v2 to v4: ``TPUEmbedding``, whose tables the embedding hardware keeps, and its hosts load and retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.placement import WholeTable
from trainer.tables.tpu.table_states import StackArrays
from trainer.tables.tpu.unsupported import refuse_for_tpu_embedding


class TpuEmbeddingEngine(TpuEngine):
    """See :class:`TpuEngine`. Raises :class:`UnsupportedSetting` for settings that ``TPUEmbedding`` does not have."""

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, events_per_replica: int, pipelined: bool = False
    ) -> None:
        import tensorflow as tf

        refuse_for_tpu_embedding(features)
        super().__init__(features, seed=seed, events_per_replica=events_per_replica, pipelined=pipelined)
        self.embedding = tf.tpu.experimental.embedding.TPUEmbedding(
            self._feature_configs(), None, pipeline_execution_with_tensor_core=pipelined
        )

    @property
    def configuration(self) -> Any:
        """The ``TPUEmbeddingConfiguration`` that the embedding hardware is set up with."""
        self.embedding._get_and_update_output_shapes_from_input()
        return self.embedding._create_config_proto()

    def build(self) -> None:
        """Set up the embedding hardware and load the tables, with their initial values."""
        self.embedding.build()
        self._write_tables({})

    def lookup(self, inputs: Any, *, training: bool = True) -> tuple[Any, Any]:
        """See :meth:`TpuEngine.lookup`."""
        ids, gains = inputs
        self.embedding.enqueue(ids, gains, training=training)
        return self.joined(self.embedding.dequeue()), None

    def apply_gradients(self, gradients: Any, kept: Any) -> None:
        """See :meth:`TpuEngine.apply_gradients`."""
        self.embedding.apply_gradients(self._split(gradients))

    def places(self) -> Mapping[str, WholeTable]:
        """See :meth:`TpuEngine.places`."""
        return {table.name: WholeTable(table.name, table.vocabulary_size, table.dim) for table in self.tables}

    def _read_arrays(self, stack: str) -> StackArrays:
        self.embedding._retrieve_variables()
        return {
            name: np.concatenate([part.numpy() for part in variable.variables])
            for name, variable in self.embedding._variables[stack].items()
        }

    def _write_arrays(self, stack: str, arrays: StackArrays) -> None:
        for name, variable in self.embedding._variables[stack].items():
            start = 0
            for part in variable.variables:
                part.assign(arrays[name][start : start + part.shape[0]])
                start += part.shape[0]

    def _write_tables(self, state: Any) -> None:
        super()._write_tables(state)
        self.embedding._load_variables()
