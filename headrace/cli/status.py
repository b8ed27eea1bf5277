"""``headrace status``: the warehouse at a glance."""

from __future__ import annotations

from headrace.cli.output import emit
from headrace.cli.session import AsJson, Home, home_folder, open_warehouse


def status(home: Home = "", as_json: AsJson = False) -> None:
    """Tables, models, memos, what sharing saved, and every client's queue."""
    from headrace.screens.status import QueueRow, StatusScreen
    from warehouse.statistics import status as read_status

    with open_warehouse(home) as warehouse:
        found = read_status(warehouse)
    screen = StatusScreen(
        home=home_folder(home),
        tables=found.tables,
        raw_rows=found.raw_rows,
        raw_bytes=found.raw_bytes,
        models=found.models,
        components=found.components,
        memos=found.memos,
        memo_bytes=found.memo_bytes,
        computed_secs=found.computed_secs,
        requests=found.requests,
        distinct=found.distinct,
        hit_rate=found.hit_rate,
        saved_bytes=found.saved_bytes,
        saved_secs=found.saved_secs,
        queues=tuple(
            QueueRow(queue.client, queue.pending, queue.running, queue.failed, queue.highest_priority)
            for queue in found.queues
        ),
    )
    emit(screen, as_json=as_json)
