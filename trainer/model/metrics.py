"""Metrics of predictions, over the events of this process or of several hosts: equal for any order and any division of the events.

Counts are whole numbers, and sums of float64 are rounded once (:mod:`trainer.evaluation`).

An undefined metric (no events, one class only) is NaN; :class:`~trainer.model.scores.Scores` turns it into None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trainer.errors import BadLabel, TornCheckpoint
from trainer.model.scores import ClassScores, RegressionScores, Scores, TasksScores
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.evaluation.host_totals import HostTotals
    from trainer.tables.routes.exchange import Exchange

#: Probabilities are clipped to [EPSILON, 1 - EPSILON] before a logarithm is taken.
EPSILON = 1e-15
#: Events whose figures are computed at once.
_BLOCK = 1 << 18


def auc(labels: Array, scores: Array) -> float:
    """Area under the ROC curve: the probability that a positive outranks a negative, ties counting half.

    Exact, and correctly rounded: see :mod:`trainer.evaluation.rank_counts`. ``labels`` are 0 or 1. NaN when only one class occurs. Raises
    :class:`BadFeature` for a score that is NaN.
    """
    return _alone().rank_counts(_binary(labels), scores).auc


def log_loss(labels: Array, probabilities: Array) -> float:
    """Mean of ``-ln`` of the predicted probability of the label, in nats. NaN for no events."""
    return _Binary(labels, probabilities, _alone()).log_loss


def normalized_entropy(labels: Array, probabilities: Array) -> float:
    """Log loss divided by that of the events' mean rate: below 1 is better than knowing only the rate.

    He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook" (ADKDD 2014), equation 1. NaN for one class.
    """
    return _Binary(labels, probabilities, _alone()).normalized_entropy


def calibration(labels: Array, probabilities: Array) -> float:
    """Predicted over observed: the sum of the probabilities divided by the number of positives; 1 is ideal.

    McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013), section 6. NaN without positives.
    """
    return _Binary(labels, probabilities, _alone()).calibration


def _alone() -> HostTotals:
    return _totals(None)


def _totals(exchange: Exchange | None) -> HostTotals:
    """Totals over these hosts; None: over this process."""
    from trainer.evaluation.host_totals import HostTotals  # imports numba, which processes that read scores do without

    return HostTotals() if exchange is None else HostTotals(exchange)


class _Binary:
    """The figures of binary predictions, over the events of all hosts.

    Args:
        labels: 0 or 1, of this host's events.
        predictions: their probabilities of 1, or their log odds.
        totals: of the hosts, all of which make one at once.
    """

    def __init__(self, labels: Array, predictions: Array, totals: HostTotals, *, are_logits: bool = False) -> None:
        self._positive, self._predictions, self._are_logits = _binary(labels), predictions, are_logits
        self.events, self.positives = totals.counts([len(self._positive), int(np.count_nonzero(self._positive))])
        losses, chances = totals.sums(self._losses(), (chances for _, chances in self._blocks()))
        self.rate = self.positives / self.events if self.events else math.nan
        self.log_loss = losses.over(self.events) if self.events else math.nan
        self.calibration = chances.over(self.positives) if self.positives else math.nan
        self._totals = totals

    @property
    def _entropy(self) -> float:
        """The log loss of the mean rate; NaN for one class."""
        rate = self.rate
        return -(rate * math.log(rate) + (1.0 - rate) * math.log1p(-rate)) if 0.0 < rate < 1.0 else math.nan

    @property
    def normalized_entropy(self) -> float:
        return self.log_loss / self._entropy

    def normalized_entropy_error(self) -> float:
        """The standard error of the normalized entropy as a comparison with the mean rate, paired by event; all hosts call it."""
        if math.isnan(entropy := self._entropy):
            return math.nan
        gained = self.log_loss - entropy

        def squares() -> Iterator[Array]:
            for (positive, _), losses in zip(self._blocks(), self._losses(), strict=True):
                base = np.where(positive, math.log(self.rate), math.log1p(-self.rate))
                yield np.square(losses + base - gained)

        (total,) = self._totals.sums(squares())
        return math.sqrt(total.over(self.events - 1)) / math.sqrt(self.events) / entropy

    def spread(self) -> float:
        """The standard deviation of the number of positives, were the predictions the true chances; all hosts call it."""
        (total,) = self._totals.sums(chances * (1 - chances) for _, chances in self._blocks())
        return math.sqrt(total.value)

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """Whether events are positive, and their probabilities."""
        for first in range(0, len(self._positive), _BLOCK):
            own = self._predictions[first : first + _BLOCK]
            chances = sigmoid(own) if self._are_logits else np.asarray(own, np.float64)
            yield self._positive[first : first + _BLOCK], chances

    def _losses(self) -> Iterator[Array]:
        for positive, chances in self._blocks():
            p = np.clip(chances, EPSILON, 1.0 - EPSILON)
            yield -np.where(positive, np.log(p), np.log1p(-p))


def chances_spread(labels: Array, logits: Array, exchange: Exchange | None = None) -> float:
    """The standard deviation of the number of positives of all hosts, were the predictions the true chances."""
    return _Binary(labels, logits, _totals(exchange), are_logits=True).spread()


def _binary(labels: Array) -> Array:
    values = np.asarray(labels)
    positive: Array = values == 1
    if not np.all(positive | (values == 0)):
        raise BadLabel("labels must be 0 or 1", value=values[~(positive | (values == 0))][0].item())
    return positive


class _Predictions:
    """Arrays about predictions, collected batch by batch."""

    #: The type of each array.
    types: ClassVar[Mapping[str, str]]

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {name: [np.zeros(0, dtype)] for name, dtype in self.types.items()}

    def _add(self, **arrays: Array) -> None:
        for name, array in arrays.items():
            self._parts[name].append(np.array(array, self.types[name]))

    def arrays(self) -> dict[str, Array]:
        """All that was collected, by name: equal contents give equal bytes."""
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the :meth:`arrays` of a collector. Raises :class:`TornCheckpoint` if they do not fit."""
        found = {name: str(array.dtype) for name, array in arrays.items()}
        if found != dict(self.types) or len({array.shape for array in arrays.values()}) != 1:
            raise TornCheckpoint("saved predictions must be those of the model's task", value=sorted(found.items()),
                                 allowed=", ".join(self.types))  # fmt: skip
        self._parts = {name: [np.array(array)] for name, array in arrays.items()}


