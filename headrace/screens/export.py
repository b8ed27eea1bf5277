"""The screen of ``headrace model export``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An input that is not in the SavedModel, its operator, and the reason."""

    input: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class ExportScreen(Shown):
    """The written export, and inputs that were left out. ``checkpoint``: of the run, for a trained model."""

    model: str
    version: int
    path: str
    inputs: int
    columns: int
    signatures: tuple[str, ...]
    size_bytes: int
    left_out: tuple[LeftOut, ...]
    checkpoint: str = ""

    def render(self) -> RenderableType:
        """The facts, then one line per input that was left out."""
        table = facts((
            ("model", f"{self.model} version {self.version}"),
            ("written", self.path),
            *((("trained, checkpoint", self.checkpoint),) if self.checkpoint else ()),
            ("inputs", str(self.inputs)),
            ("raw columns", str(self.columns)),
            ("signatures", ", ".join(self.signatures)),
            ("size", bytes_text(self.size_bytes)),
        ))  # fmt: skip
        if not self.left_out:
            return table
        rows = ((each.input, each.operator, each.reason) for each in self.left_out)
        return Group(table, "", grid(("left out", "operator", "why"), rows))
