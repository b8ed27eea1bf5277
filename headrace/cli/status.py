"""``headrace status``: the warehouse at a glance."""

from __future__ import annotations

from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.terminal.output import emit


@listing(csv=False)
def status(home: Home = "", as_json: AsJson = False) -> None:
    """Show tables, models, memos, the work saved by sharing, and the queues of clients."""
    from headrace.views.status import warehouse_status

    with open_warehouse(home) as warehouse:
        screen = warehouse_status(warehouse, home_location(home))
    emit(screen, as_json=as_json)
