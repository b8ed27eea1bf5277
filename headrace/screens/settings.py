"""The screen of ``headrace config show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group, RenderableType

from headrace.screens.listing import Listing
from headrace.terminal.grid import grid


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: its value, where that comes from, and the variable of the environment that can say another one."""

    name: str
    value: int | float | str
    source: str
    variable: str


@dataclass(frozen=True, slots=True, repr=False)
class SettingsScreen(Listing):
    """The settings of the warehouse at ``home``; ``file``: where they may be written."""

    rows_field: ClassVar[str] = "settings"
    columns: ClassVar[tuple[str, ...]] = ("name", "value", "source", "variable")

    home: str
    file: str
    settings: tuple[SettingRow, ...]

    def render(self) -> RenderableType:
        """One line per setting."""
        rows = ((one.name, _text(one.value), one.source, f"${one.variable}") for one in self.settings)
        table = grid(("setting", "value>", "from", "in the environment"), rows)
        return Group(table, f"a setting is read from the environment, else from {self.file}, else it is the default")


def _text(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value) or "-"
