"""The screen of ``headrace sweep``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import many


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial.

    Attributes:
        options: those that the sweep varies.
        scores: of each rung that it went through: the normalised entropy of the test, or what stands for it; None where its training failed.
        state: "best", "going on", "dropped", "failed", "waiting" or "running".
        reason: why it failed.
        run_dir: its run.
        config: the file of its options.
    """

    trial: int
    options: dict[str, Any]
    scores: tuple[float | None, ...]
    state: str
    reason: str
    run_dir: str
    config: str


@dataclass(frozen=True, slots=True)
class RungRow:
    """A rung: the end of its trained partitions, and of those that test them."""

    end: str
    test_end: str
    trials: int


@dataclass(frozen=True, slots=True, repr=False)
class SweepScreen(Shown):
    """A sweep; ``finished``: no trial is left to train. The best trials come first."""

    name: str
    model: str
    finished: bool
    rungs: tuple[RungRow, ...]
    trials: tuple[TrialRow, ...]

    @property
    def best(self) -> TrialRow | None:
        """The best trial so far."""
        return next((one for one in self.trials if one.state == "best"), None)

    def render(self) -> RenderableType:
        """One line per trial, then the next step."""
        names = list(dict.fromkeys(name for one in self.trials for name in one.options))
        columns = (
            "trial>",
            *(f"{name}>" for name in names),
            *(f"to {one.end[:16]}>" for one in self.rungs),
            "state",
            "reason*",
        )
        rows = (
            (str(one.trial), *(_text(one.options.get(name)) for name in names), *(_score(one, k) for k in range(len(self.rungs))), one.state, one.reason)
            for one in self.trials
        )  # fmt: skip
        head = f"sweep {self.name} of model {self.model}: {many(len(self.trials), 'trial')}, the loss of test events by the base rate's after each rung"
        best = self.best
        if not self.finished:
            end = f"not finished; next: the same command, or headrace sweep run {self.name} --resume"
        elif best is None:
            end = "no trial has a score; next: look at the reasons"
        else:
            end = f"best: trial {best.trial}, run {best.run_dir}\nnext: headrace train {self.model} --config {best.config}"
        return Group(head, grid(columns, rows), end)


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _score(row: TrialRow, rung: int) -> str:
    if rung >= len(row.scores):
        return ""
    score = row.scores[rung]
    return "-" if score is None else f"{score:.4f}"
