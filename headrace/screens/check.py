"""The screen of ``headrace model check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, percent_text

if TYPE_CHECKING:
    from headrace.checks.statistics import Spread
    from headrace.checks.surprises import Surprise


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """One input, or the label, over the sample. With an ``error`` there are no figures.

    Attributes:
        empty_share: the share of nulls or empty lists.
        lengths: least, median and greatest length.
        numbers: least, mean and greatest of finite numbers that are not ids.
    """

    input: str
    type: str
    empty_share: float | None
    distinct: int | None
    lengths: Spread | None
    numbers: Spread | None
    examples: tuple[str, ...]
    warnings: tuple[Surprise, ...]
    error: str


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model's inputs over a sample of its table; ``label``: a list if there are several."""

    model: str
    table: str
    table_version: int
    table_rows: int
    rows: int
    partitions: int
    label: CheckedRow | tuple[CheckedRow, ...]
    inputs: tuple[CheckedRow, ...]


@dataclass(frozen=True, slots=True, repr=False)
class CheckScreen(Shown):
    """The checked models."""

    models: tuple[CheckedModel, ...]

    def render(self) -> RenderableType:
        """One table per model, then its warnings and errors."""
        return Group(
            *(part for at, model in enumerate(self.models) for part in (*([""] if at else []), *_parts(model)))
        )


def _parts(model: CheckedModel) -> tuple[RenderableType, ...]:
    head = (
        f"model {model.model}: {many(model.rows, 'event')} of {many(model.partitions, 'partition')}, sampled from "
        f"{count_text(model.table_rows)} of table {model.table} version {model.table_version}"
    )
    labels = model.label if isinstance(model.label, tuple) else (model.label,)
    every = [*model.inputs, *labels]
    columns = ("input", "type", "empty>", "distinct>", "least / middle / most>", "examples*")
    table = grid(columns, [*(_row(row, "") for row in model.inputs), *(_row(row, "label ") for row in labels)])
    errors = [(row.input, f"error: {row.error}") for row in every if row.error]
    warnings = [(row.input, warning.text) for row in every for warning in row.warnings]
    counted = [many(len(said), what) for said, what in ((errors, "error"), (warnings, "warning")) if said]
    if not counted:
        return Text(head), table, _NOTE, "no warnings in this sample"
    return Text(head), table, _NOTE, "", facts([*errors, *warnings], title=", ".join(counted))


_NOTE = "the middle is the median of lengths, the mean of numbers"


def _row(row: CheckedRow, prefix: str) -> tuple[str, ...]:
    if row.error:
        return (prefix + row.input, row.type, "-", "-", "", "(failed)")
    return (
        prefix + row.input,
        row.type,
        percent_text(row.empty_share),
        count_text(row.distinct or 0),
        _figures(row),
        ", ".join(row.examples),
    )


def _figures(row: CheckedRow) -> str:
    lengths = "" if row.lengths is None else f"{_spread(row.lengths)} items"
    numbers = "" if row.numbers is None else _spread(row.numbers)
    return f"{lengths}, of {numbers}" if lengths and numbers else lengths or numbers


def _spread(spread: Spread) -> str:
    return " / ".join(f"{each:.4g}" for each in (spread.least, spread.middle, spread.most))
