"""The screen of ``headrace preempt``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown


@dataclass(frozen=True, slots=True, repr=False)
class NoticeScreen(Shown):
    """A preemption notice.

    Attributes:
        run: the folder of the run.
        role: the process; empty for the whole job.
        grace_secs: until it ends.
        state: of the job before the notice.
    """

    run: str
    role: str
    grace_secs: float
    state: str

    def render(self) -> RenderableType:
        """What the notice is for, and what the job does."""
        noticed = self.role or "the whole job"
        first = f"notice: {noticed} of {self.run} ends in {self.grace_secs:g} s; the job was {self.state}"
        return Group(first, "the epoch ends early and is committed before that, or is given up")
