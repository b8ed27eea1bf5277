"""The screens of ``headrace plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import brief_text, bytes_text, changed_text, count_text, longer_text, many, percent_text
from trainer.planning.plan import PartitionPlan, TablePlan
from trainer.planning.plan_changes import TableChange, partition_text
from trainer.planning.plan_report import PlanReport, TableReport, WayReport

_SHOWN_TABLES = 40
_SHOWN_CORES = 16
#: Times of the cost model are sums of floating-point numbers.
_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class PlannedTableRow:
    """A table of a plan; ``ids_per_event`` is None if the plan has no report."""

    name: str
    rows: int
    columns: int
    partition: str
    size_bytes: int | None
    ids_per_event: float | None
    statistics: str


@dataclass(frozen=True, slots=True, repr=False)
class PlanScreen(Shown):
    """A plan with its estimates."""

    file: str
    fingerprint: str
    cores: int
    tables: tuple[PlannedTableRow, ...]
    report: PlanReport | None

    def render(self) -> RenderableType:
        """The estimates, and the tables."""
        rows = (
            (one.name, count_text(one.rows), str(one.columns), "" if one.size_bytes is None else bytes_text(one.size_bytes),
             "" if one.ids_per_event is None else f"{one.ids_per_event:.4g}", one.partition, one.statistics)
            for one in self.tables[:_SHOWN_TABLES]
        )  # fmt: skip
        titles = ("table", "rows>", "columns>", "bytes>", "ids an event>", "partition", "statistics*")
        more = len(self.tables) - _SHOWN_TABLES
        rest = [f"… and {many(more, 'more table')}: --json lists all"] if more > 0 else []
        head = f"plan {self.fingerprint[:12]} of {many(len(self.tables), 'table')} on {many(self.cores, 'core')}"
        return Group(
            head + (f": {self.file}" if self.file else ""),
            *_estimates(self.report),
            "",
            grid(titles, rows),
            *rest,
            *_limits(self.report),
        )


def _limits(report: PlanReport | None) -> list[RenderableType]:
    """The limits of SparseCore's buffers, if the plan has them."""
    if report is None or not report.limits:
        return []
    rows = ((", ".join(one.tables), count_text(one.ids), count_text(one.rows)) for one in report.limits[:_SHOWN_TABLES])
    return [
        "",
        grid(
            ("tables of a stack*", "ids>", "distinct ids>"), rows, title="limits of SparseCore's buffers, by statistics"
        ),
    ]


def plan_screen(file: str, fingerprint: str, plan: PartitionPlan, report: PlanReport | None) -> PlanScreen:
    """The screen of a plan."""
    facts = {} if report is None else {one.name: one for one in report.tables}
    return PlanScreen(
        file, fingerprint, plan.cores, tuple(_row(table, facts.get(table.name)) for table in plan.tables), report
    )


def _row(table: TablePlan, facts: TableReport | None) -> PlannedTableRow:
    copies = len(table.slices[0].cores) if table.is_replicated else 1
    size = None if facts is None else facts.row_bytes * table.rows * copies
    ids, statistics = (None, "") if facts is None else (facts.ids_per_event, facts.statistics)
    return PlannedTableRow(table.name, table.rows, table.columns, partition_text(table), size, ids, statistics)


