"""The losses of heads, in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.model.heads import Head
from trainer.model.task_heads import AnyHead


def event_losses(head: AnyHead, labels: Any, logits: Any, weights: Mapping[str, float]) -> Any:
    """The loss of each event, float32 [rows].

    Of several labels it is the sum of the losses of those that the event has, times the ``weights`` by name (1 by default).
    """
    if isinstance(head, Head):
        return _losses(head, labels, logits)
    total = tf.zeros(tf.shape(labels)[:1])
    for t, (name, one) in enumerate(head.each):
        columns = head.columns[name]
        known = tf.logical_not(tf.math.is_nan(labels[:, t]))
        own = logits[:, columns] if one.width > 1 else logits[:, columns.start]
        # The label is replaced too: the gradient of a NaN that is not taken is NaN.
        losses = _losses(one, tf.where(known, labels[:, t], 0.0), own)
        total += weights.get(name, 1.0) * tf.where(known, losses, 0.0)
    return total


def _losses(head: Head, labels: Any, logits: Any) -> Any:
    if head.task == "binary":
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    if head.task == "multiclass":
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(labels, tf.int32), logits=logits)
    return tf.math.squared_difference(labels, logits)
