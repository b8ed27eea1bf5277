"""Embedding tables that a user describes."""

from __future__ import annotations

from trainer.tables import Adagrad, Adam, Constant, FeatureSpec, Normal, Quantization, TableSpec


def as_the_options():
    """Those of the defaults of :func:`tests.trainer.synthetic.config`, for the input ``user``."""
    rows = TableSpec("user", 200, 4, Adagrad(0.05, 1e-8), "mean", Normal(0.0, 0.01))
    return [FeatureSpec("user", rows)]


def light():
    return [
        FeatureSpec("a", one := TableSpec("one", 16, 6, Adam(0.02), "sqrtn", Constant(0.1))),
        FeatureSpec("b", one, 2),
    ]


def tensorflow_nest():
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    one = embedding.TableConfig(
        16, 6, optimizer=embedding.Adam(0.02), combiner="sqrtn", name="one", initializer=tf.constant_initializer(0.1)
    )
    return {"a": embedding.FeatureConfig(one), "b": embedding.FeatureConfig(one, max_sequence_length=2)}


def without_optimizer():
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    return {"a": embedding.FeatureConfig(embedding.TableConfig(10, 6, name="one"))}


def served():
    """For the inputs of ``tests/headrace/test_trained_export.py``."""
    ids = TableSpec("padded", 70, 6, Adagrad(0.03, 1e-8), quantization=Quantization(64, -1.0, 1.0))
    return [
        FeatureSpec("weighted", TableSpec("weighted", 60, 5, Adam(0.01), "sqrtn")),
        FeatureSpec("padded", ids, max_sequence_length=2),
        FeatureSpec("words", TableSpec("words", 300, 8, Adagrad(0.03, 1e-8), "sqrtn"), max_sequence_length=3),
    ]


def of_another_input():
    return [FeatureSpec("aa", TableSpec("one", 16, 6, Adam(0.02)))]


def too_small():
    return [FeatureSpec("a", TableSpec("one", 9, 6, Adam(0.02)))]


def twice():
    return light() + light()


def mixed():
    return [*light(), *tensorflow_nest().values()]


def no_features():
    return {"a": 3}


def failing():
    raise OSError("the vocabulary file is missing")


def unsupported():
    import tensorflow as tf

    embedding = tf.tpu.experimental.embedding
    table = embedding.TableConfig(16, 6, combiner="mean", initializer=lambda shape, dtype: tf.zeros(shape, dtype))
    return {"a": embedding.FeatureConfig(table)}


def of_a_job():
    """For two inputs of the model of ``tests/warehouse/scenes.py``."""
    shared = TableSpec("shared", 120, 6, Adam(0.02), "sqrtn")
    return [FeatureSpec("input_0", shared), FeatureSpec("input_1", shared, max_sequence_length=2)]


NOT_A_FUNCTION = 3
