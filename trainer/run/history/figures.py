"""The figures of windows or commits, as columns by name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from trainer.run.history.columns import HistoryLayout
from transforms.analysis.target import Task
from transforms.arrays import Array

_Column = Callable[[str], Array]

#: Names of the figures of a label, by task.
LABEL_FIGURES: Final[Mapping[Task, tuple[str, ...]]] = {
    "binary": ("log_loss", "normalized_entropy", "auc", "calibration"),
    "multiclass": ("log_loss", "normalized_entropy", "accuracy"),
    "regression": ("mean_squared_error", "normalized_error", "mean_absolute_error"),
}
#: What a figure may be drawn over: optimizer steps, events, and seconds of training, all since the history began.
AXES: Final = ("step", "events", "secs")


def figures(layout: HistoryLayout, rows: Array) -> dict[str, Array]:
    """Figures of windows or commits, float64 [rows] each; NaN where one is not measured, or not defined.

    First the place of each row: ``step`` and ``commit`` are numbers of the run, ``epoch`` counts from 0 and ``pass`` from 1, ``events`` and
    ``secs`` are those since the history began, and ``ended_at`` is in epoch seconds. Then rates and shares, then the figures of labels; with
    several labels their names are ``label/figure``.
    """

    def own(name: str) -> Array:
        return layout.column(rows, name)

    secs = own("secs")
    found = {
        "step": own("step"),
        "commit": own("commit"),
        "epoch": own("epoch"),
        "pass": own("pass_number") + 1,
        "events": np.cumsum(own("events")),
        "secs": np.cumsum(secs),
        "ended_at": own("ended_at"),
        "steps": own("steps"),
        "rows_per_sec": _over(own("events"), secs),
        "steps_per_sec": _over(own("steps"), secs),
        "data_wait_share": _over(np.minimum(own("data_wait_secs"), secs), secs),
        "row_wait_share": _over(np.minimum(own("row_wait_secs"), secs), secs),
        "buffer_fullness": _over(own("fullness"), own("fullness_samples")),
        "staleness": _over(own("missed_updates"), own("lookups")),
        "gradient_norm": _over(own("gradient_norms"), own("gradient_steps")),
        "idle_units_share": _over(own("idle_units"), own("hidden_units")),
    }
    for label, task in layout.labels:
        prefix = f"{label}/" if label else ""

        def column(name: str, label: str = label) -> Array:
            return layout.column(rows, name, label)

        of_label = _FIGURES[task](column)
        found |= {f"{prefix}{name}": values for name, values in zip(LABEL_FIGURES[task], of_label, strict=True)}
    return found


def _binary(column: _Column) -> tuple[Array, ...]:
    events, positives = column("events"), column("positives")
    loss, rate = _over(column("loss"), events), _over(positives, events)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    return (
        loss,
        _over(loss, np.where(entropy > 0, entropy, 0.0)),
        _over(column("ranked"), column("pairs")),
        _over(column("predicted"), positives),
    )


def _classes(column: _Column) -> tuple[Array, ...]:
    events = column("events")
    return _over(column("loss"), events), _over(column("loss"), column("baseline")), _over(column("hits"), events)


def _numbers(column: _Column) -> tuple[Array, ...]:
    events = column("events")
    return _over(column("squared"), events), _over(column("squared"), column("baseline")), _over(column("absolute"), events)  # fmt: skip


_FIGURES: Final[Mapping[Task, Callable[[_Column], tuple[Array, ...]]]] = {
    "binary": _binary,
    "multiclass": _classes,
    "regression": _numbers,
}


def _over(values: Array, by: Array) -> Array:
    """The quotient; NaN where ``by`` is 0."""
    found: Array = np.divide(values, by, out=np.full(len(values), np.nan), where=by > 0)
    return found
