"""TensorFlow's settings for the whole process, before a model is built."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig


def prepare_tensorflow(config: TrainConfig) -> None:
    """Set TensorFlow's threads and, if configured, deterministic operators, for the whole process.

    Raises :class:`ConfigError` if ``deterministic`` is set and TensorFlow already runs with other threads, or if Keras has
    another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ConfigError("the Keras backend must be TensorFlow", value=keras.backend.backend(), allowed="tensorflow",
                          next_step="unset KERAS_BACKEND")  # fmt: skip
    threading = tf.config.threading
    try:
        threading.set_intra_op_parallelism_threads(config.threads)
        threading.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:
        running = (threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
        if config.deterministic and running != (config.threads, 1):
            raise ConfigError(
                "TensorFlow must not run with other threads before deterministic training",
                value=running,
                allowed=str((config.threads, 1)),
                next_step="train in a new process, or with deterministic off",
            ) from error
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
