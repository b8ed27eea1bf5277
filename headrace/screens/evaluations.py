"""The figures of commits on a fixed range of events, for the screens of a training and of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from headrace.screens.score_figures import figure_table, score_fields
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text

if TYPE_CHECKING:
    from trainer.run.progress.evaluation_log import EvaluatedCommit


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """The figures of a commit.

    Attributes:
        run: the name of the run's folder.
        commit: what was evaluated, and when.
    """

    run: str
    commit: EvaluatedCommit

    def json_fields(self) -> dict[str, Any]:
        """The fields."""
        own = self.commit
        names = ("checkpoint", "epochs", "step", "start", "end", "table_version", "secs")
        return {"run": self.run, **{name: getattr(own, name) for name in names}, **score_fields(own.scores)}


def evaluation_table(rows: Sequence[EvaluationRow], *, has_runs: bool, title: str) -> RenderableType:
    """The rows as a table, a line for each label; ``has_runs``: of several runs."""
    found = figure_table((row, row.commit.scores) for row in rows)
    titles = (*(["run*"] if has_runs else []), "checkpoint", "step>", *(["label*"] if found.has_labels else []), "events>", *(f"{one}>" for one in found.headings))  # fmt: skip
    return grid(
        titles,
        (
            (*([one.of.run] if has_runs else []), one.of.commit.checkpoint, count_text(one.of.commit.step),
             *([one.label] if found.has_labels else []), count_text(one.events or 0), *one.cells)
            for one in found.rows
        ),
        title=title,
    )  # fmt: skip
