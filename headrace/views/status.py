"""The warehouse at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.evaluations import EvaluationRow
    from headrace.screens.init import InitScreen
    from headrace.screens.status import StatusScreen
    from warehouse.warehouse import Warehouse


def warehouse_status(warehouse: Warehouse, home: str) -> StatusScreen:
    """Tables, models, memos, the work saved by sharing, the queues of clients, and the newest evaluation of each run of a local ``home``."""
    from headrace.screens.status import QueueRow, StatusScreen
    from warehouse.overview import status

    found = status(warehouse)
    asked = found.requests
    return StatusScreen(
        home=home,
        catalog=warehouse.catalog.where,
        tables=len(found.tables),
        raw_rows=sum(table.rows for table in found.tables),
        raw_bytes=sum(table.bytes for table in found.tables),
        models=len(found.models),
        memos=dict(found.memos),
        memo_bytes=found.memo_bytes,
        computed_secs=found.memo_secs,
        requests=asked.hits + asked.shared + asked.queued,
        computed=asked.queued,
        hit_rate=asked.hit_rate if asked.hits + asked.shared + asked.queued else None,
        saved_bytes=found.saved_bytes,
        saved_secs=found.saved_secs,
        queues=tuple(
            QueueRow(
                queue.client,
                queue.queued,
                queue.leased,
                queue.failed,
                queue.top_priority,
                found.shares.get(queue.client),
            )
            for queue in found.queues
        ),
        batch_files=found.batch_files,
        batch_bytes=found.batch_bytes,
        evaluations=_newest_evaluations(home),
    )


def new_warehouse(warehouse: Warehouse, home: str) -> InitScreen:
    """A warehouse that is there now."""
    from headrace.screens.init import InitScreen
    from warehouse.overview import status

    return InitScreen(home, warehouse.catalog.where, len(status(warehouse).tables))


def _newest_evaluations(home: str) -> tuple[EvaluationRow, ...]:
    from headrace.screens.evaluations import EvaluationRow
    from trainer.run.progress.evaluation_log import EvaluationLog

    found = sorted(Path(home).glob("runs/*/evaluations.json"))
    logs = ((path.parent.name, EvaluationLog.read(path.parent).commits) for path in found)
    return tuple(EvaluationRow(run, commits[-1]) for run, commits in logs if commits)
