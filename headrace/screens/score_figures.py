"""The figures of predictions, of any task and of several labels, for tables, sentences and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.screens.json_fields import fields_of

if TYPE_CHECKING:
    from trainer.model.scores import AnyScores

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
_T = TypeVar("_T")
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


@dataclass(frozen=True, slots=True)
class FigureRow(Generic[_T]):
    """The figures of a label.

    Attributes:
        of: what was scored.
        label: its name; empty if there is only one.
        events: that were scored; None without scores.
        cells: the figures in the order of the table's headings.
    """

    of: _T
    label: str
    events: int | None
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FigureTable(Generic[_T]):
    """Scores as a table with a row for each label; ``has_labels``: some have several."""

    headings: tuple[str, ...]
    rows: tuple[FigureRow[_T], ...]

    @property
    def has_labels(self) -> bool:
        """Whether a row has the name of a label."""
        return any(row.label for row in self.rows)


def figure_table(scored: Iterable[tuple[_T, AnyScores | None]]) -> FigureTable[_T]:
    """The figures of scores, which may have other labels and tasks; "-" for what one does not have."""
    found: list[tuple[_T, str, int | None, dict[str, str]]] = []
    for of, scores in scored:
        if scores is None:
            found.append((of, "", None, {}))
            continue
        found += [(of, label, one.events, shown_figures(one)) for label, one in scores_by_label(scores).items()]
    headings = tuple(dict.fromkeys(name for *_, cells in found for name in cells))
    rows = (FigureRow(of, label, events, tuple(cells.get(name, "-") for name in headings)) for of, label, events, cells in found)  # fmt: skip
    return FigureTable(headings, tuple(rows))
