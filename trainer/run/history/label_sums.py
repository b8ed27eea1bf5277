"""Sums over the predictions of a part of a window, from which its figures are made. Pure, and deterministic for equal parts.

They cost a few nanoseconds an event, so predictions are float32: a loss is known to about 1e-6. Pairs are counted by logits in steps of
1/64 up to ±16; those of the same step count half.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.model.heads import Head
from trainer.model.metrics import softmax
from trainer.model.task_heads import AnyHead, TaskHeads
from transforms.arrays import Array

#: Probabilities are at least this, as in :mod:`trainer.model.metrics`.
_LEAST: Final = 1e-15
_MOST_LOGIT, _STEPS_A_LOGIT = 16, 64
_BINS: Final = 2 * _MOST_LOGIT * _STEPS_A_LOGIT
#: Events that are looked at together.
_BLOCK: Final = 1 << 14


def label_sums(head: AnyHead, labels: Array, logits: Array) -> Array:
    """The sums of all labels, one label after the other, float64.

    Args:
        labels: of events, float32 [events], or [events, tasks] with NaN where an event has no label.
        logits: [events] or [events, outputs], finite.
    """
    if not isinstance(head, TaskHeads):
        return _sums_of(head, labels, logits)
    found = []
    for k, (name, one) in enumerate(head.each):
        known = ~np.isnan(labels[:, k])
        found.append(_sums_of(one, labels[known, k], head.logits_of(name, logits[known])))
    return np.concatenate(found)


def _sums_of(head: Head, labels: Array, logits: Array) -> Array:
    if head.task == "binary":
        return _binary(labels, logits)
    return _classes(head, labels, logits) if head.task == "multiclass" else _numbers(head, labels, logits)


def _binary(labels: Array, logits: Array) -> Array:
    """Events, loss, positives, predicted positives, pairs, and pairs in the right order."""
    loss = predicted = 0.0
    counts = np.zeros(2 * _BINS, np.int64)
    for first in range(0, len(labels), _BLOCK):
        x = np.asarray(logits[first : first + _BLOCK], np.float32)
        y = np.asarray(labels[first : first + _BLOCK], np.float32)
        small = np.exp(-np.abs(x))
        whole = small + np.float32(1)
        loss += float((np.log(whole) + np.maximum(x, 0) - x * y).sum(dtype=np.float64))
        predicted += float((np.where(x >= 0, np.float32(1), small) / whole).sum(dtype=np.float64))
        limit = np.float32(_MOST_LOGIT)
        bins = ((np.clip(x, -limit, limit) + limit) * np.float32(_STEPS_A_LOGIT)).astype(np.int32)
        np.minimum(bins, _BINS - 1, out=bins)
        bins += (y > 0) * np.int32(_BINS)
        counts += np.bincount(bins, minlength=2 * _BINS)
    negatives, positives = counts[:_BINS], counts[_BINS:]
    below = np.cumsum(negatives) - negatives
    of_positives = int(positives.sum())
    pairs = float(of_positives) * float(len(labels) - of_positives)
    ranked = float((positives * (below + 0.5 * negatives)).sum())
    return np.array([len(labels), max(loss, 0.0), of_positives, predicted, pairs, ranked])


def _classes(head: Head, labels: Array, logits: Array) -> Array:
    """Events, loss, hits, and the loss of the classes' frequencies."""
    loss = hits = 0.0
    counts = np.zeros(head.classes, np.int64)
    for first in range(0, len(labels), _BLOCK):
        own = labels[first : first + _BLOCK].astype(np.int64)
        outputs = logits[first : first + _BLOCK]
        chances = softmax(outputs)[np.arange(len(own)), own]
        loss -= float(np.log(np.maximum(chances, _LEAST)).sum())
        hits += int((np.argmax(outputs, axis=1) == own).sum())
        counts += np.bincount(own, minlength=head.classes)
    seen = counts[counts > 0]
    baseline = -float((seen * np.log(seen / max(len(labels), 1))).sum())
    return np.array([len(labels), max(loss, 0.0), hits, max(baseline, 0.0)])


def _numbers(head: Head, labels: Array, outputs: Array) -> Array:
    """Events, squared and absolute errors in the label's own unit, and the squared distance from the mean label."""
    known = labels.astype(np.float64)
    errors = head.predictions(outputs) - known
    spread = known - known.mean() if len(known) else known
    return np.array([len(known), np.square(errors).sum(), np.abs(errors).sum(), np.square(spread).sum()])
