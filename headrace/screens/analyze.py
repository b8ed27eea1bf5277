"""The screen of ``headrace analyze``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.grid import grid
from headrace.screens.units import count_text, secs_text


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
        noun = (
            "terms"
            if self.operator.endswith("vocabulary_ids")
            else "boundaries"
            if self.operator == "quantile_buckets"
            else "numbers"
        )
        return f"{count_text(self.size)} {noun}"


@dataclass(frozen=True, slots=True)
class AnalyzedScreen:
    """The analyses that were made; none if all were known."""

    analyses: tuple[AnalyzedRow, ...]

    def render(self) -> RenderableType:
        """A line an analysis."""
        if not self.analyses:
            return (
                "nothing to analyze: every statistic these models need is known\nnext: headrace model submit MODEL_FILE"
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
        return Group(table, "next: headrace model submit MODEL_FILE")
