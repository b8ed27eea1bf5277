"""``headrace queue``: the queue now and in the last hours."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.options.listings import listing
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.terminal.output import emit
from headrace.terminal.quantities import span_of


@listing(csv=False)
def queue(
    last: Annotated[str, typer.Option(help="How far back the history goes, up to a week: 30m, 6h, 2d.")] = "1h",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Show the queues of clients, the workers that hold leases, and the queued tasks by minute."""
    from headrace.views import queue as queues

    minutes = queues.minutes_of("--last", span_of("--last", last))
    with open_warehouse(home) as warehouse:
        screen = queues.shown(warehouse, minutes)
    emit(screen, as_json=as_json)
