"""The engine of v2 to v4: ``TPUEmbedding``, whose tables the embedding hardware keeps, and its hosts load and retrieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.placement import BlockedTable
from trainer.tables.tpu.remote_values import read_values, write_values
from trainer.tables.tpu.table_states import PARAMETERS, StackArrays
from trainer.tables.tpu.unsupported import refuse_for_tpu_embedding


class TpuEmbeddingEngine(TpuEngine):
    """See :class:`TpuEngine`. Raises :class:`UnsupportedSetting` for settings that ``TPUEmbedding`` does not have."""

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, events_per_replica: int, pipelined: bool = False
    ) -> None:
        import tensorflow as tf

        refuse_for_tpu_embedding(features)
        super().__init__(features, seed=seed, events_per_replica=events_per_replica, pipelined=pipelined, replicated={})
        self.embedding = tf.tpu.experimental.embedding.TPUEmbedding(
            self._feature_configs(), None, pipeline_execution_with_tensor_core=pipelined
        )

    @property
    def configuration(self) -> Any:
        """The ``TPUEmbeddingConfiguration`` that the embedding hardware is set up with."""
        self.embedding._get_and_update_output_shapes_from_input()
        return self.embedding._create_config_proto()

    def _build_spread(self) -> None:
        self.embedding.build()

    def _look_up(self, ids: tuple[Any, ...], gains: tuple[Any, ...], *, training: bool) -> tuple[Sequence[Any], Any]:
        self.embedding.enqueue(ids, gains, training=training)
        return self.embedding.dequeue(), None

    def _update(self, gradients: tuple[Any, ...], kept: Any) -> None:
        self.embedding.apply_gradients(gradients)

    def spread_places(self) -> Mapping[str, BlockedTable]:
        """See :meth:`TpuEngine.spread_places`."""
        found = {}
        for table in self.tables:
            parts = self._variables_of(table.name)[PARAMETERS].variables
            ends = np.cumsum([part.shape[0] for part in parts]).tolist()
            found[table.name] = BlockedTable(table.name, tuple(ends), table.dim)
        return found

    def _variables_of(self, table: str) -> Any:
        """The variables of a table on the hosts, by name: its values, and each slot."""
        return self.embedding._variables[table]

    def _read_spread(self, stack: str, part: int) -> StackArrays:
        return {name: read_values(one.variables[part]) for name, one in self._variables_of(stack).items()}

    def _write_spread(self, stack: str, part: int, arrays: StackArrays) -> None:
        for name, one in self._variables_of(stack).items():
            write_values(one.variables[part], arrays[name])

    def _retrieve(self) -> None:
        self.embedding._retrieve_variables()

    def _load(self) -> None:
        self.embedding._load_variables()
