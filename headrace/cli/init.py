"""``headrace init``: make a new warehouse."""

from __future__ import annotations

from headrace.cli.options.session import AsJson, Home, home_location, open_warehouse
from headrace.terminal.output import emit


def init(home: Home = "", as_json: AsJson = False) -> None:
    """Make a new, empty warehouse; one that exists stays as it is."""
    from headrace.screens.init import InitScreen
    from warehouse.overview import status

    with open_warehouse(home, creates=True) as warehouse:
        tables = len(status(warehouse).tables)
        emit(InitScreen(home_location(home), warehouse.catalog.where, tables), as_json=as_json)
