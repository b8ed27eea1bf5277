"""The screens of ``headrace work``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.units import bytes_text, many, secs_text


@dataclass(frozen=True, slots=True, repr=False)
class WorkScreen(Shown):
    """The work of one worker.

    Attributes:
        rows: events, counted once per component.
        postponed: tasks whose next attempt is later than the worker waited.
        joined_fragments: fragments whose joined columns were computed.
        rejoined_fragments: those of them that have other values now.
        failed_joins: joined columns that failed.
    """

    worker: str
    tasks: int
    memos: int
    failures: int
    postponed: int
    rows: int
    raw_bytes_read: int
    secs: float
    joined_fragments: int = 0
    rejoined_fragments: int = 0
    failed_joins: int = 0

    def render(self) -> RenderableType:
        """One sentence on memos and one on joined columns, and the next step after a failure."""
        lines = [self._joined, self._memos, self._left]
        return "\n".join(line for line in lines if line) or "nothing was queued"

    @property
    def _joined(self) -> str:
        lines = []
        if self.joined_fragments:
            lines.append(
                f"joined columns of {many(self.joined_fragments, 'fragment')}, {self.rejoined_fragments:,} of them with new values"
            )
        if self.failed_joins:
            lines.append(
                f"{many(self.failed_joins, 'joined column')} failed; next: headrace table joins shows which and why"
            )
        return "\n".join(lines)

    @property
    def _memos(self) -> str:
        if not self.tasks:
            return ""
        text = (
            f"{many(self.memos, 'memo')} of {many(self.rows, 'value')} from {bytes_text(self.raw_bytes_read)} "
            f"of raw data in {secs_text(self.secs)}"
        )
        if self.failures:
            text += f"\n{many(self.failures, 'attempt')} failed; next: headrace tasks list shows which and why"
        return text

    @property
    def _left(self) -> str:
        if not self.postponed:
            return ""
        wait = "task waits" if self.postponed == 1 else "tasks wait"
        return (
            f"{self.postponed} {wait} for another attempt in minutes; next: fix what headrace tasks list shows, then "
            "headrace tasks retry; or headrace work, which leases what is due"
        )


@dataclass(frozen=True, slots=True, repr=False)
class TemplateScreen(Shown):
    """A job that was written to ``location`` and not run."""

    location: str
    tasks: int
    fragments: int
    joined_columns: int

    def render(self) -> RenderableType:
        """The content of the job, and the next step."""
        if not self.fragments:
            return "nothing was queued; no template was written"
        joined = many(self.joined_columns, "joined column")
        what = f"{joined}, for which memos wait," if self.joined_columns else many(self.tasks, "memo")
        return (
            f"wrote the next job to {self.location}: {what} of "
            f"{many(self.fragments, 'fragment')}\nnothing was run, and what it computes waits as before; next: check it, "
            "then run headrace work without --template_location\ndo not launch the template itself: no catalog would "
            "record its results"
        )
