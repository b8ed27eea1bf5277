"""TensorFlow's settings for the whole process, before a model is built."""

from __future__ import annotations

import os

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


def hide_gpus() -> None:
    """Keep TensorFlow of this process off GPUs, which processes that it starts may use."""
    tf.config.set_visible_devices([], "GPU")


def use_gpus() -> None:
    """Let TensorFlow take the memory of GPUs as it needs it, before its first use. Raises :class:`ConfigError` if it sees no GPU."""
    check_gpus()
    for one in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(one, True)


def check_gpus() -> None:
    """Raise :class:`ConfigError` if TensorFlow sees no GPU, also where :func:`hide_gpus` keeps this process off them."""
    if tf.config.list_physical_devices("GPU"):
        return
    seen = ", ".join(one.name.removeprefix("/physical_device:") for one in tf.config.list_physical_devices())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}"
    built = "with" if tf.test.is_built_with_cuda() else "without"
    raise ConfigError("--device gpu must have a GPU that TensorFlow sees", where="--device gpu",
                      value=f"TensorFlow {tf.__version__}, built {built} CUDA, sees {seen}{hidden}",
                      allowed="at least one GPU",
                      next_step='look at nvidia-smi; install the libraries by pip install "tensorflow[and-cuda]"; or train with --device cpu')  # fmt: skip
