"""The engine of v5p, v6e and TPU7x: ``TPUEmbeddingV2``, whose tables are stacked and spread over SparseCores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.errors import BadBatch, ConfigError
from trainer.tables.sparse_core import MOST_SPARSE_CORES, SparseCoreSettings, sparse_core_settings_to_tensorflow
from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.host_inputs import bags_of
from trainer.tables.tpu.placement import Placement, placement_of
from trainer.tables.tpu.planned_stacks import stack_groups
from trainer.tables.tpu.remote_values import read_values, write_values
from trainer.tables.tpu.table_states import StackArrays
from trainer.tables.tpu.unsupported import refuse_for_sparse_core

_OVERFLOW = re.compile(
    r"gets (\d+) (unique )?ids while the max (?:unique )?ids per sparse core is set to be (\d+) for table (.*?)\.?(?:\s|$)"
)


class SparseCoreEngine(TpuEngine):
    """See :class:`TpuEngine`. Stacks and limits are those of ``settings``.

    Raises :class:`UnsupportedSetting` for settings that ``TPUEmbeddingV2`` would ignore, and :class:`ConfigError` for events that
    cannot be divided among the SparseCores of a replica.
    """

    def __init__(
        self, features: Sequence[FeatureSpec], *, seed: int, events_per_replica: int, pipelined: bool = False,
        settings: SparseCoreSettings | None = None,
    ) -> None:  # fmt: skip
        import tensorflow as tf

        refuse_for_sparse_core(features)
        self.settings = settings or SparseCoreSettings()
        super().__init__(
            features,
            seed=seed,
            events_per_replica=events_per_replica,
            pipelined=pipelined,
            replicated=self.settings.replicated,
        )
        self.sparse_cores = int(self.strategy.extended.tpu_hardware_feature.num_embedding_devices_per_chip)
        _check_events(events_per_replica, self.sparse_cores)
        self.embedding = tf.tpu.experimental.embedding.TPUEmbeddingV2(
            self._laid_out(self._feature_configs()),
            pipeline_execution_with_tensor_core=pipelined,
            sparse_core_embedding_config=sparse_core_settings_to_tensorflow(self.settings),
        )
        self._check_limits()

    def _laid_out(self, configs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The features with the layouts of tables whose stacks the settings name; TensorFlow lays out the others."""
        groups = stack_groups(self.spread_tables, self.settings.stacks)
        if not groups:
            return configs
        from tensorflow.python.tpu import _pywrap_sparse_core_layout

        stacker = _pywrap_sparse_core_layout.SparseCoreLayoutStacker(
            num_partitions=self.replicas, sparse_cores_per_partition=self.sparse_cores, disable_table_stacking=False
        )
        # TensorFlow for TPUs 2.20 does not take the number of features.
        takes_features = "num_features" in (stacker.AddTable.__doc__ or "")
        for table in sorted(self.spread_tables, key=lambda one: one.name):  # as TensorFlow orders them
            if table.name not in groups:
                continue
            own = [feature for feature in self.spread if feature.table.name == table.name]
            stacker.AddTable(
                table_name=table.name,
                table_height=table.vocabulary_size,
                table_width=table.dim,
                group="planned {} {}".format(*groups[table.name]),
                output_samples=sum(bags_of(feature, self.events) for feature in own),
                **({"num_features": len(own)} if takes_features else {}),
            )
        layouts = {layout.table_name: layout for layout in stacker.GetLayouts().tables}
        for config in configs:
            config.table.layout = layouts.get(config.table.name)
        return configs

    def _check_limits(self) -> None:
        stacks = sorted({place.stack for place in self.spread_places().values()})
        unknown = {*self.settings.max_ids_per_table, *self.settings.max_unique_ids_per_table} - {*stacks}
        if unknown:
            raise ConfigError("limits of SparseCore must name a stack of the tables", value=sorted(unknown),
                              allowed=", ".join(stacks))  # fmt: skip

    def _build_spread(self) -> None:
        self.embedding.build()

    def _look_up(self, ids: tuple[Any, ...], gains: tuple[Any, ...], *, training: bool) -> tuple[Sequence[Any], Any]:
        activations, kept = self.embedding(ids, gains)
        return activations, kept

    def _update(self, gradients: tuple[Any, ...], kept: Any) -> None:
        self.embedding.apply_gradients(gradients, kept)

    def spread_places(self) -> Mapping[str, Placement]:
        """See :meth:`TpuEngine.spread_places`."""
        layouts = self.embedding.embedding_layouts
        return {table.name: placement_of(layouts[table.name], self.replicas) for table in self.spread_tables}

    def _read_spread(self, stack: str, part: int) -> StackArrays:
        variables = self.embedding.variables[stack]
        shape = self._shape_of(stack, part)
        return {name: read_values(variable.values[part]).reshape(shape) for name, variable in variables.items()}

    def _write_spread(self, stack: str, part: int, arrays: StackArrays) -> None:
        for name, variable in self.embedding.variables[stack].items():
            write_values(variable.values[part], arrays[name].reshape(-1, arrays[name].shape[-1]))

    def _retrieve(self) -> None:
        """The variables are on the TPUs."""

    def _load(self) -> None:
        """The variables are on the TPUs."""

    def _shape_of(self, stack: str, part: int) -> tuple[int, ...]:
        return next(place.part_shape(part) for place in self.spread_places().values() if place.stack == stack)


def clear_overflow(error: Exception) -> BadBatch | None:
    """The clear error for TensorFlow's about more ids than a SparseCore's buffer holds; None for another error."""
    found = _OVERFLOW.search(str(error))
    if found is None:
        return None
    count, unique, limit, stack = found.groups()
    setting = f"max_{'unique_' if unique else ''}ids_per_table"
    option = "--max-unique-ids" if unique else "--max-ids"
    return BadBatch(
        "the ids of a batch must fit in the buffers of the SparseCores",
        where=f"stack {stack}",
        value=int(count),
        allowed=f"<= {limit}, from {setting}",
        next_step=f"set {setting}[{stack!r}] to at least {count} ({option} of headrace train), or train smaller batches",
    )


def _check_events(events: int, sparse_cores: int) -> None:
    if not 0 < sparse_cores <= MOST_SPARSE_CORES:
        raise ConfigError("a replica must have SparseCores that TPUEmbeddingV2 serves", value=sparse_cores,
                          allowed=f"1 to {MOST_SPARSE_CORES}")  # fmt: skip
    if events < 1 or events % sparse_cores:
        raise ConfigError("the events of a replica must be a multiple of its SparseCores", value=events,
                          allowed=f"multiples of {sparse_cores}")  # fmt: skip
