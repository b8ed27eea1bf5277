"""Logits of the base rate, with which candidates are compared on the same events. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.model.heads import Head
from trainer.model.task_heads import AnyHead
from transforms.arrays import Array


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
