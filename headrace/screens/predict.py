"""The screen of ``headrace predict``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.units import count_text, many, secs_text


@dataclass(frozen=True, slots=True, repr=False)
class PredictedScreen(Shown):
    """The scores in ``output``; ``known_files`` held scores of the same checkpoint and data already."""

    model: str
    version: int
    checkpoint: str
    output: str
    partitions: int
    files: int
    rows: int
    known_files: int
    failures: tuple[str, ...]
    secs: float

    def render(self) -> RenderableType:
        """What was written, from which checkpoint, and what failed."""
        text = (
            f"scored {many(self.rows, 'event')} of {many(self.partitions, 'partition')} in {secs_text(self.secs)}: "
            f"{many(self.files, 'file')} under {self.output}"
        )
        if self.known_files:
            text += f"\nscored before, unchanged: {many(self.known_files, 'file')}"
        text += f"\nmodel {self.model} version {self.version}, checkpoint {self.checkpoint}"
        for failure in self.failures:
            text += f"\nnot scored: {failure}"
        if self.failures:
            text += f"\n{count_text(len(self.failures))} failed; next: fix them and run the same command again"
        return text
