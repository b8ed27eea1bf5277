"""The screens of ``headrace work``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from headrace.terminal.units import bytes_text, many, secs_text


@dataclass(frozen=True, slots=True)
class WorkScreen:
    """What one worker did until it stopped. ``rows`` counts events, once for each component; ``postponed`` tasks are to be
    tried again, later than it waited.
    """

    worker: str
    tasks: int
    memos: int
    failures: int
    postponed: int
    rows: int
    raw_bytes_read: int
    secs: float

    def render(self) -> RenderableType:
        """One sentence, and where to look when something failed."""
        if not self.tasks:
            return self._left or "nothing was queued"
        text = (f"{many(self.memos, 'memo')} of {many(self.rows, 'value')} from {bytes_text(self.raw_bytes_read)} "
                f"of raw data in {secs_text(self.secs)}")  # fmt: skip
        if self.failures:
            text += f"\n{many(self.failures, 'attempt')} failed; next: headrace tasks list says which and why"
        return f"{text}\n{self._left}" if self._left else text

    @property
    def _left(self) -> str:
        if not self.postponed:
            return ""
        wait = "task waits" if self.postponed == 1 else "tasks wait"
        return (f"{self.postponed} {wait} to be tried again in minutes; next: mend what headrace tasks list shows, then headrace "
                "tasks retry; or headrace work, which takes up what is due")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TemplateScreen:
    """The job that was written to ``location`` instead of being run."""

    location: str
    tasks: int
    fragments: int

    def render(self) -> RenderableType:
        """What is in it, that nothing ran, and what not to do with it."""
        if not self.tasks:
            return "nothing was queued; no template was written"
        return (f"wrote the next job to {self.location}: {many(self.tasks, 'memo')} of "
                f"{many(self.fragments, 'fragment')}\nnothing was run, and its tasks are queued as before; next: read it, "
                "then run headrace work without --template_location\ndo not launch the template itself: its memos would be "
                "entered in no catalog")  # fmt: skip
