"""What every command needs to know first: which warehouse, and how to answer. The only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.warehouse import Warehouse

HOME_HELP = "Folder of the warehouse: catalog, memos, runs. Default: $HEADRACE_HOME, or .headrace in this folder."

Home = Annotated[str, typer.Option("--home", help=HOME_HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def home_folder(option: str) -> str:
    """The home a command works on: the option, else ``$HEADRACE_HOME``, else ``.headrace``."""
    home = option or os.environ.get("HEADRACE_HOME", "") or ".headrace"
    if "://" in home:
        raise InputError("the home is a local folder in this release", where="--home or $HEADRACE_HOME", value=home)
    return os.path.abspath(home)


@contextmanager
def open_warehouse(option: str) -> Iterator[Warehouse]:
    """The warehouse at :func:`home_folder`, closed at the end.

    ``$HEADRACE_CATALOG_URL`` names another catalog; ``$HEADRACE_BUSY_TIMEOUT_SECS`` is how long to wait for another
    process's write lock.
    """
    from warehouse.config import WarehouseConfig
    from warehouse.warehouse import Warehouse

    config = WarehouseConfig(
        home=home_folder(option),
        catalog_url=os.environ.get("HEADRACE_CATALOG_URL", ""),
        busy_timeout_secs=_seconds("HEADRACE_BUSY_TIMEOUT_SECS", default=30.0),
    )
    with Warehouse.open(config) as warehouse:
        yield warehouse


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise InputError("not a number of seconds", where=f"${variable}", value=text) from None
