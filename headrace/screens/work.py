"""The screen of ``headrace work``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from headrace.screens.units import bytes_text, many, secs_text


@dataclass(frozen=True, slots=True)
class WorkScreen:
    """What one worker did until it stopped. ``rows`` counts events, once for each component."""

    worker: str
    tasks: int
    memos: int
    failures: int
    rows: int
    raw_bytes_read: int
    secs: float

    def render(self) -> RenderableType:
        """One sentence, and where to look when something failed."""
        if not self.tasks:
            return "nothing was queued"
        text = (f"{many(self.memos, 'memo')} of {many(self.rows, 'value')} from {bytes_text(self.raw_bytes_read)} "
                f"of raw data in {secs_text(self.secs)}")  # fmt: skip
        if self.failures:
            text += f"\n{many(self.failures, 'attempt')} failed; next: headrace tasks list says which and why"
        return text
