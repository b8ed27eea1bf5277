"""The screen of ``headrace ps scale``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.units import many


@dataclass(frozen=True, slots=True, repr=False)
class ScaledScreen(Shown):
    """Another number of parameter servers for a job.

    Attributes:
        run: the folder of the run.
        used_servers: those with tables; 0 before the first attempt.
        wanted_before: how many the job wanted before.
        servers: how many it wants now.
        most_servers: the most that it may have.
    """

    run: str
    used_servers: int
    wanted_before: int
    servers: int
    most_servers: int

    def render(self) -> RenderableType:
        """What changes, and when."""
        has = "has" if self.used_servers == 1 else "have"
        first = (
            f"{self.run}: {many(self.used_servers, 'server')} {has} the tables, "
            f"{self.servers} of at most {self.most_servers} shall have them"
        )
        if self.servers == self.used_servers:
            return Group(first, "nothing changes")
        return Group(
            first,
            "once they have started, the epoch ends early and is committed, and the tables are loaded from the commit",
        )
