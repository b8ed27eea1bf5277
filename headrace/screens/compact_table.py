"""The screen of ``headrace table compact``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.units import bytes_text, count_text, many

if TYPE_CHECKING:
    from warehouse.maintenance.compact_table import CompactedTable

_MOST_DAMAGED = 6


@dataclass(frozen=True, slots=True, repr=False)
class CompactedTableScreen(Shown):
    """What compacting a table merged, or would merge."""

    compacted: CompactedTable

    def json_fields(self) -> dict[str, Any]:
        """The fields of the compaction."""
        return fields_of(self.compacted)

    def render(self) -> RenderableType:
        """One sentence, what was left, and the next step."""
        done = self.compacted
        parts = [*self._merged(), *self._left()]
        if done.damaged:
            parts.append(f"damaged, and queued again if a model reads them: {many(len(done.damaged), 'memo')}")
            parts += [f"  {one}" for one in done.damaged[:_MOST_DAMAGED]]
        if done.dry_run:
            parts.append("nothing was changed; next: the same command without --dry-run" if done.merged else "")
        elif done.queued:
            parts.append(f"to compute: {many(done.queued, 'memo')}; next: headrace work")
        elif done.memos:
            parts.append("next: headrace gc deletes the parts' files once no job reads them")
        return Group(*(part for part in parts if part))

    def _merged(self) -> list[str]:
        done = self.compacted
        if not done.merged:
            is_left = done.waiting or done.incomplete or done.changed or done.quarantined
            return [f"table {done.table}: " + ("no fragments were merged" if is_left else "no fragments to merge")]
        verb, about = ("would merge", "about ") if done.dry_run else ("merged", "")
        parts = [
            f"table {done.table}: {verb} {many(done.parts, 'fragment')} of {many(done.rows, 'event')} into "
            f"{count_text(done.merged)}; the table has {count_text(done.fragments_after)} in place of {count_text(done.fragments)}"
        ]
        if done.memos:
            verb = "would be joined" if done.dry_run else "were joined"
            parts.append(
                f"{many(done.memos, 'memo')} {verb} into {count_text(done.memos_after)}, {about}"
                f"{bytes_text(done.written_bytes)}, without computing"
            )
        return parts

    def _left(self) -> list[str]:
        done = self.compacted
        parts = []
        if done.waiting:
            parts.append(
                f"left, because some of their memos are not computed yet: {many(done.waiting, 'group')}; next: headrace work, "
                "then the same command"
            )
        if done.incomplete:
            parts.append(
                "left, because a merge would remove memos: of a component, some are ready or evicted and others are not: "
                f"{many(done.incomplete, 'group')}; next: submit its model and headrace work, or headrace graphs evict, then the same "
                "command"
            )
        if done.changed:
            parts.append(
                f"left, because another process changed them meanwhile: {many(done.changed, 'group')}; next: the same command"
            )
        if done.quarantined:
            parts.append(
                f"left, because a task is quarantined or dropped: {many(done.quarantined, 'fragment')}; next: headrace tasks list"
            )
        return parts
