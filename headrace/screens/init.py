"""The screen of ``headrace init``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.units import many


@dataclass(frozen=True, slots=True, repr=False)
class InitScreen(Shown):
    """A warehouse that is there now; ``tables``: how many it has."""

    home: str
    catalog: str
    tables: int

    def render(self) -> RenderableType:
        """The home, its catalog, and the next step."""
        found = (
            f"it has {many(self.tables, 'table')}"
            if self.tables
            else "next: headrace table add, or headrace table import"
        )
        return f"the warehouse {self.home} is ready; catalog: {self.catalog}\n{found}"
