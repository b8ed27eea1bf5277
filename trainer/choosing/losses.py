"""The losses of single events in float64, for comparisons of candidates on the same events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.model.heads import Head
from trainer.model.task_heads import AnyHead

Array = np.ndarray[Any, np.dtype[Any]]


def constant_logits(head: AnyHead, labels: Sequence[Array], rows: int) -> Array:
    """Logits that predict the mean of ``labels`` for each of ``rows`` events, of each task if there are several."""
    known = np.concatenate(labels).astype(np.float64)
    if isinstance(head, Head):
        return _constant_of(head, known, rows)
    columns = [(one, known[:, t]) for t, (_, one) in enumerate(head.each)]
    parts = [_constant_of(one, values[~np.isnan(values)], rows).reshape(rows, -1) for one, values in columns]
    return np.concatenate(parts, axis=1)


def _constant_of(head: Head, known: Array, rows: int) -> Array:
    if head.task == "multiclass":
        counts = np.bincount(known.astype(np.int64), minlength=head.classes) + 0.5
        return np.tile(np.log(counts / counts.sum()), (rows, 1))
    if head.task == "binary":
        rate = (known.sum() + 0.5) / (len(known) + 1)
        return np.full(rows, np.log(rate / (1 - rate)))
    return np.full(rows, (known.mean() - head.center) / head.scale if len(known) else 0.0)


def event_losses(head: AnyHead, labels: Array, logits: Array, weights: Mapping[str, float] | None = None) -> Array:
    """The loss of every event, float64: nats, or for a regression squared deviations.

    Of several labels it is the sum of the losses of those that the event has, times the ``weights`` by name.
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
