"""Screens of ``headrace checks``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, percent_text

if TYPE_CHECKING:
    from headrace.checks.drift import Finding


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One input, or a label, in two ranges.

    Attributes:
        rows: events, of the newer range; ``rows_before`` of the older one, and so on.
        empty_share: the share of nulls and empty lists; None without events.
        distinct: the number of ids, an estimate from 256 on; None of numbers.
        median: of numbers.
        true_share: the share of true, or of 1, of a column that has nothing but two values; of a label the label rate.
        psi: the population stability index, without what chance adds; None without values in one of the ranges.
        ks: the greatest Kolmogorov-Smirnov distance of numbers and of lengths of lists; None without.
        new_share: the share of values whose id the older range does not have; None of numbers.
        new_share_error: its standard error.
        findings: what is above its limit.
    """

    input: str
    rows_before: int
    rows: int
    empty_share_before: float | None
    empty_share: float | None
    distinct_before: int | None
    distinct: int | None
    median_before: float | None
    median: float | None
    true_share_before: float | None
    true_share: float | None
    psi: float | None
    ks: float | None
    new_share: float | None
    new_share_error: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, repr=False)
class DriftScreen(Shown):
    """The inputs of a model in its newest partitions, against those before.

    Attributes:
        has_too_few: the ranges have so few events that changes as large as the limits may be chance, and are no findings.
    """

    model: str
    version: int
    table: str
    first_before: str
    last_before: str
    partitions_before: int
    first: str
    last: str
    partitions: int
    has_too_few: bool
    inputs: tuple[DriftRow, ...]

    @property
    def failed(self) -> tuple[DriftRow, ...]:
        """The inputs with a finding."""
        return tuple(one for one in self.inputs if one.findings)

    def render(self) -> RenderableType:
        """One line per input, then the findings."""
        now, before = (
            _span(self.first, self.last, self.partitions),
            _span(self.first_before, self.last_before, self.partitions_before),
        )
        head = f"model {self.model} version {self.version}, table {self.table}: {now}, against {before}"
        rows = (
            (one.input, count_text(one.rows), _change(percent_text(one.empty_share_before), percent_text(one.empty_share)),
             _change(_number(one.median_before), _number(one.median)), _change(_count(one.distinct_before), _count(one.distinct)),
             _change(_share(one.true_share_before), _share(one.true_share)), "-" if one.psi is None else f"{one.psi:.3f}", "-" if one.ks is None else f"{one.ks:.3f}", _new(one), "drifted" if one.findings else "")
            for one in self.inputs
        )  # fmt: skip
        columns = ("input", "events>", "empty>", "median>", "distinct>", "true>", "PSI>", "KS>", "new ids>", "")
        found = [(one.input, each.text) for one in self.failed for each in one.findings]
        end: RenderableType = (
            facts(found, title=many(len(found), "finding"))
            if found
            else f"no input is above its limits: {many(len(self.inputs), 'input')}"
        )
        return Group(head, grid(columns, rows), "", end, *([self._few] if self.has_too_few else []))

    @property
    def _few(self) -> str:
        first = self.inputs[0]
        return (
            f"{many(first.rows, 'event')} against {count_text(first.rows_before)} are too few: changes as large as the limits may be chance, and are no findings; "
            f"next: choose other ranges by --end, --last and --against: headrace table show {self.table}"
        )


@dataclass(frozen=True, slots=True)
class SketchRow:
    """An input, or a label, in one partition.

    Attributes:
        distinct: the number of ids, an estimate from 256 on.
        quantiles: least, lower quartile, median, upper quartile and greatest of numbers, within 1 %.
        mean_length: the median length of lists.
        top: the most frequent ids, with ``top_counts``.
        true_share: the share of true, or of 1, of a column that has nothing but two values; of a label the label rate.
    """

    partition: str
    rows: int
    empty_share: float | None
    distinct: int | None
    quantiles: tuple[float, ...]
    mean_length: float | None
    top: tuple[str, ...]
    top_counts: tuple[int, ...]
    true_share: float | None


@dataclass(frozen=True, slots=True, repr=False)
class SketchesScreen(Listing):
    """An input of a model by partition."""

    rows_field: ClassVar[str] = "partitions"
    columns: ClassVar[tuple[str, ...]] = (
        "partition",
        "rows",
        "empty_share",
        "distinct",
        "quantiles",
        "mean_length",
        "top",
        "top_counts",
        "true_share",
    )

    model: str
    version: int
    input: str
    partitions: tuple[SketchRow, ...]

    def render(self) -> RenderableType:
        """One line per partition."""
        rows = (
            (one.partition, count_text(one.rows), percent_text(one.empty_share), _count(one.distinct), " / ".join(map(_number, one.quantiles)) or "-",
             _number(one.mean_length), _share(one.true_share), ", ".join(one.top[:4]) or "-")
            for one in self.partitions
        )  # fmt: skip
        columns = (
            "partition",
            "events>",
            "empty>",
            "distinct>",
            "least / quartiles / most>",
            "length>",
            "true>",
            "most frequent*",
        )
        return Group(f"{self.input} of model {self.model} version {self.version}", grid(columns, rows))


def _change(before: str, now: str) -> str:
    return now if before == now else f"{before} → {now}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _count(value: int | None) -> str:
    return "-" if value is None else count_text(value)


def _share(value: float | None) -> str:
    return "-" if value is None else percent_text(value)


def _span(first: str, last: str, partitions: int) -> str:
    return first if partitions == 1 else f"{first} to {last} ({many(partitions, 'partition')})"


def _new(row: DriftRow) -> str:
    if row.new_share is None:
        return "-"
    error = f" ± {percent_text(row.new_share_error)}" if row.new_share_error else ""
    return f"{percent_text(row.new_share)}{error}"
