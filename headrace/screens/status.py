"""The screen of ``headrace status``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from headrace.screens.evaluations import EvaluationRow, evaluation_table
from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import bytes_text, count_text, many, percent_text, secs_text


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One client's queue. ``share``: its current share of the workers, null while it has nothing to lease."""

    client: str
    queued: int
    leased: int
    failed: int
    top_priority: int | None
    share: float | None


@dataclass(frozen=True, slots=True, repr=False)
class StatusScreen(Shown):
    """The state of the warehouse.

    Attributes:
        requests: (input, fragment) pairs over all submissions of new models or versions.
        computed: requests that were queued; the others were memoized or queued already.
        hit_rate: the share of these others.
        batch_files: files of batches, which trainings read in place of memos.
        batch_bytes: their size.
        evaluations: of each run in the home whose commits are evaluated, the newest.
    """

    home: str
    catalog: str
    tables: int
    raw_rows: int
    raw_bytes: int
    models: int
    memos: dict[str, int]
    memo_bytes: int
    computed_secs: float
    requests: int
    computed: int
    hit_rate: float | None
    saved_bytes: int
    saved_secs: float
    queues: tuple[QueueRow, ...]
    batch_files: int = 0
    batch_bytes: int = 0
    evaluations: tuple[EvaluationRow, ...] = ()

    def json_fields(self) -> dict[str, Any]:
        """The fields."""
        return {**fields_of(self), "evaluations": [one.json_fields() for one in self.evaluations]}

    def render(self) -> RenderableType:
        """Facts, then the queues."""
        memos = ", ".join(f"{count_text(n)} {state.lower()}" for state, n in self.memos.items() if n) or "none"
        head: RenderableType = facts(
            (
                ("home", self.home),
                ("catalog", self.catalog),
                ("tables", f"{count_text(self.tables)}: {many(self.raw_rows, 'row')}, {bytes_text(self.raw_bytes)}"),
                ("models", count_text(self.models)),
                ("memos", f"{memos}; {bytes_text(self.memo_bytes)}, computed in {secs_text(self.computed_secs)}"),
                *self._batch_files(),
                ("sharing", f"{many(self.requests, 'request')}, {many(self.computed, 'computation')}: hit rate "
                            f"{percent_text(self.hit_rate)}"),
                ("saved by sharing", f"{bytes_text(self.saved_bytes)} and {secs_text(self.saved_secs)} of computing"),
            )
        )  # fmt: skip
        if self.evaluations:
            title = "newest evaluations of runs"
            head = Group(head, "", evaluation_table(self.evaluations, has_runs=True, title=title))
        if not any(q.queued or q.leased or q.failed for q in self.queues):
            return Group(head, "", "every queue is empty")
        rows = (
            (q.client, count_text(q.queued), count_text(q.leased), count_text(q.failed),
             "-" if q.top_priority is None else str(q.top_priority), percent_text(q.share))
            for q in self.queues
        )  # fmt: skip
        return Group(head, "", grid(("client", "queued>", "leased>", "failed>", "top priority>", "share now>"), rows))

    def _batch_files(self) -> list[tuple[str, str]]:
        if not self.batch_files:
            return []
        return [("batches", f"{many(self.batch_files, 'file')}, {bytes_text(self.batch_bytes)}")]
