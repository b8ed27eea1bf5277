"""The queue: clients, the workers that hold leases, and the last hours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.queue import QueueScreen
    from warehouse.warehouse import Warehouse


def shown(warehouse: Warehouse, minutes: int = 60) -> QueueScreen:
    """The queue now, and in the last ``minutes`` as workers recorded them."""
    from headrace.screens.queue import QueueScreen
    from warehouse.queue.clients import list_clients
    from warehouse.queue.history import lease_holders, queue_history

    return QueueScreen(
        at=warehouse.clock(),
        minutes=minutes,
        clients=list_clients(warehouse),
        floor_share=warehouse.config.client_floor_share,
        default_deadline_secs=warehouse.config.deadline_secs,
        holders=lease_holders(warehouse),
        history=queue_history(warehouse, minutes),
    )


def minutes_of(where: str, secs: float) -> int:
    """A time as minutes of the history, rounded up. Raises :class:`InputError` for more than are kept."""
    from warehouse.queue.history import KEPT_MINUTES

    minutes = math.ceil(secs / 60)
    if not 1 <= minutes <= KEPT_MINUTES:
        raise InputError(
            "the history of the queue must be at most a week", where=where, value=f"{secs:g} s", allowed="1m to 7d"
        )
    return minutes
