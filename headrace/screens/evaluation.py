"""The screen of ``headrace evaluate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.score_figures import score_fields, scores_by_label, shown_figures
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, secs_text

if TYPE_CHECKING:
    from trainer.run.weights.run_state import RunProgress
    from trainer.serving.segmented import Evaluation, Figures, Segmented
    from warehouse.solution.solution import ReadSolution

_NO_VALUE = "no value"


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationScreen(Shown):
    """The figures of a trained model.

    Attributes:
        events: those that have a label.
        unlabelled: those that have none; they are not scored.
        partitions: their number.
        trained_partitions: those that the run has trained before, whose figures are no figures of unseen events.
        found: the figures.
    """

    model: str
    version: int
    checkpoint: str
    events: int
    unlabelled: int
    partitions: int
    trained_partitions: int
    found: Evaluation
    secs: float

    def json_fields(self) -> dict[str, Any]:
        """The fields; each figure of a segment beside its standard error."""
        by = [
            {
                "column": one.column,
                "values": one.values,
                "grouped_auc": one.grouped_auc.get("") if list(one.grouped_auc) == [""] else dict(one.grouped_auc),
                "segments": [{"value": each.value, **_json_figures(each.figures)} for each in one.segments],
                "others": None if one.others is None else _json_figures(one.others),
            }
            for one in self.found.by
        ]
        return {**fields_of(self, "found"), **_json_figures(self.found.figures), "by": by}

    def render(self) -> RenderableType:
        """All events, then a table for each column."""
        pairs = [("" if k else "all", text) for k, text in enumerate(_sentences(self.found.figures))]
        pairs.append(
            ("events", f"{count_text(self.events)}, in {many(self.partitions, 'partition')}, {self._whether_unseen()}")
        )
        if self.unlabelled:
            pairs.append(("", f"{many(self.unlabelled, 'more event')} without a label"))
        pairs.append(
            ("model", f"{self.model} version {self.version}, checkpoint {self.checkpoint}, in {secs_text(self.secs)}")
        )
        tables: list[RenderableType] = []
        for one in self.found.by:
            tables += ["", *_table(one)]
        return Group(facts(pairs), *tables)

    def _whether_unseen(self) -> str:
        if not self.trained_partitions:
            return "which this run has not trained"
        if self.trained_partitions == self.partitions:
            return "which this run has trained: unseen events are worse; name newer partitions with --start"
        return f"{count_text(self.trained_partitions)} of which this run has trained: unseen events are worse; name newer partitions with --start"


def evaluation_screen(
    solution: ReadSolution, found: Evaluation, checkpoint: str, progress: RunProgress, secs: float
) -> EvaluationScreen:
    """The screen of an evaluation of the partitions of ``solution``."""
    trained = {key for epoch in progress.history for key in epoch.partitions}
    return EvaluationScreen(
        model=solution.model,
        version=solution.model_version,
        checkpoint=checkpoint,
        events=found.figures.scores.events,
        unlabelled=solution.rows - found.figures.scores.events,
        partitions=len(solution.partitions),
        trained_partitions=sum(one.key in trained for one in solution.partitions),
        found=found,
        secs=secs,
    )


def _json_figures(figures: Figures) -> dict[str, Any]:
    fields, errors = score_fields(figures.scores), figures.errors
    if "tasks" in fields:
        tasks = {name: {**one, **_json_errors(errors, name)} for name, one in fields["tasks"].items()}
        return {**fields, "tasks": tasks}
    return {**fields, **_json_errors(errors, "")}


def _json_errors(errors: Mapping[str, Any], label: str) -> dict[str, float | None]:
    own = errors.get(label)
    return {} if own is None else {"auc_error": own.auc, "calibration_error": own.calibration}


def _sentences(figures: Figures) -> Iterator[str]:
    for name, scores in scores_by_label(figures.scores).items():
        text = ", ".join(f"{heading} {value}" for heading, value in _cells(figures, name, scores).items())
        yield f"{name}: {text}" if name else text


def _cells(figures: Figures, label: str, scores: Any) -> dict[str, str]:
    """The figures by heading, with their standard errors where these are known."""
    own = figures.errors.get(label)
    errors = {"NE": getattr(scores, "normalized_entropy_error", None)}
    if own is not None:
        errors |= {"AUC": own.auc, "calibration": own.calibration}
    return {
        heading: text if errors.get(heading) is None or text == "-" else f"{text} ± {errors[heading]:.4f}"
        for heading, text in shown_figures(scores).items()
    }


def _table(one: Segmented) -> Iterator[RenderableType]:
    """The segments of a column, a row for each label."""
    shown = [(_NO_VALUE if each.value is None else each.value, each.figures) for each in one.segments]
    if one.others is not None:
        shown.append((f"{many(one.values - len(one.segments), 'other value')}", one.others))
    rows, has_labels = [], False
    headings: dict[str, None] = {}
    for value, figures in shown:
        for name, scores in scores_by_label(figures.scores).items():
            cells = _cells(figures, name, scores)
            headings |= dict.fromkeys(cells)
            has_labels |= bool(name)
            rows.append((value, name, count_text(scores.events), cells))
    titles = (
        f"{one.column}*",
        *(["label*"] if has_labels else []),
        "events>",
        *(f"{heading}>" for heading in headings),
    )
    yield grid(
        titles,
        (
            (value, *([name] if has_labels else []), events, *(cells.get(heading, "") for heading in headings))
            for value, name, events, cells in rows
        ),
        title=f"by {one.column}, {many(one.values, 'value')}",
    )
    for name, area in one.grouped_auc.items():
        of_label = f" of {name}" if name else ""
        text = (
            "no value has events of both labels"
            if area is None
            else f"{area:.4f}, the mean over values by their events"
        )
        yield f"AUC{of_label} inside the values of {one.column}: {text}"
