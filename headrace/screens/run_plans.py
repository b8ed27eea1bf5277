"""The screens of the plan that a run's tables follow, and of its towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Group, RenderableType

from headrace.screens.plan_history import PlanHistoryScreen
from headrace.screens.plans import ExplainScreen, PlanScreen
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import brief_text, bytes_text, count_text, many

if TYPE_CHECKING:
    from headrace.runs.commit_speeds import CommitSpeed

#: What has the tables of a run: "process" is one with all of them.
HeldBy = Literal["hosts", "parameter servers", "cores", "process"]
#: What placed them; "none": their rows are spread.
PlacedBy = Literal["plan", "towers", "none"]
_PLACED_BY: Final[Mapping[PlacedBy, str]] = {
    "plan": "the plan {}",
    "towers": "towers: each has hosts of its own",
    "none": "no plan: the rows of each table are spread over all",
}


@dataclass(frozen=True, slots=True, repr=False)
class RunPlanScreen(Shown):
    """Which core, host or server of a run has which rows and columns of its tables.

    Attributes:
        run: its folder.
        commit: the newest commit, whose placement it is.
        held_by: what has the tables.
        placed_by: what placed them.
        plan: the placement with its estimates; None without tables.
        drawing: the placement as SVG; empty without estimates.
        tables: why a plan has each table where it is; none for another placement.
        problem: why there are no estimates; empty if there are.
        history: of a plan that follows the data; None for another one.
        newest: the speed up to the newest commit; None if it is not known.
    """

    run: str
    commit: int
    held_by: HeldBy
    placed_by: PlacedBy
    plan: PlanScreen | None
    drawing: str
    tables: tuple[ExplainScreen, ...]
    problem: str
    history: PlanHistoryScreen | None
    newest: CommitSpeed | None

    @property
    def step_secs(self) -> float | None:
        """The measured seconds of a step, with its dense part and its waits, up to the newest commit; None if they are not known."""
        found = None if self.newest is None else self.newest.steps_per_sec
        return 1 / found if found else None

    def pairs(self) -> list[tuple[str, str]]:
        """Where the tables are, what a step takes, and how even the load is, by name."""
        if self.plan is None:
            return []
        found = [
            ("tables", f"{count_text(len(self.plan.tables))} on {count_text(self.plan.cores)} {self.held_by}"),
            ("placed by", _PLACED_BY[self.placed_by].format(self.plan.fingerprint[:12])),
        ]
        report = self.plan.report
        if report is not None:
            bound = f"{brief_text(report.bound_secs)} by any plan of the ways that were considered"
            found += [
                ("a step, predicted", f"{brief_text(report.step_secs)} for the tables, by the cost model of {report.topology} with {many(report.batch_events, 'event')}"),
                *([("lower bound", bound)] if report.bound_secs else []),
                ("load imbalance", f"{report.imbalance:.3f}: the load of the busiest by the mean"),
            ]  # fmt: skip
        if self.step_secs is not None and self.newest is not None:
            text = f"{brief_text(self.step_secs)} with the dense part and all waits, up to commit {self.newest.commit}"
            found.insert(min(3, len(found)), ("a step, measured", text))
        return found

    def json_fields(self) -> dict[str, Any]:
        """The plan and its history with the fields of ``headrace plan show`` and ``headrace plan history``, and the reasons by table."""
        return {
            "run": self.run,
            "commit": self.commit,
            "held_by": self.held_by,
            "placed_by": self.placed_by,
            "problem": self.problem,
            "measured_step_secs": self.step_secs,
            "plan": self.plan,
            "tables": list(self.tables),
            "history": self.history,
        }

    def render(self) -> RenderableType:
        """The plan, then its history."""
        parts: list[RenderableType] = [facts([("run", self.run), ("commit", str(self.commit)), *self.pairs()])]
        parts += [self.problem] * bool(self.problem)
        parts += [] if self.plan is None else ["", self.plan.render()]
        parts += [] if self.history is None else ["", self.history.render()]
        return Group(*parts)


@dataclass(frozen=True, slots=True)
class RunTowerRow:
    """A tower of a run.

    Attributes:
        number: from 0.
        hosts: that have its tables.
        features: the names of its features.
        table_bytes: its tables with their slots; None if it is not known.
        event_bytes: that an event looks up in them; None likewise.
    """

    number: int
    hosts: tuple[int, ...]
    features: tuple[str, ...]
    table_bytes: int | None
    event_bytes: float | None


@dataclass(frozen=True, slots=True, repr=False)
class RunTowersScreen(Shown):
    """The towers by which the hosts of a run hold its tables.

    Attributes:
        run: its folder.
        machine_hosts: so many hosts share a machine.
        sends_sums: whether hosts of a tower may send sums of their rows.
        has_modules: whether the model compresses the outputs of these towers.
        towers: each tower.
    """

    run: str
    machine_hosts: int
    sends_sums: bool
    has_modules: bool
    towers: tuple[RunTowerRow, ...]

    def facts(self) -> list[tuple[str, str]]:
        """How hosts exchange, by name."""
        return [
            ("towers", f"{len(self.towers)} on {many(sum(len(one.hosts) for one in self.towers), 'host')}"),
            ("hosts of a machine", str(self.machine_hosts)),
            ("sums of rows", "may be sent" if self.sends_sums else "are not sent"),
            ("modules", "compress the outputs of towers" if self.has_modules else "none"),
        ]

    def render(self) -> RenderableType:
        """How hosts exchange, then a row for each tower."""
        rows = (
            (str(one.number), ", ".join(map(str, one.hosts)), "-" if one.table_bytes is None else bytes_text(one.table_bytes),
             "-" if one.event_bytes is None else bytes_text(one.event_bytes), ", ".join(one.features))
            for one in self.towers
        )  # fmt: skip
        return Group(
            facts(self.facts()), "", grid(("tower>", "hosts", "bytes>", "looked up an event>", "features*"), rows)
        )
