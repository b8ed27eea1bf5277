"""The figures of predictions, of any task and of several labels, for tables, sentences and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.screens.json_fields import fields_of

if TYPE_CHECKING:
    from trainer.model.metrics import AnyScores

#: The heading of each figure that scores may have.
_HEADINGS = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "normalized_entropy": "NE",
    "calibration": "calibration",
    "mean_absolute_error": "MAE",
    "mean_squared_error": "MSE",
    "normalized_error": "MSE/variance",
}
#: Headings that are spelled out in sentences.
_SPELLED = {"NE": "normalized entropy"}


def shown_figures(scores: AnyScores) -> dict[str, str]:
    """The figures by heading; "-" for one that is undefined, for example with only one label."""
    return {_HEADINGS[name]: figure_text(value) for name, value in fields_of(scores).items() if name in _HEADINGS}


def figure_text(value: float | None) -> str:
    """A figure; "-" if it is undefined."""
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.5g}"


def sentence_of(scores: AnyScores) -> str:
    """The figures of one label in a sentence."""
    return ", ".join(f"{_SPELLED.get(name, name)} {text}" for name, text in shown_figures(scores).items())


def scores_by_task(scores: AnyScores) -> Mapping[str, AnyScores]:
    """The scores of each of several labels; none of one label."""
    return getattr(scores, "tasks", {})


def scores_by_label(scores: AnyScores) -> Mapping[str, AnyScores]:
    """The scores of each label; "" is the name of the only one."""
    return scores_by_task(scores) or {"": scores}


def score_fields(scores: AnyScores) -> dict[str, Any]:
    """The scores as fields of JSON."""
    if tasks := scores_by_task(scores):
        return {"events": scores.events, "tasks": {name: score_fields(one) for name, one in tasks.items()}}
    return fields_of(scores, "positives")
