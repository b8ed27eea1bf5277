"""The loss of every event, by its label and logits. Pure, float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.model.heads import Head
from trainer.model.task_heads import AnyHead
from transforms.arrays import Array


def event_losses(head: AnyHead, labels: Array, logits: Array, weights: Mapping[str, float] | None = None) -> Array:
    """The loss of every event, float64 [rows]: nats, or for a regression squared deviations.

    Of several labels it is the sum of the losses of those that the event has, times their ``weights`` by name (1 by default).
    """
    logits = np.asarray(logits, np.float64)
    if isinstance(head, Head):
        return _losses_of(head, labels, logits)
    total = np.zeros(len(labels))
    for t, (name, one) in enumerate(head.each):
        known = ~np.isnan(labels[:, t])
        own = head.logits_of(name, logits)
        total[known] += (weights or {}).get(name, 1.0) * _losses_of(one, labels[known, t], own[known])
    return total


def _losses_of(head: Head, labels: Array, logits: Array) -> Array:
    if head.task == "multiclass":
        shifted = logits - logits.max(axis=1, keepdims=True)
        chosen = shifted[np.arange(len(labels)), labels.astype(np.int64)]
        return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - chosen)
    if head.task == "binary":
        return np.asarray(np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits))))
    return np.asarray((logits - head.targets(labels)) ** 2)
