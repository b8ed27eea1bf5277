"""Convert TensorFlow's embedding configuration (``tf.tpu.experimental.embedding``) to this engine's.

Every setting is either converted or refused by name; none is ignored. TensorFlow is imported at the first conversion.
"""

from __future__ import annotations

from typing import Any

from trainer.embedding.optimizers import SGD, Adagrad, Optimizer
from trainer.embedding.spec import Constant, FeatureSpec, Initializer, Normal, TableSpec, Uniform, tables_of
from trainer.errors import UnsupportedSetting

#: Optimizer settings without a counterpart, each with the only value that is accepted.
_OPTIMIZER_DEFAULTS: dict[str, object] = {
    "use_gradient_accumulation": True,
    "clip_weight_min": None,
    "clip_weight_max": None,
    "clip_gradient_min": None,
    "clip_gradient_max": None,
    "weight_decay_factor": None,
    "multiply_weight_decay_factor_by_learning_rate": None,
    "slot_variable_creation_fn": None,
    "low_dimensional_packing_status": False,
}


def from_tensorflow(feature_config: Any, optimizer: Any = None) -> tuple[FeatureSpec, ...]:
    """The features of a ``FeatureConfig`` or of any nest (dict, list, tuple) of them, in ``tf.nest`` order.

    ``optimizer`` is the default for tables without one, as in ``TPUEmbedding``. A feature without a name is named by its
    path in the nest ("user/clicks"), a table without a name ``table_<n>`` by order of first use. Features with the same
    ``TableConfig`` object share one table. Initializers keep their distribution, not their draws: rows come from this
    engine's seed. Raises :class:`UnsupportedSetting` for unsupported settings.
    """
    import tensorflow as tf

    tables: dict[int, TableSpec] = {}
    features = []
    for path, feature in _leaves(feature_config):
        _refuse_unless(isinstance(feature, tf.tpu.experimental.embedding.FeatureConfig), str(path), "value", feature,
                       "tf.tpu.experimental.embedding.FeatureConfig")  # fmt: skip
        name = feature.name or "/".join(str(part) for part in path) or "feature"
        _refuse_unless(feature.max_sequence_length == 0, name, "max_sequence_length", feature.max_sequence_length, "0")
        shape = feature.output_shape.rank
        _refuse_unless(shape is None, name, "output_shape", feature.output_shape, "none (one bag per event)")
        table = tables.get(id(feature.table))
        if table is None:
            table = tables[id(feature.table)] = _table(tf, feature.table, len(tables), optimizer)
        features.append(FeatureSpec(name, table))
    tables_of(features)
    return tuple(features)


def _leaves(nest: Any, path: tuple[object, ...] = ()) -> list[tuple[tuple[object, ...], Any]]:
    """(path, leaf) in ``tf.nest`` order: mappings by sorted key."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in _leaves(nest[key], (*path, key))]
    if isinstance(nest, (list, tuple)):
        return [leaf for i, item in enumerate(nest) for leaf in _leaves(item, (*path, i))]
    return [(path, nest)]


def _table(tf: Any, table: Any, position: int, default_optimizer: Any) -> TableSpec:
    name = table.name or f"table_{position}"
    _refuse_unless(table.combiner in ("sum", "mean"), name, "combiner", table.combiner, "sum, mean")
    for setting in ("quantization_config", "layout"):
        _refuse_unless(getattr(table, setting, None) is None, name, setting, getattr(table, setting, None), "None")
    dtype = getattr(table, "dtype", tf.float32)
    _refuse_unless(dtype == tf.float32, name, "dtype", dtype, "float32")
    optimizer = table.optimizer if table.optimizer is not None else default_optimizer
    return TableSpec(
        name, int(table.vocabulary_size), int(table.dim), _optimizer(tf, optimizer, name), table.combiner,
        _initializer(table.initializer, name),
    )  # fmt: skip


def _optimizer(tf: Any, optimizer: Any, table: str) -> Optimizer:
    embedding = tf.tpu.experimental.embedding
    kind = type(optimizer)
    _refuse_unless(kind in (embedding.SGD, embedding.Adagrad), table, "optimizer", kind.__name__, "SGD, Adagrad")
    for setting, allowed in _OPTIMIZER_DEFAULTS.items():
        value = getattr(optimizer, setting, allowed)
        _refuse_unless(value == allowed, table, setting, value, str(allowed))
    rate = optimizer.learning_rate
    _refuse_unless(not callable(rate), table, "learning_rate", rate, "a number (no schedule)")
    if kind is embedding.SGD:
        return SGD(float(rate))
    return Adagrad(float(rate), float(optimizer.initial_accumulator_value))


def _initializer(initializer: Any, table: str) -> Initializer:
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    kind = type(initializer).__name__
    if kind in ("TruncatedNormal", "RandomNormal"):
        return Normal(float(config["mean"]), float(config["stddev"]), truncated=kind == "TruncatedNormal")
    if kind == "RandomUniform":
        return Uniform(float(config["minval"]), float(config["maxval"]))
    if kind in ("Zeros", "Ones"):
        return Constant(float(kind == "Ones"))
    allowed = "one of TruncatedNormal, RandomNormal, RandomUniform, Zeros, Ones, Constant"
    _refuse_unless(kind == "Constant", table, "initializer", kind, allowed)
    return Constant(float(config["value"]))


def _refuse_unless(supported: bool, where: str, setting: str, value: object, allowed: str) -> None:
    if not supported:
        raise UnsupportedSetting(
            f"{setting} must be {allowed}",
            where=f"embedding configuration, {where}",
            value=str(value),
            allowed=allowed,
            next_step="change the setting, or train with TPUEmbedding itself",
        )
