"""The screen of ``headrace model retire``: what stops, and what stays."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.grid import facts
from headrace.screens.units import bytes_text, count_text, many


@dataclass(frozen=True, slots=True)
class RetirementScreen:
    """What retiring a model does or, once ``done``, did. The fields are those of ``warehouse.Retirement``."""

    model: str
    version: int
    client: str
    table: str
    live: bool
    done: bool
    queued_tasks: int
    shared_tasks: int
    memos: int
    bytes: int
    own_memos: int
    own_bytes: int

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        named = f"model {self.model} version {self.version}, of client {self.client}"
        back = "to have it back, submit it again: headrace model submit FILE"
        if not self.live:
            return Group(f"{named}, is retired already", back)
        pairs = [
            ("its data", f"nothing is computed for new data of table {self.table}"),
            ("its queue", self._queue()),
            ("its memos", self._memos()),
        ]
        said = f"{'retired' if self.done else 'would retire'} {named}"
        return Group(
            said, facts(pairs), back if self.done else "nothing was changed; next: the same command with --yes"
        )

    def _queue(self) -> str:
        alone = f"{many(self.queued_tasks, 'queued task')} that only it waits for {'is' if self.queued_tasks == 1 else 'are'} not computed"
        others = (
            f"; {many(self.shared_tasks, 'more task')} that other models wait for too stay" if self.shared_tasks else ""
        )
        return (alone if self.queued_tasks else "no queued task waits for it alone") + others

    def _memos(self) -> str:
        if not self.memos:
            return "none is ready"
        own = f"{count_text(self.own_memos)} of them, {bytes_text(self.own_bytes)}, are no other live model's input"
        return f"{many(self.memos, 'memo')}, {bytes_text(self.bytes)}, stay until they are evicted; {own}"
