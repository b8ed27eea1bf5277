"""Embedding tables that the user describes, with TensorFlow's classes or the light specs.

The option ``embeddings`` names a function without arguments. It returns features by input name: ``FeatureConfig`` of
``tf.tpu.experimental.embedding``, in any nest that ``TPUEmbedding`` takes, or :class:`~trainer.tables.spec.FeatureSpec`::

    def tables():
        words = TableSpec("words", 1_000_000, 64, Adagrad(0.05), "mean")
        return [FeatureSpec("query", words), FeatureSpec("title", words, max_sequence_length=20)]

A table without an optimizer has that of the run's options, and so have inputs that the function leaves out. The activations of a
sequence feature are the rows of an event's first ids, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.errors import ConfigError
from trainer.model.user_functions import embeddings_function
from trainer.options.config import TrainConfig
from trainer.tables.optimizers import Optimizer
from trainer.tables.spec import FeatureSpec
from trainer.tables.tensorflow_settings import from_tensorflow, leaves_of
from transforms.errors import HeadraceError, nearest


def described_features(config: TrainConfig, buckets: Mapping[str, int], optimizer: Optimizer) -> dict[str, FeatureSpec]:
    """The features that the function of ``embeddings`` describes, by input name; none without such a function.

    Args:
        buckets: of the embedded inputs, by name.
        optimizer: of tables without one.

    Raises :class:`ConfigError` for a function that fails or returns anything else, for a name that is not an input's, two features of
    one name, a table with fewer rows than its input has buckets, and options that describe the same input;
    :class:`UnsupportedSetting` for a setting that cannot be converted; and the errors of
    :func:`~trainer.model.user_functions.embeddings_function`.
    """
    if not config.embeddings:
        return {}
    where = f"embeddings {config.embeddings}"
    found: dict[str, FeatureSpec] = {}
    for feature in _features(embeddings_function(config), optimizer, where):
        if feature.name in found:
            raise ConfigError("the features of embeddings must have different names", where=where, value=feature.name)
        _check(feature, config, buckets, where)
        found[feature.name] = feature
    return found


def _features(function: Any, optimizer: Optimizer, where: str) -> tuple[FeatureSpec, ...]:
    try:
        described = function()
    except HeadraceError:
        raise
    except Exception as error:
        raise ConfigError("the function of embeddings must return features", where=where,
                          value=f"{type(error).__name__}: {str(error)[:500]}") from error  # fmt: skip
    leaves = [leaf for _, leaf in leaves_of(described)]
    if all(isinstance(leaf, FeatureSpec) for leaf in leaves):
        return tuple(leaves)
    if any(isinstance(leaf, FeatureSpec) for leaf in leaves):
        raise ConfigError("the features of embeddings must all have one type", where=where, value="FeatureSpec and others",
                          allowed="all FeatureSpec, or all tf.tpu.experimental.embedding.FeatureConfig")  # fmt: skip
    return from_tensorflow(described, optimizer)


def _check(feature: FeatureSpec, config: TrainConfig, buckets: Mapping[str, int], where: str) -> None:
    if feature.name not in buckets:
        raise ConfigError("a feature of embeddings must have the name of an embedded input", where=where, value=feature.name,
                          allowed=nearest(feature.name, list(buckets)))  # fmt: skip
    if feature.table.vocabulary_size < buckets[feature.name]:
        raise ConfigError("a table must have a row for every bucket of its input", where=f"{where}, table {feature.table.name}",
                          value=feature.table.vocabulary_size, allowed=f">= {buckets[feature.name]}, for input {feature.name}",
                          next_step="raise vocabulary_size, or hash the input into fewer buckets")  # fmt: skip
    for option in ("dims", "combiners", "tables", "sequences"):
        if feature.name in getattr(config, option):
            raise ConfigError("an option must not describe an input that embeddings describes", where=option,
                              value=feature.name, next_step=f"leave it out of {option}, or of embeddings")  # fmt: skip
