"""Screens of ``headrace clients``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import count_text, percent_text, secs_text

if TYPE_CHECKING:
    from warehouse.queue.clients import Client


@dataclass(frozen=True, slots=True, repr=False)
class ClientsScreen(Listing):
    """All clients. ``floor_share``: the minimum share of a waiting client."""

    rows_field: ClassVar[str] = "clients"
    columns: ClassVar[tuple[str, ...]] = (
        "name",
        "weight",
        "deadline_secs",
        "share",
        "queued",
        "leased",
        "failed",
        "leased_tasks",
        "virtual_secs",
    )

    clients: tuple[Client, ...]
    floor_share: float

    def render(self) -> RenderableType:
        """One line per client, and the meaning of the columns."""
        if not self.clients:
            return "no client has submitted a model; next: headrace model submit FILE.py --table TABLE"
        return _table(self.clients, self.floor_share)


@dataclass(frozen=True, slots=True, repr=False)
class ClientScreen(Shown):
    """One client with its new settings."""

    client: Client
    floor_share: float

    def render(self) -> RenderableType:
        """One line."""
        return _table((self.client,), self.floor_share)


def _table(clients: Sequence[Client], floor_share: float) -> RenderableType:
    rows = (
        (c.name, f"{c.weight:g}", percent_text(c.share), count_text(c.queued), count_text(c.leased), count_text(c.failed),
         count_text(c.leased_tasks), "-" if c.virtual_secs is None else f"{c.virtual_secs:,.1f}",
         "default" if c.deadline_secs is None else secs_text(c.deadline_secs))
        for c in clients
    )  # fmt: skip
    columns = (
        "client",
        "weight>",
        "share now>",
        "queued>",
        "leased>",
        "failed>",
        "leases so far>",
        "virtual time>",
        "deadline>",
    )
    share = (
        f"share now: its part of the workers while clients have tasks to lease, at least {percent_text(floor_share)}"
    )
    order = (
        "virtual time: its seconds of computing divided by its share; the waiting client with the least is served next"
    )
    return Group(grid(columns, rows), share, order)
