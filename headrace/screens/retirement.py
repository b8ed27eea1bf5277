"""The screen of ``headrace model retire``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.models.retire import Retirement


@dataclass(frozen=True, slots=True, repr=False)
class RetirementScreen(Shown):
    """The retirement of a model, done or planned."""

    retirement: Retirement

    def json_fields(self) -> dict[str, Any]:
        """The fields of the retirement."""
        return fields_of(self.retirement)

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        done = self.retirement
        named = f"model {done.model} version {done.version}, of client {done.client}"
        back = "to restore it, submit it again: headrace model submit FILE"
        if not done.live:
            return Group(f"{named}, is retired already", back)
        pairs = [
            ("its data", f"nothing is computed for new data of table {done.table}"),
            ("its queue", self._queue()),
            ("its memos", self._memos()),
        ]
        said = f"{'retired' if done.done else 'would retire'} {named}"
        return Group(
            said, facts(pairs), back if done.done else "nothing was changed; next: the same command with --yes"
        )

    def _queue(self) -> str:
        done = self.retirement
        alone = f"{many(done.queued_tasks, 'queued task')} of this model only {'is' if done.queued_tasks == 1 else 'are'} not computed"
        others = f"; {many(done.shared_tasks, 'more task')} of other models too stay" if done.shared_tasks else ""
        return (alone if done.queued_tasks else "no queued task belongs to this model only") + others

    def _memos(self) -> str:
        done = self.retirement
        if not done.memos:
            return "none"
        own = f"{count_text(done.own_memos)} of them, {bytes_text(done.own_bytes)}, are no input of another live model"
        return f"{many(done.memos, 'memo')}, {bytes_text(done.bytes)}, stay until they are evicted; {own}"
