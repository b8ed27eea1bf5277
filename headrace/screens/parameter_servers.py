"""The screen of ``headrace ps status``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from trainer.tables.hashed_counts import sum_counts

if TYPE_CHECKING:
    from trainer.servers.server_status import ServerStatus
    from trainer.tables.hashed_counts import HashedCounts


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A parameter server; see :class:`~trainer.servers.server_status.ServerStatus`."""

    address: str
    tables: int
    rows: int
    applied: tuple[int, ...]
    fetches: int
    fetched_rows: int
    updates: int
    updated_rows: int
    repeated_updates: int
    staleness: dict[int, int]
    wait_secs: float
    hashed: dict[str, HashedCounts]

    @classmethod
    def of(cls, address: str, status: ServerStatus) -> ServerRow:
        """The row of a server."""
        return cls(
            address,
            status.tables,
            status.rows,
            status.applied,
            status.fetches,
            status.fetched_rows,
            status.updates,
            status.updated_rows,
            status.repeated_updates,
            dict(status.staleness),
            status.wait_secs,
            dict(status.hashed),
        )


@dataclass(frozen=True, slots=True, repr=False)
class ServersScreen(Shown):
    """What servers hold and have done."""

    servers: tuple[ServerRow, ...]

    def json_fields(self) -> dict[str, Any]:
        """The servers in the order of the addresses."""
        return {"servers": [fields_of(one) for one in self.servers]}

    def render(self) -> RenderableType:
        """One line per server, the imbalance of their work, and one line per hashed table."""
        titles = (
            "server",
            "tables",
            "rows",
            "fetches",
            "rows fetched",
            "updates",
            "rows updated",
            "repeated",
            "last update",
        )
        rows = [
            (
                one.address,
                f"{one.tables:,}",
                f"{one.rows:,}",
                f"{one.fetches:,}",
                f"{one.fetched_rows:,}",
                f"{one.updates:,}",
                f"{one.updated_rows:,}",
                f"{one.repeated_updates:,}",
                " ".join(f"{number:,}" for number in one.applied),
            )
            for one in self.servers
        ]
        fetched = [
            one.fetched_rows for one in self.servers if one.rows
        ]  # a worker has none, and fetches what servers do
        total = sum(fetched)
        lines: list[RenderableType] = [grid(titles, rows)]
        if total and len(fetched) > 1:
            lines.append(
                f"load imbalance: {max(fetched) * len(fetched) / total:.3f}, the most rows fetched from a server by the mean"
            )
        missed = {
            number: sum(one.staleness.get(number, 0) for one in self.servers)
            for one in self.servers
            for number in one.staleness
        }
        if missed:
            listed = ", ".join(f"{number}: {missed[number]:,}" for number in sorted(missed))
            waited = sum(one.wait_secs for one in self.servers)
            lines.append(
                f"fetches by missed updates of other clients: {listed}; fetches have waited {waited:.1f} s for them"
            )
        lines += [counts.summary(name) for name, counts in sum_counts(one.hashed for one in self.servers).items()]
        return Group(*lines)
