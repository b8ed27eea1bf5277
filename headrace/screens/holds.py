"""Screens of ``headrace holds``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid


@dataclass(frozen=True, slots=True)
class HoldRow:
    """The hold of a run.

    Attributes:
        run: its folder.
        error_class: of the error; empty if the job of the run cannot be read.
        role: the process that reported it; empty for the job itself.
        reason: the error.
    """

    run: str
    error_class: str
    role: str
    reason: str

    @property
    def key(self) -> str:
        """A digest of the error, by which a form names the hold that its page has shown."""
        return hashlib.sha256("\n".join((self.error_class, self.role, self.reason)).encode("utf-8", "replace")).hexdigest()  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class HoldsScreen(Listing):
    """The jobs that are held, and the runs whose jobs cannot be read."""

    rows_field: ClassVar[str] = "holds"
    columns: ClassVar[tuple[str, ...]] = ("run", "error_class", "role", "reason")

    holds: tuple[HoldRow, ...]

    def json_fields(self) -> dict[str, Any]:
        """The holds by run."""
        return {"holds": [fields_of(one) for one in self.holds]}

    def render(self) -> RenderableType:
        """One line per hold, and the next step."""
        if not self.holds:
            return "no job is held"
        rows = [(one.run, one.error_class or "unreadable", one.role or "-", one.reason) for one in self.holds]
        table = grid(("run", "error", "role", "reason*"), rows)
        return Group(table, "", "next: correct the cause, then: headrace holds release RUN")


@dataclass(frozen=True, slots=True, repr=False)
class ReleasedScreen(Shown):
    """A job whose hold was released."""

    released: HoldRow

    def render(self) -> RenderableType:
        """What was released, and the next step."""
        one = self.released
        return Group(f"released: {one.run}: {one.reason}", "next: the same headrace train, unless the job runs")
