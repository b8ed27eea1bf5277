"""What the placement, the servers and the pruning of tables have done on a run's log, for the screen of ``headrace train``."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.terminal.units import count_text, many, percent_text, secs_text


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """How a plan divides the weights of the tables.

    Attributes:
        how: "plan" or "towers".
        parts: the cores, hosts or servers.
        largest_share: the share of the stored weights on the part with the most.
        copied_share: the share of the stored weights that are further copies of rows.
    """

    how: str
    parts: int
    largest_share: float
    copied_share: float

    def text(self) -> str:
        """One line."""
        copies = f"; {percent_text(self.copied_share)} are copies" if self.copied_share else ""
        return (
            f"by {self.how} over {many(self.parts, 'part')}: the largest has {percent_text(self.largest_share)} of the weights, "
            f"an equal share is {percent_text(1 / self.parts)}{copies}"
        )


@dataclass(frozen=True, slots=True)
class ServedRow:
    """What parameter servers have answered while this command trained.

    Attributes:
        servers: those that had answered before it began, and whose process has not begun since.
        fetched_rows: that lookups have read.
        updated_rows: that updates have changed; rows that a checkpoint has brought count, too.
        wait_secs: how long fetches have waited for updates of other clients, all added up.
        events: that this command trained; 0 where the servers have read rows for others, too, or not for all of them.
        are_last: the job has changed the number of its servers, and these ran at its end.
    """

    servers: int
    fetched_rows: int
    updated_rows: int
    wait_secs: float
    events: int
    are_last: bool = False

    def text(self) -> str:
        """One line."""
        which = f"{many(self.servers, 'server')}{' that ran at the end' if self.are_last else ''}"
        each = f", {self.fetched_rows / self.events:.3g} rows read an event" if self.events else ""
        waited = f"; fetches waited {secs_text(self.wait_secs)} for other clients" if self.wait_secs else ""
        return f"{which} read {count_text(self.fetched_rows)} rows, and updated or loaded {count_text(self.updated_rows)}{each}{waited}"


@dataclass(frozen=True, slots=True)
class PrunedRow:
    """The share of importance that the kept rows of pruned tables have.

    Attributes:
        kept_rows, seen_rows: of all tables: rows with memory, and rows that training has looked up.
        least_importance_share: of the table that has lost the most, the share of its importance that is kept; None for no importance yet.
    """

    kept_rows: int
    seen_rows: int
    least_importance_share: float | None

    def text(self) -> str:
        """One line."""
        worth = self.least_importance_share
        kept = "" if worth is None else f", in each table at least {percent_text(worth)} of the importance"
        return f"{count_text(self.kept_rows)} of {count_text(self.seen_rows)} rows that occurred are kept{kept}"
