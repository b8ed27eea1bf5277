"""Whether a TPU slice can train a model, with its tables in the slice or on parameter servers."""

from __future__ import annotations

from trainer.errors import ConfigError
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.options.slice_tables import check_slice_rates, check_slice_tables
from trainer.run.weights.one_engine import joined_features
from trainer.tables.tpu.slices import TpuSlice
from trainer.tables.tpu.unsupported import refuse_for_sparse_core, refuse_for_tpu_embedding


def check_slice(
    slice_: TpuSlice | None,
    layout: InputLayout,
    config: TrainConfig,
    head: AnyHead,
    *,
    is_served: bool = False,
    hosts: int = 1,
) -> None:
    """Raise :class:`ConfigError` or :class:`UnsupportedSetting` for a model that the slice cannot train, or another engine than the machine's.

    ``is_served``: the tables are on parameter servers, so that the slice has the dense part alone; ``hosts``: with a slice each.
    """
    if (slice_ is not None) != (config.engine == "tpu"):
        raise ConfigError("the option engine must fit the machine", where="engine", value=config.engine,
                          allowed="cpu without a TPU slice, tpu with one",
                          next_step="headrace train --tpu local trains on the TPUs of this machine")  # fmt: skip
    if slice_ is None:
        return
    check_slice_rates(config)
    if not is_served:
        _check_tables(slice_, layout, config, head)
    if slice_.replicas * hosts > 1 and config.has_own_network:
        from trainer.model.dense_model import DenseModel

        DenseModel(layout, config, head).check_replicable()


def _check_tables(slice_: TpuSlice, layout: InputLayout, config: TrainConfig, head: AnyHead) -> None:
    """Raise for tables that the slice cannot hold."""
    check_slice_tables(config)
    check_embedding_hardware(slice_)
    events_per_replica(config, slice_)
    if not layout.features:
        raise ConfigError("the tpu engine needs a model with embedding inputs", where="engine", value="tpu",
                          next_step="add an input of ids, or train with the cpu engine")  # fmt: skip
    features = joined_features(layout, config, head)
    if slice_.sparse_cores:
        refuse_for_sparse_core(features)
    else:
        refuse_for_tpu_embedding(features)


def check_embedding_hardware(slice_: TpuSlice) -> None:
    """Raise :class:`ConfigError` for a slice that has no hardware for tables."""
    if not slice_.holds_tables:
        raise ConfigError("the TPUs of the tpu engine must have embedding hardware", where="--tpu", value="none",
                          allowed="v2 to v4, v5p, v6e or TPU7x", next_step="give --servers N too: then the tables are on servers; or train with the cpu engine on v5e")  # fmt: skip


def events_per_replica(config: TrainConfig, slice_: TpuSlice) -> int:
    """The events of a step on each device that has tables. Raises :class:`ConfigError` for a ``batch_rows`` that cannot be divided."""
    cores = max(slice_.sparse_cores, 1)
    if config.batch_rows % (slice_.replicas * cores):
        raise ConfigError("batch_rows must be a multiple of the parts of the slice", where="batch_rows", value=config.batch_rows,
                          allowed=f"multiples of {slice_.replicas * cores}: {slice_.replicas} devices with {cores} SparseCores each",
                          next_step="correct this training option")  # fmt: skip
    return config.batch_rows // slice_.replicas
