"""``headrace init``: make a new warehouse."""

from __future__ import annotations

from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.terminal.output import emit


def init(home: Home = "", as_json: AsJson = False) -> None:
    """Make a new, empty warehouse; one that exists stays as it is."""
    from headrace.views.status import new_warehouse

    with open_warehouse(home, creates=True) as warehouse:
        screen = new_warehouse(warehouse, home_location(home))
    emit(screen, as_json=as_json)
