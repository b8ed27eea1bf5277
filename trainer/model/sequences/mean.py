"""The mean of the rows of a sequence."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class MeanPooling:
    """The mean over the places that an event has; zeros for none. See :class:`~trainer.model.sequences.network.Encoder`."""

    trainable: tuple[Any, ...] = ()
    drops: tuple[Any, ...] = ()

    def __call__(self, rows: Any, target: Any, present: Any, *, training: bool) -> Any:
        """[events, columns]; see :class:`~trainer.model.sequences.network.Encoder`."""
        total = tf.matmul(present[:, None, :], rows)[:, 0]
        return tf.math.divide_no_nan(total, tf.reduce_sum(present, axis=1, keepdims=True))
