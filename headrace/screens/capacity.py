"""The screen of ``headrace work --autoscale-hint``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many, secs_text


@dataclass(frozen=True, slots=True)
class ClientCapacityRow:
    """One client's queue and the workers that its deadline needs. A negative ``left_secs``: the oldest task is late."""

    client: str
    workers: int
    queued: int
    leased: int
    secs: float
    memo_bytes: float
    oldest_secs: float
    deadline_secs: float
    left_secs: float
    drain_secs: float


@dataclass(frozen=True, slots=True, repr=False)
class CapacityScreen(Shown):
    """The number of ``workers`` with ``threads`` each that the queue needs; ``running`` workers hold leases now."""

    workers: int
    threads: int
    running: int
    binding: str
    drain_secs: float
    why: str
    clients: tuple[ClientCapacityRow, ...]

    def render(self) -> RenderableType:
        """The number and the reason, then one line per client."""
        head = (
            f"the queue needs {many(self.workers, 'worker')} with {many(self.threads, 'thread')} each; "
            f"{many(self.running, 'worker')} {'has' if self.running == 1 else 'have'} tasks now"
        )
        if not self.clients:
            return f"{head}\n{self.why}"
        rows = (
            (one.client, count_text(one.workers), count_text(one.queued), count_text(one.leased), secs_text(one.secs),
             bytes_text(one.memo_bytes), secs_text(one.oldest_secs), secs_text(one.deadline_secs), secs_text(one.drain_secs))
            for one in self.clients
        )  # fmt: skip
        titles = (
            "client",
            "workers>",
            "queued>",
            "leased>",
            "one core>",
            "memos>",
            "oldest>",
            "deadline>",
            "drained in>",
        )
        return Group(head, self.why, "", grid(titles, rows))
