"""``headrace status``: the warehouse at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.terminal.output import emit

if TYPE_CHECKING:
    from headrace.screens.evaluations import EvaluationRow


def status(home: Home = "", as_json: AsJson = False) -> None:
    """Show tables, models, memos, the work saved by sharing, and the queues of clients."""
    from headrace.screens.status import QueueRow, StatusScreen
    from warehouse.overview import status as read_status

    with open_warehouse(home) as warehouse:
        found, catalog = read_status(warehouse), warehouse.catalog.where
    asked = found.requests
    screen = StatusScreen(
        home=home_location(home),
        catalog=catalog,
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
        evaluations=_newest_evaluations(home_location(home)),
    )
    emit(screen, as_json=as_json)


def _newest_evaluations(home: str) -> tuple[EvaluationRow, ...]:
    """The newest evaluation of each run of a local home."""
    from headrace.screens.evaluations import EvaluationRow
    from trainer.run.progress.evaluation_log import EvaluationLog

    found = sorted(Path(home).glob("runs/*/evaluations.json"))
    logs = ((path.parent.name, EvaluationLog.read(path.parent).commits) for path in found)
    return tuple(EvaluationRow(run, commits[-1]) for run, commits in logs if commits)
