"""The screen of ``headrace ps move``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown

if TYPE_CHECKING:
    from trainer.servers.moves.engine_move import MoveFigures
    from trainer.servers.moves.move_documents import TrainingServers


@dataclass(frozen=True, slots=True, repr=False)
class MovedScreen(Shown):
    """A move that has ended.

    Attributes:
        run: the folder of the run.
        servers_before, servers: addresses.
        are_ended: whether the servers before it end by themselves: the training has started them.
        copied_rows, passes, pause_rows, pause_secs, secs: see :class:`~trainer.servers.moves.engine_move.MoveFigures`.
    """

    run: str
    servers_before: tuple[str, ...]
    servers: tuple[str, ...]
    are_ended: bool
    copied_rows: int
    passes: int
    pause_rows: int
    pause_secs: float
    secs: float

    @classmethod
    def of(cls, run: str, before: TrainingServers, after: TrainingServers, figures: MoveFigures) -> MovedScreen:
        """The screen of a move from some servers to others."""
        old, new = (tuple(map(str, one.servers)) for one in (before, after))
        return cls(
            run,
            old,
            new,
            before.are_local,
            figures.copied_rows,
            figures.passes,
            figures.pause_rows,
            figures.pause_secs,
            figures.secs,
        )

    def render(self) -> RenderableType:
        """What was moved, how long training has waited, and what is left to do."""
        passes = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        lines = [
            f"the tables of {self.run} are on {', '.join(self.servers)}",
            f"{self.copied_rows:,} rows were copied in {passes} while training went on, {self.pause_rows:,} while it waited for {self.pause_secs:.3f} s; "
            f"{self.secs:.1f} s in all",
        ]
        if not self.are_ended:
            lines.append(f"{', '.join(self.servers_before)}: not used any more, and may be ended")
        return Group(*lines)
