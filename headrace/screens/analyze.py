"""The screen of ``headrace analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import changed_text, count_text, many, more_rows, secs_text
from transforms.operators.full_pass import PREPROCESSING_OUTPUT

if TYPE_CHECKING:
    from pipelines.analysis.analyze import Analyzed
    from pipelines.analysis.plan import ChangedAnalysis, PlannedAnalysis

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfModel(Generic[T]):
    """A ``value`` that belongs to one of the command's models."""

    model: str
    value: T

    def json_fields(self) -> dict[str, Any]:
        """The model, and the fields of the value."""
        return {"model": self.model, **fields_of(self.value)}


def changed_grid(changes: Sequence[OfModel[ChangedAnalysis]]) -> RenderableType:
    """One line per change."""
    rows = (
        (
            of.model,
            one.operator,
            one.expression,
            changed_text(count_text(one.rows_before), count_text(one.rows)),
            one.difference,
        )
        for of in changes
        for one in (of.value,)
    )
    return grid(("model", "operator", "expression*", "rows>", "what changes*"), rows)


@dataclass(frozen=True, slots=True, repr=False)
class AnalyzedScreen(Shown):
    """The analyses that were run. ``changes``: the results that replace pinned ones at the next submission."""

    analyses: tuple[OfModel[Analyzed], ...]
    changes: tuple[OfModel[ChangedAnalysis], ...] = ()

    def render(self) -> RenderableType:
        """One line per analysis and per change."""
        changes = ["", "the next submission is a new version of these models:", changed_grid(self.changes)]
        if not self.analyses:
            return Group(
                "nothing to analyze: every result that these models need exists",
                *(changes if self.changes else []),
                "next: headrace model submit MODEL_FILE",
            )
        rows = (
            (one.operator, one.expression, one.over, str(one.partitions_read), str(one.partitions - one.partitions_read),
             count_text(one.rows), _result(one), secs_text(one.secs))
            for one in (each.value for each in self.analyses)
        )  # fmt: skip
        table = grid(
            ("operator", "expression*", "range", "read>", "from cache>", "rows>", "result", "took>"),
            rows,
        )
        return Group(table, *(changes if self.changes else []), "next: headrace model submit MODEL_FILE")


def _result(made: Analyzed) -> str:
    """The result as text."""
    if made.operator == PREPROCESSING_OUTPUT.name:
        return many(made.size, "output")
    if made.operator.endswith("vocabulary_ids"):
        return f"{count_text(made.size)} terms"
    return f"{count_text(made.size)} {'boundaries' if made.operator == 'quantile_buckets' else 'numbers'}"


#: What the state of a planned analysis means.
_STATES = {
    "new": "new",
    "pinned": "pinned; the range has other data now",
    "known": "exists; nothing is read",
    "unchanged": "unchanged",
}


def _state(planned: PlannedAnalysis) -> str:
    """The state as text, with the number of new rows."""
    if planned.state != "pinned" or planned.rows_pinned is None:
        return _STATES[planned.state]
    return f"pinned; {more_rows(planned.rows_pinned, planned.rows)}"


@dataclass(frozen=True, slots=True, repr=False)
class PlannedScreen(Shown):
    """What an analysis would read and change."""

    plan: tuple[OfModel[PlannedAnalysis], ...]

    def render(self) -> RenderableType:
        """One line per analysis."""
        if not self.plan:
            return "dry run: nothing to analyze; these models have no full-pass operators"
        rows = (
            (of.model, one.operator, one.expression, one.over,
             f"{count_text(one.partitions_to_read)} of {count_text(one.partitions)}", count_text(one.rows_to_read), _state(one))
            for of in self.plan
            for one in (of.value,)
        )  # fmt: skip
        table = grid(("model", "operator", "expression*", "range", "partitions to read>", "rows>", "state*"), rows)
        if all(of.value.state == "unchanged" for of in self.plan):
            return Group(table, "dry run: nothing would change")
        return Group(table, "dry run: nothing was read; after the analysis the next submission makes a new version of each "
                            "model whose pinned result changes")  # fmt: skip
