"""Settings of SparseCore, the embedding hardware of TPUs: a light spec of TensorFlow's ``SparseCoreEmbeddingConfig``.

Tables of equal padded width, optimizer and quantization are stacked into one. Rows of a stack are spread over all SparseCores of a slice.
Each SparseCore sends every other one the ids that it needs from it, in a buffer of fixed size: the limits here. A batch that exceeds
a limit is an error; ids are never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trainer.errors import ConfigError
from trainer.tables.tensorflow_optimizers import refused

#: TensorFlow's limits for stacks that are not named.
_TENSORFLOWS_LIMIT = 256
#: The SparseCores of a device that TensorFlow's host preprocessing can serve.
MOST_SPARSE_CORES = 4

_WHERE = "SparseCore settings"
#: Settings of TensorFlow that only say how it makes initial values, which engines make themselves.
_INITIALIZATION = {"initialize_tables_on_host": True, "enable_fast_table_initialization": False}


def _no_limits() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SparseCoreSettings:
    """Names and defaults are those of ``tf.tpu.experimental.embedding.SparseCoreEmbeddingConfig``.

    Attributes:
        disable_table_stacking: every table is a stack of its own.
        max_ids_per_chip_per_sample: ids of one event that a chip has memory for, on average.
        max_ids_per_table: by name of a stack, ids that one SparseCore may request from another in a batch.
        max_unique_ids_per_table: the same for distinct ids.
        allow_id_dropping: must be False; ids over a limit are an error.
        default_max_ids: the limit of ids of stacks that are not named; TensorFlow's is 256.
        default_max_unique_ids: the same for distinct ids.
        stacks: names of tables that are stacked, as a plan has them; others are stacked by TensorFlow's rule. Names of tables that the
            engine does not have are left out.
        replicated: by name of a table that each device has whole, the most ids of a bag. They are in no stack, and need no buffer.
    """

    disable_table_stacking: bool = False
    max_ids_per_chip_per_sample: int = 64
    max_ids_per_table: Mapping[str, int] = field(default_factory=_no_limits)
    max_unique_ids_per_table: Mapping[str, int] = field(default_factory=_no_limits)
    allow_id_dropping: bool = False
    default_max_ids: int = _TENSORFLOWS_LIMIT
    default_max_unique_ids: int = _TENSORFLOWS_LIMIT
    stacks: tuple[tuple[str, ...], ...] = ()
    replicated: Mapping[str, int] = field(default_factory=_no_limits)

    def __post_init__(self) -> None:
        if self.allow_id_dropping:
            raise ConfigError("allow_id_dropping must be False", where=_WHERE, value=True, allowed="False",
                              next_step="raise max_ids_per_table and max_unique_ids_per_table")  # fmt: skip
        if self.stacks and self.disable_table_stacking:
            raise ConfigError("disable_table_stacking must be False for a plan that has stacks", where=_WHERE, value=True, allowed="False",
                              next_step="leave stacks out of the plan, or allow them")  # fmt: skip
        object.__setattr__(self, "stacks", tuple(map(tuple, self.stacks)))
        for name in ("max_ids_per_chip_per_sample", "default_max_ids", "default_max_unique_ids"):
            _check_positive(name, getattr(self, name))
        for name in ("max_ids_per_table", "max_unique_ids_per_table", "replicated"):
            limits = dict(sorted(getattr(self, name).items()))
            for stack, limit in limits.items():
                _check_positive(f"{name}[{stack!r}]", limit)
            object.__setattr__(self, name, MappingProxyType(limits))

    def max_ids(self, stack: str) -> int:
        """The limit of ids of a stack."""
        return self.max_ids_per_table.get(stack, self.default_max_ids)

    def max_unique_ids(self, stack: str) -> int:
        """The limit of distinct ids of a stack."""
        return self.max_unique_ids_per_table.get(stack, self.default_max_unique_ids)


def sparse_core_settings_from_tensorflow(config: Any) -> SparseCoreSettings:
    """The settings of a ``SparseCoreEmbeddingConfig``. Raises :class:`UnsupportedSetting` or :class:`ConfigError`."""
    for name, allowed in _INITIALIZATION.items():
        value = getattr(config, name, allowed)
        if value != allowed:
            raise refused(
                name, value, str(allowed), where=_WHERE, next_step="leave it: the engine makes the initial values"
            )
    return SparseCoreSettings(
        disable_table_stacking=bool(config.disable_table_stacking),
        max_ids_per_chip_per_sample=int(config.max_ids_per_chip_per_sample),
        max_ids_per_table=config.max_ids_per_table or {},
        max_unique_ids_per_table=config.max_unique_ids_per_table or {},
        allow_id_dropping=bool(config.allow_id_dropping),
        default_max_ids=_default_of(config.max_ids_per_table),
        default_max_unique_ids=_default_of(config.max_unique_ids_per_table),
    )


def sparse_core_settings_to_tensorflow(settings: SparseCoreSettings) -> Any:
    """TensorFlow's ``SparseCoreEmbeddingConfig``, with a limit for every stack."""
    import tensorflow as tf

    return tf.tpu.experimental.embedding.SparseCoreEmbeddingConfig(
        disable_table_stacking=settings.disable_table_stacking,
        max_ids_per_chip_per_sample=settings.max_ids_per_chip_per_sample,
        max_ids_per_table=_Limits(settings.max_ids_per_table, settings.default_max_ids),
        max_unique_ids_per_table=_Limits(settings.max_unique_ids_per_table, settings.default_max_unique_ids),
        allow_id_dropping=False,
    )


class _Limits(dict[str, int]):
    """Limits by stack, with one for stacks that are not named: their names are not known before there is an engine."""

    def __init__(self, limits: Mapping[str, int], default: int) -> None:
        super().__init__(limits)
        self.default = default

    def __contains__(self, stack: object) -> bool:
        return True

    def __missing__(self, stack: str) -> int:
        return self.default


def _default_of(limits: Mapping[str, int] | None) -> int:
    return limits.default if isinstance(limits, _Limits) else _TENSORFLOWS_LIMIT


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} must be a whole number >= 1", where=_WHERE, value=value, allowed=">= 1")
