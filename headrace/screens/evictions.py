"""The screen of ``headrace graphs evict``: what goes, what that costs, and what stays because a job reads it."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.grid import facts
from headrace.screens.units import bytes_text, count_text, many, secs_text


@dataclass(frozen=True, slots=True)
class PinScreen:
    """A running job, and how many components stay for it."""

    holder: str
    components: int


@dataclass(frozen=True, slots=True)
class EvictionScreen:
    """What an eviction does or, once ``done``, did. The fields are those of ``warehouse.EvictionPlan``."""

    id: str
    done: bool
    request: str
    components: int
    memos: int
    rows: int
    bytes: int
    secs: float
    files_deleted: int
    deleted_bytes: int
    files_rewritten: int
    dead_bytes: int
    models: tuple[str, ...]
    needed_memos: int
    needed_secs: float
    pinned: tuple[PinScreen, ...]
    pinned_memos: int
    stored_bytes: int
    budget_bytes: int | None
    over_budget_bytes: int

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        pairs = [("asked for", self.request)]
        if self.memos:
            pairs += self._consequences()
        if self.budget_bytes is not None:
            pairs.append(("all memos", self._budget(self.budget_bytes)))
        if self.pinned:
            jobs = ", ".join(f"{pin.holder} ({many(pin.components, 'component')})" for pin in self.pinned)
            pairs.append(("stays pinned", f"{many(self.pinned_memos, 'memo')} that running jobs read: {jobs}"))
        if not self.memos:
            return Group("nothing to evict: no ready memo fits", facts(pairs))
        pairs.append(("plan", self.id))
        verb = "evicted" if self.done else "would evict"
        said = (f"{verb} {many(self.memos, 'memo')} of {many(self.components, 'component')}: "
                f"{many(self.rows, 'row')}, {bytes_text(self.bytes)}")  # fmt: skip
        next_step = f"nothing was changed; next: the same command with --yes --plan {self.id}"
        return Group(said, facts(pairs), *([] if self.done else [next_step]))

    def _consequences(self) -> list[tuple[str, str]]:
        again = (f"{many(self.needed_memos, 'memo')} that live models read, {secs_text(self.needed_secs)} of CPU time: "
                 f"{', '.join(self.models)}")  # fmt: skip
        pairs = []
        if self.files_deleted:
            pairs.append(
                ("files to delete", f"{count_text(self.files_deleted)}, {bytes_text(self.deleted_bytes)}; gc does")
            )
        if self.files_rewritten:
            dead = f"{bytes_text(self.dead_bytes)} stay in them until they are compacted"
            pairs.append(("files to rewrite", f"{count_text(self.files_rewritten)}; {dead}"))
        return [*pairs, ("to compute again", again if self.models else "nothing: no live model reads them")]

    def _budget(self, budget_bytes: int) -> str:
        left = self.stored_bytes - self.bytes
        said = f"{bytes_text(self.stored_bytes)} before, {bytes_text(left)} after; budget {bytes_text(budget_bytes)}"
        over = f"; {bytes_text(self.over_budget_bytes)} over it, and nothing else that fits may go"
        return said + (over if self.over_budget_bytes else "")
