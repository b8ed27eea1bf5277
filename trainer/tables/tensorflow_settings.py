"""Convert TensorFlow's embedding configuration (``tf.tpu.experimental.embedding``) to light specs, and back.

Every setting is either converted or refused by name; none is ignored. TensorFlow is imported at the first conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainer.tables.optimizers import Optimizer
from trainer.tables.spec import (
    COMBINERS,
    Constant,
    FeatureSpec,
    Initializer,
    Normal,
    Quantization,
    TableSpec,
    Uniform,
    tables_of,
)
from trainer.tables.tensorflow_optimizers import optimizer_from_tensorflow, optimizer_to_tensorflow, refused

_INITIALIZERS = "TruncatedNormal, RandomNormal, RandomUniform, Zeros, Ones, Constant"


def from_tensorflow(feature_config: Any, optimizer: Any = None) -> tuple[FeatureSpec, ...]:
    """The features of a ``FeatureConfig`` or of any nest (dict, list, tuple) of them, in ``tf.nest`` order.

    ``optimizer``, TensorFlow's or a light one, is the default for tables without one, as in ``TPUEmbedding``. A feature without a name is named by its
    path in the nest ("user/clicks"), a table without a name ``table_<n>`` by order of first use. Features with the same
    ``TableConfig`` object share one table. Initializers keep their distribution, not their draws: rows come from the
    engine's seed. An ``output_shape`` may have one dimension, the events of a batch, which is the engine's to know.
    ``validate_weights_and_indices`` concerns TensorFlow's serving: engines check all ids. Raises :class:`UnsupportedSetting`
    for unsupported settings.
    """
    import tensorflow as tf

    tables: dict[int, TableSpec] = {}
    features = []
    for path, feature in leaves_of(feature_config):
        if not isinstance(feature, tf.tpu.experimental.embedding.FeatureConfig):
            raise refused("value", feature, "tf.tpu.experimental.embedding.FeatureConfig", where=str(path))
        name = feature.name or "/".join(str(part) for part in path) or "feature"
        _check_output_shape(feature, name)
        table = tables.get(id(feature.table))
        if table is None:
            table = tables[id(feature.table)] = _table(tf, feature.table, len(tables), optimizer)
        features.append(FeatureSpec(name, table, int(feature.max_sequence_length)))
    tables_of(features)
    return tuple(features)


def to_tensorflow(features: Sequence[FeatureSpec]) -> tuple[Any, ...]:
    """A ``FeatureConfig`` for each feature, in order; features of one table share its ``TableConfig`` object.

    Raises :class:`UnsupportedSetting` for what TensorFlow does not have.
    """
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    configs = {table.name: table_to_tensorflow(table) for table in tables_of(features)}
    return tuple(
        embedding.FeatureConfig(configs[feature.table.name], feature.max_sequence_length, name=feature.name)
        for feature in features
    )


def table_to_tensorflow(table: TableSpec) -> Any:
    """The ``TableConfig`` of a table. Raises :class:`UnsupportedSetting` for what TensorFlow does not have."""
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    quantization = table.quantization
    return embedding.TableConfig(
        table.vocabulary_size,
        table.dim,
        initializer=_initializer_to_tensorflow(tf, table.effective_initializer),
        optimizer=optimizer_to_tensorflow(table.optimizer, table=table.name),
        combiner=table.combiner,
        name=table.name,
        quantization_config=quantization
        and embedding.QuantizationConfig(quantization.num_buckets, quantization.lower, quantization.upper),
    )


def leaves_of(nest: Any, path: tuple[object, ...] = ()) -> list[tuple[tuple[object, ...], Any]]:
    """(path, leaf) of a nest in ``tf.nest`` order: mappings by sorted key."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves_of(nest[key], (*path, key))]
    if isinstance(nest, (list, tuple)):
        return [leaf for i, item in enumerate(nest) for leaf in leaves_of(item, (*path, i))]
    return [(path, nest)]


def _check_output_shape(feature: Any, name: str) -> None:
    """TensorFlow ignores ``max_sequence_length`` beside an ``output_shape``: together they are refused."""
    rank = feature.output_shape.rank
    if rank not in (None, 1):
        raise refused(
            "output_shape", feature.output_shape, "None or of one dimension, the events of a batch", where=name
        )
    if rank == 1 and feature.max_sequence_length:
        raise refused("output_shape", feature.output_shape, "None for a feature with max_sequence_length", where=name)


def _table(tf: Any, table: Any, position: int, default_optimizer: Any) -> TableSpec:
    name = table.name or f"table_{position}"
    if table.combiner not in COMBINERS:
        raise refused("combiner", type(table.combiner).__name__, ", ".join(COMBINERS), where=name)
    if table.layout is not None:
        raise refused("layout", table.layout, "None", where=name)
    if table.dtype != tf.float32:
        raise refused("dtype", table.dtype, "float32", where=name)
    own = table.optimizer if table.optimizer is not None else default_optimizer
    optimizer: Optimizer = own if isinstance(own, Optimizer) else optimizer_from_tensorflow(own, table=name)
    return TableSpec(
        name, int(table.vocabulary_size), int(table.dim), optimizer, table.combiner,
        _initializer(table.initializer, name), _quantization(table.quantization_config),
    )  # fmt: skip


def _quantization(config: Any) -> Quantization | None:
    return config and Quantization(int(config.num_buckets), float(config.lower), float(config.upper))


def _initializer(initializer: Any, table: str) -> Initializer:
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    kind = type(initializer).__name__
    if kind in ("TruncatedNormal", "RandomNormal"):
        return Normal(float(config["mean"]), float(config["stddev"]), truncated=kind == "TruncatedNormal")
    if kind == "RandomUniform":
        return Uniform(float(config["minval"]), float(config["maxval"]))
    if kind in ("Zeros", "Ones"):
        return Constant(float(kind == "Ones"))
    if kind != "Constant":
        raise refused("initializer", kind, f"one of {_INITIALIZERS}", where=table)
    return Constant(float(config["value"]))


def _initializer_to_tensorflow(tf: Any, initializer: Initializer) -> Callable[..., Any]:
    if isinstance(initializer, Constant):
        made = tf.constant_initializer(initializer.value)
    elif isinstance(initializer, Uniform):
        made = tf.random_uniform_initializer(initializer.low, initializer.high)
    elif initializer.truncated:
        made = tf.keras.initializers.TruncatedNormal(initializer.mean, initializer.stddev)
    else:
        made = tf.random_normal_initializer(initializer.mean, initializer.stddev)
    return made  # type: ignore[no-any-return]
