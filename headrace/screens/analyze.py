"""The screen of ``headrace analyze``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.grid import grid
from headrace.screens.units import count_text, many, more_rows, secs_text
from transforms.full_pass import PREPROCESSING


@dataclass(frozen=True, slots=True)
class AnalyzedRow:
    """One analysis that was made for a model. ``partitions_read`` of its partitions were read now; ``size``: values found."""

    model: str
    operator: str
    expression: str
    over: str
    partitions: int
    partitions_read: int
    fragments_read: int
    rows: int
    rows_read: int
    size: int
    artifact: str
    secs: float

    @property
    def result(self) -> str:
        """What was found, in words."""
        if self.operator == PREPROCESSING:
            return many(self.size, "output")
        noun = (
            "terms"
            if self.operator.endswith("vocabulary_ids")
            else "boundaries"
            if self.operator == "quantile_buckets"
            else "numbers"
        )
        return f"{count_text(self.size)} {noun}"


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """An analysis whose pinned finding gives way to another one. ``rows`` were ``rows_before`` when it was pinned."""

    model: str
    operator: str
    expression: str
    over: str
    rows_before: int
    rows: int
    added: int
    removed: int
    moved: int
    difference: str


def changed_grid(changes: Sequence[ChangedRow]) -> RenderableType:
    """A line a change."""
    rows = (
        (
            one.model,
            one.operator,
            one.expression,
            f"{count_text(one.rows_before)} -> {count_text(one.rows)}",
            one.difference,
        )
        for one in changes
    )
    return grid(("model", "operator", "expression*", "rows>", "what changes*"), rows)


@dataclass(frozen=True, slots=True)
class AnalyzedScreen:
    """The analyses that were made; none if all were known. ``changes``: what the next submission takes in place of pinned ones."""

    analyses: tuple[AnalyzedRow, ...]
    changes: tuple[ChangedRow, ...] = ()

    def render(self) -> RenderableType:
        """A line an analysis, and a line a change."""
        changes = ["", "the next submission is a new version of these models:", changed_grid(self.changes)]
        if not self.analyses:
            return Group(
                "nothing to analyze: every statistic these models need is known",
                *(changes if self.changes else []),
                "next: headrace model submit MODEL_FILE",
            )
        rows = (
            (one.operator, one.expression, one.over, str(one.partitions_read), str(one.partitions - one.partitions_read),
             count_text(one.rows), one.result, secs_text(one.secs))
            for one in self.analyses
        )  # fmt: skip
        table = grid(
            ("operator", "expression*", "range", "read>", "from cache>", "rows>", "result", "took>"),
            rows,
        )
        return Group(table, *(changes if self.changes else []), "next: headrace model submit MODEL_FILE")


#: What the state of a planned analysis means.
_STATES = {
    "new": "new",
    "pinned": "pinned; the range has other data now",
    "known": "known; nothing is read",
    "unchanged": "unchanged",
}


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """What would become of one analysis. ``state``: new, pinned (its range has other data now), known or unchanged."""

    model: str
    operator: str
    expression: str
    over: str
    state: str
    partitions: int
    partitions_to_read: int
    rows: int
    rows_to_read: int
    rows_pinned: int | None

    @property
    def said(self) -> str:
        """The state in words, with the rows that came since."""
        if self.state != "pinned" or self.rows_pinned is None:
            return _STATES[self.state]
        return f"pinned; {more_rows(self.rows_pinned, self.rows)}"


@dataclass(frozen=True, slots=True)
class PlannedScreen:
    """What an analysis would read and change; nothing was done."""

    plan: tuple[PlannedRow, ...]

    def render(self) -> RenderableType:
        """A line an analysis."""
        if not self.plan:
            return "dry run: these models have no full-pass operators, so there is nothing to analyze"
        rows = (
            (one.model, one.operator, one.expression, one.over,
             f"{count_text(one.partitions_to_read)} of {count_text(one.partitions)}", count_text(one.rows_to_read), one.said)
            for one in self.plan
        )  # fmt: skip
        table = grid(("model", "operator", "expression*", "range", "partitions to read>", "rows>", "state*"), rows)
        if all(one.state == "unchanged" for one in self.plan):
            return Group(table, "dry run: nothing would change")
        return Group(table, "dry run: nothing was read; without --dry-run it is, and models whose pinned findings change "
                            "are new versions when they are submitted")  # fmt: skip
