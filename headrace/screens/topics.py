"""The screen of a table that a topic of Kafka feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.changes import recompute_table
from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.screens.tables import schema_lines
from headrace.terminal.units import count_text, many
from warehouse.kafka.offsets import ranges_text

if TYPE_CHECKING:
    from pipelines.kafka.feed import Fed


@dataclass(frozen=True, slots=True, repr=False)
class TopicScreen(Shown):
    """What a batch, or some, brought, and what must be computed."""

    fed: Fed

    def json_fields(self) -> dict[str, Any]:
        """The fields of the batch."""
        return fields_of(self.fed)

    def line(self) -> str:
        """What changed, in one line, with the lag."""
        fed = self.fed
        behind = f"{many(fed.lag, 'message')} behind" if fed.lag else "at the end of the topic"
        if not fed.version:
            return f"table {fed.table}, no version yet: {self._left_out() or 'no message'} of {fed.topic}; {behind}"
        table = f"table {fed.table}, version {fed.version}"
        if not fed.ranges:
            return f"{table}: nothing new in {fed.topic}; {behind}"
        more = f" ({self._left_out()})" if self._left_out() else ""
        return f"{table}: {many(fed.rows, 'row')}{more} of {fed.topic}, offsets {ranges_text(fed.ranges)}; {behind}"

    def render(self) -> RenderableType:
        """The messages, warnings, and what must be computed."""
        fed = self.fed
        lines = [self.line(), *schema_lines(fed.schema_changes)]
        lines += [f"rejected, with offset and reason: {path} in the home" for path in fed.rejects[:4]]
        lines += [*fed.notes, *fed.advice]
        if not fed.recompute:
            return "\n".join(lines)
        return Group("\n".join(lines), *recompute_table(fed.recompute, dry_run=False))

    def _left_out(self) -> str:
        fed = self.fed
        found = [(fed.rejected, "rejected"), (fed.empty, "without a value")]
        return ", ".join(f"{count_text(count)} {what}" for count, what in found if count)
