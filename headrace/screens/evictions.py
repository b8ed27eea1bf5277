"""Screens of ``headrace graphs evict``, ``evictions`` and ``restore``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, changed_text, count_text, many, moment, secs_text, time_text

if TYPE_CHECKING:
    from warehouse.eviction.history import PastEviction
    from warehouse.eviction.plan import EvictionPlan
    from warehouse.eviction.restore import Restoration


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
        if plan.eviction is not None:
            next_step = f"undo, until headrace gc deletes the files: headrace graphs restore {plan.eviction} --yes"
        else:
            next_step = f"nothing was changed; next: the same command with --yes --plan {plan.id}"
        return Group(said, facts(pairs), next_step)

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


@dataclass(frozen=True, slots=True, repr=False)
class EvictionsScreen(Listing):
    """The evictions that were done, newest first. ``more``: there are older ones."""

    rows_field: ClassVar[str] = "evictions"
    columns: ClassVar[tuple[str, ...]] = (
        "number",
        "evicted_at",
        "why",
        "who",
        "request",
        "plan",
        "memos",
        "size_bytes",
        "kept_memos",
        "kept_bytes",
        "restored_at",
        "restored_by",
    )

    evictions: tuple[PastEviction, ...]
    more: bool

    def render(self) -> RenderableType:
        """One line per eviction: what it took, and what of that can still be restored."""
        if not self.evictions:
            return "no eviction was done"
        rows = [
            (str(one.number), time_text(moment(one.evicted_at)), one.who or "-", count_text(one.memos), bytes_text(one.size_bytes), _kept(one),
             f"{one.why} [{one.request}]")
            for one in self.evictions
        ]  # fmt: skip
        table = grid(("number>", "evicted (UTC)", "by", "memos>", "size>", "to restore>", "why*"), rows)
        return Group(table, f"there are older ones: --before {self.evictions[-1].number}") if self.more else table


def _kept(past: PastEviction) -> str:
    if past.kept_memos:
        return f"{count_text(past.kept_memos)}, {bytes_text(past.kept_bytes)}"
    return "-" if past.restored_at is None else "restored"


@dataclass(frozen=True, slots=True, repr=False)
class RestorationScreen(Shown):
    """What undoing an eviction does, done or not."""

    restoration: Restoration

    def json_fields(self) -> dict[str, Any]:
        """The fields of the restoration."""
        return fields_of(self.restoration)

    def render(self) -> RenderableType:
        """One sentence, the consequences, and the next step."""
        found = self.restoration
        past = found.eviction
        by = f" by {past.who}" if past.who else ""
        pairs = [
            ("eviction", f"{past.number}, {time_text(moment(past.evicted_at))} UTC{by}: {past.why} [{past.request}]")
        ]
        if found.memos:
            readers = f"; read by {', '.join(found.models)}" if found.models else "; no live model reads them"
            pairs.append(("not computed again", f"{secs_text(found.secs)} of CPU time{readers}"))
        if found.collected_memos:
            pairs.append(("deleted", f"{many(found.collected_memos, 'memo')} by headrace gc"))
        if found.changed_memos:
            pairs.append(
                ("changed since", f"{many(found.changed_memos, 'memo')} queued, computed, evicted or dropped again")
            )
        if past.restored_at is not None:
            pairs.append(
                (
                    "restored before",
                    f"{time_text(moment(past.restored_at))} UTC{f' by {past.restored_by}' if past.restored_by else ''}",
                )
            )
        if not found.memos:
            return Group("nothing to restore: no memo of this eviction is left in a file", facts(pairs))
        said = (
            f"{'restored' if found.done else 'would restore'} {many(found.memos, 'memo')} of {many(found.components, 'component')}: "
            f"{many(found.rows, 'row')}, {bytes_text(found.size_bytes)}"
        )
        next_step = f"nothing was changed; next: headrace graphs restore {past.number} --yes"
        return Group(said, facts(pairs), *([] if found.done else [next_step]))
