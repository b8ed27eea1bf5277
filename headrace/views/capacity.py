"""How many workers the queue needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.screens.capacity import CapacityScreen
    from warehouse.scheduling.capacity import CapacitySettings
    from warehouse.warehouse import Warehouse


def capacity(warehouse: Warehouse, settings: CapacitySettings) -> CapacityScreen:
    """The autoscale hint for the current backlog; nothing changes."""
    from headrace.screens.capacity import CapacityScreen, ClientCapacityRow
    from warehouse.queue.backlog import read_backlog
    from warehouse.scheduling.capacity import FleetState, workers_wanted

    backlog = read_backlog(warehouse)
    hint = workers_wanted(backlog, FleetState(warehouse.clock(), backlog.workers), settings)
    of = {one.client: one for one in backlog.clients}
    rows = tuple(
        ClientCapacityRow(
            client=one.client,
            workers=one.workers,
            queued=of[one.client].queued,
            leased=of[one.client].leased,
            secs=of[one.client].secs,
            memo_bytes=of[one.client].memo_bytes,
            oldest_secs=of[one.client].oldest_secs,
            deadline_secs=of[one.client].deadline_secs,
            left_secs=one.left_secs,
            drain_secs=one.drain_secs,
        )
        for one in hint.clients
    )
    return CapacityScreen(
        hint.workers, settings.threads, backlog.workers, hint.binding, hint.drain_secs, hint.why, rows
    )
