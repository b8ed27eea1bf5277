"""scikit-learn's logistic regression and gradient-boosted trees over the events of a quality scene.

Both get the inputs of Headrace's model, and each has an option chosen on the newest quarter of the training range.
Logistic regression sees a column for every hashed id and standardised numbers. Trees cannot split by a hundred thousand ids,
so an input of ids becomes, as is usual, the number of ids and the smoothed rate and the count of the ids in the training
range (means over the event's ids); of trained events these are of the other folds. An input of one id below 256
buckets is also a category.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.support.quality_scene import Events
from trainer.model.metrics import log_loss

Array = np.ndarray[Any, np.dtype[Any]]

_VALIDATED_SHARE = 0.25
_INVERSE_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_MOST_TREES = 300
_TREE_RATES = (0.05, 0.1)
_FOLDS = 5
_PRIOR_EVENTS = 20.0
_MOST_CATEGORIES = 255


def logistic_regression(trained: Events, tested: Events) -> Callable[[int], Array]:
    """Fit; the result gives the tested events' probabilities, which depend on no seed."""
    ours, theirs = _split(trained)
    columns, validated = _linear_columns(ours, theirs)
    losses = {c: log_loss(theirs.labels, _fit_linear(columns, ours.labels, validated, c)) for c in _INVERSE_PENALTIES}
    columns, test_columns = _linear_columns(trained, tested)
    found = _fit_linear(columns, trained.labels, test_columns, min(losses, key=losses.__getitem__))
    return lambda seed: found


def boosted_trees(trained: Events, tested: Events) -> Callable[[int], Array]:
    """Choose the learning rate and the number of trees; the result fits with a seed and predicts the tested events."""
    ours, theirs = _split(trained)
    features, validated, categories = _tree_features(ours, theirs)
    best: tuple[float, float, int] = (np.inf, 0.1, 1)
    for rate in _TREE_RATES:
        model = _trees(rate, _MOST_TREES, 0, categories).fit(features, ours.labels)
        for count, p in enumerate(model.staged_predict_proba(validated), start=1):
            best = min(best, (log_loss(theirs.labels, p[:, 1]), rate, count))
    whole, test, categories = _tree_features(trained, tested)
    return lambda seed: np.asarray(
        _trees(best[1], best[2], seed, categories).fit(whole, trained.labels).predict_proba(test)[:, 1]
    )


def _split(trained: Events) -> tuple[Events, Events]:
    at = round(trained.rows * (1 - _VALIDATED_SHARE))
    return trained.take(0, at), trained.take(at, trained.rows)


def _linear_columns(trained: Events, tested: Events) -> tuple[Any, Any]:
    columns, test_columns = trained.one_hot(), tested.one_hot()
    if trained.dense.shape[1]:
        scaler = StandardScaler().fit(trained.dense)
        columns = sp.hstack([columns, sp.csr_matrix(scaler.transform(trained.dense))]).tocsr()
        test_columns = sp.hstack([test_columns, sp.csr_matrix(scaler.transform(tested.dense))]).tocsr()
    return columns, test_columns


def _fit_linear(columns: Any, labels: Array, tested: Any, inverse_penalty: float) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the limit of iterations
        fitted = LogisticRegression(C=inverse_penalty, max_iter=200).fit(columns, labels)
    return np.asarray(fitted.predict_proba(tested)[:, 1])


def _trees(rate: float, count: int, seed: int, categories: list[bool]) -> Any:
    return HistGradientBoostingClassifier(
        learning_rate=rate, max_iter=count, early_stopping=False, categorical_features=categories, random_state=seed,
        min_samples_leaf=50, max_features=0.5,
    )  # fmt: skip


def _tree_features(trained: Events, tested: Events) -> tuple[Array, Array, list[bool]]:
    """Columns of the trained and of the tested events, and which of them are categories."""
    columns, test_columns, categories = [trained.dense], [tested.dense], [False] * trained.dense.shape[1]
    fold = np.arange(trained.rows) * _FOLDS // max(trained.rows, 1)
    for f, buckets in enumerate(trained.buckets):
        ids, starts = trained.ids[f], trained.starts[f]
        lengths = np.diff(starts)
        event = np.repeat(np.arange(trained.rows), lengths)
        clicks = trained.labels[event].astype(np.float64)
        sums, counts = (np.bincount(ids, each, buckets) for each in (clicks, np.ones(len(ids))))
        prior = float(trained.labels.mean())
        own = np.zeros((len(ids), 2))
        for number in range(_FOLDS):
            inside = fold[event] == number
            less = [np.bincount(ids[inside], each[inside], buckets) for each in (clicks, np.ones(len(ids)))]
            own[inside] = _encoded(ids[inside], sums - less[0], (counts - less[1]) * _FOLDS / (_FOLDS - 1), prior)
        columns.append(_means(own, starts))
        test_ids, test_starts = tested.ids[f], tested.starts[f]
        test_columns.append(_means(_encoded(test_ids, sums, counts, prior), test_starts))
        categories += [False] * 3
        if buckets <= _MOST_CATEGORIES and (lengths <= 1).all() and (np.diff(test_starts) <= 1).all():
            columns.append(_first(ids, starts))
            test_columns.append(_first(test_ids, test_starts))
            categories.append(True)
    return np.hstack(columns), np.hstack(test_columns), categories


def _encoded(ids: Array, sums: Array, counts: Array, prior: float) -> Array:
    """The smoothed rate and the logarithm of the count of each id."""
    rates = (sums + _PRIOR_EVENTS * prior) / (counts + _PRIOR_EVENTS)
    return np.stack([rates[ids], np.log1p(counts[ids])], axis=1)


def _means(values: Array, starts: Array) -> Array:
    """The means over the ids of each event, NaN without any, and the number of its ids."""
    lengths = np.diff(starts)
    sums = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    with np.errstate(invalid="ignore"):
        means = (sums[starts[1:]] - sums[starts[:-1]]) / np.where(lengths, lengths, np.nan)[:, None]
    return np.hstack([means, lengths[:, None]])


def _first(ids: Array, starts: Array) -> Array:
    """The only id of each event, NaN without one."""
    found = np.full(len(starts) - 1, np.nan)
    has = np.diff(starts) > 0
    found[has] = ids[starts[:-1][has]]
    return found[:, None]
