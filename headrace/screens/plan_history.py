"""The screen of ``headrace plan history``, and the line about a plan that follows the data in the report of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import brief_text, bytes_text, count_text, many, secs_text

if TYPE_CHECKING:
    from trainer.job.feedback.plan_log import PlanChange, PlanLog

_SPREAD = "rows spread over all hosts"


@dataclass(frozen=True, slots=True)
class FollowedPlanRow:
    """A plan that followed the data.

    Attributes:
        run: the run, as commands name it.
        looks: the commits whose sample was looked at.
        moves: how often the tables moved.
        imbalance: by the newest sample, the load of the busiest host by the mean; 0 without a sample.
    """

    run: str
    looks: int
    moves: int
    imbalance: float

    @classmethod
    def of(cls, run: str, log: PlanLog) -> FollowedPlanRow:
        """The line of a log."""
        return cls(run, log.looks, sum(one.reason == "pays" for one in log.changes), log.imbalance)

    def text(self) -> str:
        """One line."""
        if not self.looks:
            return "follows the data; no commit had a sample to look at"
        return (
            f"follows the data: {many(self.moves, 'move')} by the samples of {many(self.looks, 'commit')}, the busiest host has "
            f"{self.imbalance:.2f} times the mean load: headrace plan history {self.run}"
        )


@dataclass(frozen=True, slots=True)
class PlanChangeRow:
    """A plan that came into force, as texts.

    Attributes:
        cells: the commit, the plan, and its figures, in the order of the columns; empty where there are none.
        reason: why.
    """

    cells: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class PlanHistoryScreen(Shown):
    """The plans of a run whose plan follows its data.

    Attributes:
        followed: the run, and what it has looked at.
        changes: the plans that came into force, in order; see :class:`~trainer.job.feedback.plan_log.PlanChange`.
        candidates: the plans that are priced beside the one in force, by their names, and the seconds that each would have saved so far.
    """

    followed: FollowedPlanRow
    changes: tuple[PlanChange, ...]
    candidates: dict[str, float]

    @classmethod
    def of(cls, run: str, log: PlanLog) -> PlanHistoryScreen:
        """The screen of a log."""
        return cls(FollowedPlanRow.of(run, log), log.changes, {one.plan: one.saved_secs for one in log.candidates})

    def rows(self) -> tuple[PlanChangeRow, ...]:
        """The plans that came into force, as texts."""
        return tuple(PlanChangeRow(_row(one), _reason(one)) for one in self.changes)

    def render(self) -> RenderableType:
        """A row for each plan, then the reason of each."""
        columns = (
            "after commit>",
            "plan",
            "a step, priced>",
            "imbalance>",
            "lost before>",
            "move: expected>",
            "took>",
            "a step, measured>",
        )
        rows = self.rows()
        reasons = [f"{one.cells[1]}: {one.reason}" for one in rows]
        waiting = [
            f"{_name(plan)} would have saved {secs_text(saved)} since it began to save" for plan, saved in self.candidates.items() if saved > 0
        ]  # fmt: skip
        return Group(
            f"the plan of {self.followed.run} {self.followed.text().partition(': headrace')[0]}",
            "",
            grid(columns, [one.cells for one in rows]),
            "",
            *reasons,
            *waiting,
        )


def _row(one: PlanChange) -> tuple[str, ...]:
    is_move = one.reason == "pays"
    return (
        str(one.commit),
        _name(one.plan),
        f"{brief_text(one.step_secs)} to {brief_text(one.new_step_secs)}" if is_move else "",
        f"{one.imbalance:.2f} to {one.new_imbalance:.2f}" if is_move else "",
        secs_text(one.saved_secs) if is_move else "",
        secs_text(one.move_secs) if is_move else "",
        "" if one.pause_secs is None else secs_text(one.pause_secs),
        _measured(one),
    )


def _measured(one: PlanChange) -> str:
    known = [brief_text(secs) for secs in (one.measured_secs, one.new_measured_secs) if secs is not None]
    return " to ".join(known)


def _reason(one: PlanChange) -> str:
    if one.reason == "statistics":
        if one.plan:
            return "the best plan by the statistics in the catalog"
        return "the statistics in the catalog have no better plan, or not all features"
    if one.reason == "hosts":
        return f"these hosts cannot hold the tables by the plan of commit {count_text(one.commit)}, from which the run went on"
    if one.reason == "commit":
        return f"that of commit {count_text(one.commit)}, from which the run went on"
    return (
        f"by the sample of commit {count_text(one.commit)} a step takes {one.new_step_secs / one.step_secs:.2f} of the time; "
        f"{bytes_text(one.moved_bytes)} of values moved"
    )


def _name(plan: str) -> str:
    return plan[:12] or _SPREAD
