"""The work of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.work import WorkScreen
    from pipelines.worker.report import WorkerReport


def worked(worker: str, done: WorkerReport) -> WorkScreen:
    """What a worker of this name has done."""
    from headrace.screens.work import WorkScreen

    return WorkScreen(
        worker=worker,
        tasks=done.tasks,
        memos=done.memos,
        failures=done.failures,
        postponed=done.postponed,
        rows=done.rows,
        raw_bytes_read=done.raw_bytes_read,
        secs=done.secs,
        joined_fragments=done.joined_fragments,
        rejoined_fragments=done.rejoined_fragments,
        failed_joins=done.failed_joins,
    )
