"""The screen of ``headrace queue``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.clients import ClientsScreen
from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.line_plot import Line, line_plot
from headrace.terminal.units import count_text, many, moment, secs_text, time_text

if TYPE_CHECKING:
    from warehouse.queue.clients import Client
    from warehouse.queue.history import LeaseHolder, QueueMinute

_PLOT_WIDTH, _PLOT_HEIGHT = 60, 4


@dataclass(frozen=True, slots=True, repr=False)
class QueueScreen(Shown):
    """The queue.

    Attributes:
        at: When it was read.
        minutes: How many minutes the history goes back.
        clients: All clients.
        floor_share: The least share of a waiting client.
        default_deadline_secs: The longest wait of clients without a deadline of their own.
        holders: The workers that hold leases.
        history: The recorded minutes; a minute in which no worker ran is missing.
    """

    at: float
    minutes: int
    clients: tuple[Client, ...]
    floor_share: float
    default_deadline_secs: float
    holders: tuple[LeaseHolder, ...]
    history: tuple[QueueMinute, ...]

    def json_fields(self) -> dict[str, Any]:
        """The fields, with times as text."""
        return {
            **fields_of(self),
            "at": moment(self.at),
            "holders": [
                {**fields_of(one), "since": moment(one.since), "until": moment(one.until)} for one in self.holders
            ],
            "history": [{**fields_of(one), "at": moment(one.at)} for one in self.history],
        }

    def render(self) -> RenderableType:
        """The clients, the workers, and the queued tasks by minute."""
        parts: list[RenderableType] = [ClientsScreen(self.clients, self.floor_share).render(), ""]
        if self.holders:
            rows = (
                (one.worker, count_text(one.tasks), secs_text(max(0.0, self.at - one.since)), secs_text(max(0.0, one.until - self.at)))
                for one in self.holders
            )  # fmt: skip
            parts.append(grid(("worker", "tasks>", "oldest lease is>", "next expires in>"), rows))
        else:
            parts.append("no worker holds a lease; next: headrace work")
        return Group(*parts, "", *self._history())

    def _history(self) -> list[RenderableType]:
        if not self.history:
            return [f"no worker recorded the queue in the last {many(self.minutes, 'minute')}"]
        most = max(one.queued for one in self.history)
        first, last = self.history[0], self.history[-1]
        said = (
            f"queued tasks from {time_text(moment(first.at))} to {time_text(moment(last.at))}: most {count_text(most)}, last {count_text(last.queued)}; "
            f"recorded in {many(len(self.history), 'minute')} of {count_text(self.minutes)}"
        )
        if len(self.history) < 2 or not most:
            return [said]
        x = [(one.at - first.at) / 60 for one in self.history]
        line = Line(x, [one.queued for one in self.history])
        return [said, *line_plot([line], _PLOT_WIDTH, _PLOT_HEIGHT, 0.0, float(most), max(x))]
