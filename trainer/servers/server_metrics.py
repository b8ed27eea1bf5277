"""The metrics of a parameter server, and those of an embedding worker: times of messages, and what their status counts."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.servers.server_status import ServerStatus
from transforms.metrics.declarations import Metric, counter, durations, gauge
from transforms.metrics.families import Family, by_label, by_labels, single
from transforms.metrics.instruments import LabelledHistograms


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """The declarations of one of the two roles; see :func:`server_metrics`."""

    messages: Metric
    tables: Metric
    rows: Metric
    fetches: Metric
    fetched_rows: Metric
    updates: Metric
    updated_rows: Metric
    repeated_updates: Metric
    wait: Metric
    missed: Metric
    hashed_rows: Metric
    hashed_changes: Metric

    @property
    def all(self) -> tuple[Metric, ...]:
        """Each of them."""
        return tuple(getattr(self, name) for name in self.__slots__)

    def families(self, status: ServerStatus, times: LabelledHistograms) -> tuple[Family, ...]:
        """The metrics of a process with this status; ``times``: seconds of messages by their kind."""
        missed = sum(updates * count for updates, count in status.staleness.items())
        fetches = sum(status.staleness.values())
        return (
            by_label(self.messages, times.readings()),
            single(self.tables, status.tables),
            single(self.rows, status.rows),
            single(self.fetches, status.fetches),
            single(self.fetched_rows, status.fetched_rows),
            single(self.updates, status.updates),
            single(self.updated_rows, status.updated_rows),
            single(self.repeated_updates, status.repeated_updates),
            single(self.wait, status.wait_secs),
            single(self.missed, missed / fetches if fetches else 0.0),
            by_label(self.hashed_rows, {table: float(one.stored) for table, one in status.hashed.items()}),
            by_labels(
                self.hashed_changes,
                [
                    ((table, change), float(getattr(one, change)))
                    for table, one in status.hashed.items()
                    for change in ("admitted", "evicted", "expired")
                ],
            ),
        )


def server_metrics(role: str) -> ServerMetrics:
    """The declarations of ``server`` or ``embedding_worker``."""
    start = f"headrace_{role}"
    return ServerMetrics(
        messages=durations(f"{start}_message_seconds", "Time from the header of a request until its answer is sent, by its kind.", "kind"),
        tables=gauge(f"{start}_tables", "Parts of tables that the process holds."),
        rows=gauge(f"{start}_rows", "Rows that these parts may have."),
        fetches=counter(f"{start}_fetches_total", "Fetches that were answered."),
        fetched_rows=counter(f"{start}_fetched_rows_total", "Rows in the answers of fetches."),
        updates=counter(f"{start}_updates_total", "Updates that were made."),
        updated_rows=counter(f"{start}_updated_rows_total", "Rows of these updates."),
        repeated_updates=counter(f"{start}_repeated_updates_total", "Updates that were sent again, and not made again."),
        wait=counter(f"{start}_update_wait_seconds_total", "Time in which fetches waited for the updates of other clients."),
        missed=gauge(f"{start}_fetch_staleness_updates", "Mean number of updates of other clients that a fetch missed."),
        hashed_rows=gauge(f"{start}_hashed_rows", "Rows of hashed tables in this process.", "table"),
        hashed_changes=counter(f"{start}_hashed_changes_total", "Ids that got a row (admitted), and rows that lost their place (evicted, expired).", "table", "change"),
    )  # fmt: skip


SERVER, EMBEDDING_WORKER = server_metrics("server"), server_metrics("embedding_worker")
METRICS = (*SERVER.all, *EMBEDDING_WORKER.all)