def _estimates(report: PlanReport | None) -> list[str]:
    if report is None:
        return ["The plan has no estimates: it was not written by headrace plan make."]
    largest = max((one.size_bytes for one in report.cores), default=0)
    return [
        f"{report.topology}, {count_text(report.batch_events)} events a step: {brief_text(report.step_secs)} a step by the cost model, at least "
        f"{brief_text(report.bound_secs)} by any plan of these ways (gap {percent_text(report.gap)})",
        f"load imbalance {report.imbalance:.3f}; the fullest core has {bytes_text(largest)} of {bytes_text(report.memory_bytes)}; "
        f"found by: {report.method}",
    ]


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A shard of a table; ``core_load``: the load of its core by the mean."""

    core: int
    first_column: int
    columns: int
    rows: int
    core_load: float | None


@dataclass(frozen=True, slots=True, repr=False)
class ExplainScreen(Shown):
    """Why a table is placed as it is."""

    table: str
    partition: str
    reasons: tuple[str, ...]
    ways: tuple[WayReport, ...]
    shards: tuple[ShardRow, ...]

    def render(self) -> RenderableType:
        """The reasons, the ways that the table had, and its shards."""
        ways = (
            ("→" if one.is_chosen else "", one.partition, str(one.column_slices), str(one.places), brief_text(one.step_secs),
             brief_text(one.largest_secs), bytes_text(one.core_bytes))
            for one in self.ways
        )  # fmt: skip
        shards = (
            (str(one.core), f"{one.first_column} to {one.first_column + one.columns - 1}", count_text(one.rows),
             "" if one.core_load is None else f"{one.core_load:.3f}")
            for one in self.shards[:_SHOWN_CORES]
        )  # fmt: skip
        more = len(self.shards) - _SHOWN_CORES
        return Group(
            f"table {self.table}: {self.partition}",
            *self.reasons,
            "",
            grid(
                (
                    "chosen",
                    "partition",
                    "slices>",
                    "cores of a slice>",
                    "adds to a step, if even>",
                    "largest shard>",
                    "its bytes>",
                ),
                ways,
            ),
            "",
            grid(("core>", "columns", "rows>", "load of the core by the mean>"), shards),
            *([f"… and {many(more, 'more shard')}: --json lists all"] if more > 0 else []),
        )


def explain_screen(plan: PartitionPlan, table: TablePlan, report: PlanReport | None) -> ExplainScreen:
    """Why ``table`` is placed as it is."""
    facts = None if report is None else next((one for one in report.tables if one.name == table.name), None)
    mean = sum(one.secs for one in report.cores) / plan.cores if report is not None else 0.0
    shards = tuple(
        ShardRow(one.core, one.slice_.first_column, one.slice_.columns, one.rows,
                 report.cores[one.core].secs / mean if report is not None and mean and one.core < len(report.cores) else None)
        for one in table.shards()
    )  # fmt: skip
    ways = () if facts is None else facts.ways
    return ExplainScreen(table.name, partition_text(table), _reasons(table, facts, report), ways, shards)


def _reasons(table: TablePlan, facts: TableReport | None, report: PlanReport | None) -> tuple[str, ...]:
    if facts is None or report is None:
        return ("The plan has no estimates: it was not written by headrace plan make.",)
    found = [
        f"{facts.ids_per_event:.4g} ids an event, {count_text(round(facts.distinct_rows))} distinct rows of {count_text(table.rows)} in a step; "
        f"{bytes_text(facts.row_bytes)} a row with its slots. Statistics: {facts.statistics}."
    ]
    whole = facts.row_bytes * table.rows
    if whole > report.memory_bytes:
        found.append(
            f"Not table: its {bytes_text(whole)} do not fit on a core: they are {bytes_text(whole - report.memory_bytes)} more than it has."
        )
    chosen = next((one for one in facts.ways if one.is_chosen), None)
    mean_secs = sum(one.secs for one in report.cores) / max(len(report.cores), 1)
    if chosen is not None:
        others = (one for one in facts.ways if not one.is_chosen)
        found += [f"Not {_way_text(one)}: {_drawback(one, chosen, mean_secs)}." for one in others]
    found.append(
        "Shards are assigned largest first, each to the core with the least load that has memory for it, and then exchanged."
    )
    return tuple(found)


def _way_text(one: WayReport) -> str:
    parts = [f"{many(one.column_slices, 'slice')} of columns"] * (one.column_slices > 1)
    parts += [f"on {many(one.places, 'core')}"] * (one.places > 1 and one.column_slices == 1)
    parts += [f"on {many(one.places, 'core')} each"] * (one.places > 1 and one.column_slices > 1)
    return " ".join((one.partition, *parts))


def _drawback(one: WayReport, chosen: WayReport, mean_secs: float) -> str:
    """Why ``chosen`` is better; ``mean_secs``: the mean load of a core. A time is longer if it is so by more than rounding."""
    if one.largest_secs > _ROUNDING * max(chosen.largest_secs, mean_secs):
        more = longer_text(one.largest_secs, mean_secs, other="the mean load of a core")
        return f"its largest shard alone takes {more}"
    if one.step_secs > _ROUNDING * chosen.step_secs:
        return f"what it adds to a step takes {longer_text(one.step_secs, chosen.step_secs, other='the chosen way')}"
    return f"its shards take up to {brief_text(one.largest_secs)} each, which balances the cores less well with the other tables"


@dataclass(frozen=True, slots=True, repr=False)
class PlanDiffScreen(Shown):
    """What differs between two plans."""

    before: str
    after: str
    cores_before: int
    cores_after: int
    changes: tuple[TableChange, ...]
    unchanged_tables: int
    step_secs_before: float | None
    step_secs_after: float | None

    def render(self) -> RenderableType:
        """The changes by table."""
        cores = (
            f"{many(self.cores_before, 'core')} → {self.cores_after}"
            if self.cores_before != self.cores_after
            else many(self.cores_before, "core")
        )
        head = f"{cores}; {many(len(self.changes), 'table')} differ, {self.unchanged_tables} do not"
        secs = []
        if self.step_secs_before is not None and self.step_secs_after is not None:
            before, after = brief_text(self.step_secs_before), brief_text(self.step_secs_after)
            secs = [f"estimated step: {changed_text(before, after)}"]
        rows = (
            (one.name, one.before or "absent", one.after or "absent", percent_text(one.moved_share))
            for one in self.changes
        )
        parts: list[RenderableType] = [head, *secs]
        if self.changes:
            parts += ["", grid(("table", "before", "after", "values that move>"), rows)]
        return Group(*parts)


def diff_screen(
    files: Sequence[str], plans: Sequence[PartitionPlan], reports: Sequence[PlanReport | None], changes: tuple[TableChange, ...]
) -> PlanDiffScreen:  # fmt: skip
    """The screen of two plans."""
    same = {one.name for one in plans[0].tables} - {one.name for one in changes}
    before, after = (None if one is None else one.step_secs for one in reports)
    return PlanDiffScreen(files[0], files[1], plans[0].cores, plans[1].cores, changes, len(same), before, after)