class Collector(_Predictions):
    """Collects predictions batch by batch; the metrics do not depend on the batches."""

    types = MappingProxyType({"labels": "int8", "logits": "float64"})

    def add(self, labels: Array, logits: Array) -> None:
        """Add a copy of one batch: labels 0 or 1 and their predicted log odds."""
        self._add(labels=labels, logits=logits)

    def merge(self, other: Collector) -> None:
        """Add the content of another collector."""
        self._add(**other.arrays())

    def scores(self, exchange: Exchange | None = None) -> Scores:
        """The figures over everything taken so far, by all hosts of ``exchange``, which call it at once; None: by this process."""
        labels, logits = self.arrays().values()
        totals = _totals(exchange)
        area = totals.rank_counts(_binary(labels), logits).auc
        found = _Binary(labels, logits, totals, are_logits=True)
        return Scores(
            events=found.events,
            positives=found.positives,
            auc=_defined(area),
            log_loss=_defined(found.log_loss),
            normalized_entropy=_defined(found.normalized_entropy),
            calibration=_defined(found.calibration),
            normalized_entropy_error=_defined(found.normalized_entropy_error()),
        )


class ClassCollector(_Predictions):
    """Collects multi-class predictions batch by batch: a loss, a hit and a class per event."""

    types = MappingProxyType({"labels": "int32", "losses": "float64", "hits": "bool"})

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._classes = classes

    def add(self, labels: Array, logits: Array) -> None:
        """Add one batch: classes [rows] and logits [rows, classes]."""
        own = np.array(labels, np.int32)
        losses = -np.log(np.maximum(softmax(logits)[np.arange(len(own)), own], EPSILON))
        self._add(labels=own, losses=losses, hits=np.argmax(logits, axis=1) == own)

    def scores(self, exchange: Exchange | None = None) -> ClassScores:
        """See :meth:`Collector.scores`."""
        labels, losses, hits = self.arrays().values()
        totals = _totals(exchange)
        events, hit, *counts = totals.counts(
            [len(labels), int(np.count_nonzero(hits)), *np.bincount(labels, minlength=self._classes).tolist()]
        )
        (total,) = totals.sums([losses])
        if not events:
            return ClassScores(0, None, None, None)
        loss, share = total.over(events), np.array(counts) / events
        entropy = float(-np.sum(share[share > 0] * np.log(share[share > 0])))
        return ClassScores(events, hit / events, loss, loss / entropy if entropy > 0 else None)


