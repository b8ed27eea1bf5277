"""The screen of ``headrace graphs evict``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts
from headrace.terminal.units import bytes_text, changed_text, count_text, many, secs_text

if TYPE_CHECKING:
    from warehouse.eviction.plan import EvictionPlan


@dataclass(frozen=True, slots=True, repr=False)
class EvictionScreen(Shown):
    """The plan of an eviction, done or not."""

    plan: EvictionPlan

    def json_fields(self) -> dict[str, Any]:
        """The fields of the plan, and the bytes over its budget."""
        return {**fields_of(self.plan), "over_budget_bytes": self.plan.over_budget_bytes}

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        plan = self.plan
        pairs = [("request", plan.request)]
        if plan.memos:
            pairs += self._consequences()
        if plan.budget_bytes is not None:
            pairs.append(("all memos", self._budget(plan.budget_bytes)))
        if plan.pinned:
            jobs = ", ".join(f"{pin.holder} ({many(pin.components, 'component')})" for pin in plan.pinned)
            pairs.append(("stays pinned", f"{many(plan.pinned_memos, 'memo')} that running jobs read: {jobs}"))
        if not plan.memos:
            return Group("nothing to evict: no ready memo matches", facts(pairs))
        pairs.append(("plan", plan.id))
        verb = "evicted" if plan.done else "would evict"
        said = (
            f"{verb} {many(plan.memos, 'memo')} of {many(plan.components, 'component')}: "
            f"{many(plan.rows, 'row')}, {bytes_text(plan.bytes)}"
        )
        next_step = f"nothing was changed; next: the same command with --yes --plan {plan.id}"
        return Group(said, facts(pairs), *([] if plan.done else [next_step]))

    def _consequences(self) -> list[tuple[str, str]]:
        plan = self.plan
        again = (
            f"{many(plan.needed_memos, 'memo')} that live models read, {secs_text(plan.needed_secs)} of CPU time: "
            f"{', '.join(plan.models)}"
        )
        pairs = []
        if plan.files_deleted:
            pairs.append(
                (
                    "files to delete",
                    f"{count_text(plan.files_deleted)}, {bytes_text(plan.deleted_bytes)}, by headrace gc",
                )
            )
        if plan.files_rewritten:
            dead = f"{bytes_text(plan.dead_bytes)} of evicted memos stay until compaction"
            pairs.append(("files to rewrite", f"{count_text(plan.files_rewritten)}; {dead}"))
        return [*pairs, ("to compute again", again if plan.models else "nothing: no live model reads them")]

    def _budget(self, budget_bytes: int) -> str:
        plan = self.plan
        left = plan.stored_bytes - plan.bytes
        said = f"{changed_text(bytes_text(plan.stored_bytes), bytes_text(left))}; budget {bytes_text(budget_bytes)}"
        over = f"; {bytes_text(plan.over_budget_bytes)} over it, and no other memo that matches can be evicted"
        return said + (over if plan.over_budget_bytes else "")