class RegressionCollector(_Predictions):
    """Collects predicted numbers batch by batch; ``center`` and ``scale`` convert outputs to the label's unit."""

    types = MappingProxyType({"labels": "float64", "outputs": "float64"})

    def __init__(self, center: float, scale: float) -> None:
        super().__init__()
        self._center = center
        self._scale = scale

    def add(self, labels: Array, logits: Array) -> None:
        """Add a copy of one batch: labels in their own unit, and the outputs."""
        self._add(labels=labels, outputs=logits)

    def scores(self, exchange: Exchange | None = None) -> RegressionScores:
        """See :meth:`Collector.scores`."""
        labels, outputs = self.arrays().values()
        totals = _totals(exchange)
        (events,) = totals.counts([len(labels)])
        errors = outputs * self._scale + self._center - labels
        with np.errstate(over="ignore"):
            absolute, squared, total = totals.sums([np.abs(errors)], [np.square(errors)], [labels])
            if not events:
                return RegressionScores(0, None, None, None)
            (spread,) = totals.sums([np.square(labels - total.over(events))])
        error, variance = squared.over(events), spread.over(events)
        return RegressionScores(events, absolute.over(events), error, error / variance if variance > 0 else None)


TaskCollector = Collector | ClassCollector | RegressionCollector


class TasksCollector:
    """Collects the predictions of several labels; an event counts for the labels that it has.

    Args:
        tasks: the collector and the logits of each label, by name.
    """

    def __init__(self, tasks: Mapping[str, tuple[TaskCollector, slice]]) -> None:
        self._tasks = dict(tasks)
        self._events = 0

    def add(self, labels: Array, logits: Array) -> None:
        """Add one batch: labels [rows, tasks], NaN where there is none, and logits [rows, outputs]."""
        self._events += len(labels)
        for t, (collector, columns) in enumerate(self._tasks.values()):
            known = ~np.isnan(labels[:, t])
            own = logits[known, columns]
            collector.add(labels[known, t], own if isinstance(collector, ClassCollector) else own[:, 0])

    def arrays(self) -> dict[str, Array]:
        """All that was collected, by task and name: equal contents give equal bytes."""
        found = {
            f"{name}/{key}": array for name, (one, _) in self._tasks.items() for key, array in one.arrays().items()
        }
        return {"events": np.array([self._events], np.int64), **found}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the :meth:`arrays` of a collector. Raises :class:`TornCheckpoint` if they do not fit."""
        events = arrays.get("events", np.zeros(0))
        names = {name.rpartition("/")[0] for name in arrays if name != "events"}
        if events.shape != (1,) or events.dtype != np.int64 or names != self._tasks.keys():
            raise TornCheckpoint("saved predictions must be those of the model's tasks", value=sorted(arrays),
                                 allowed=", ".join(self._tasks))  # fmt: skip
        self._events = int(events[0])
        for name, (collector, _) in self._tasks.items():
            own = {key.rpartition("/")[2]: array for key, array in arrays.items() if key.rpartition("/")[0] == name}
            collector.load(own)

    def scores(self, exchange: Exchange | None = None) -> TasksScores:
        """See :meth:`Collector.scores`."""
        (events,) = _totals(exchange).counts([self._events])
        return TasksScores(events, {name: one.scores(exchange) for name, (one, _) in self._tasks.items()})


AnyCollector = TaskCollector | TasksCollector


def softmax(logits: Array) -> Array:
    """``e^x / sum(e^x)`` of each row of [rows, classes], in float64, without overflow."""
    x = np.asarray(logits, np.float64)
    powers = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf)) if x.size else x
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(logits: Array) -> Array:
    """``1 / (1 + e^-x)`` in float64, without overflow."""
    x = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value
