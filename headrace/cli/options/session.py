"""What every command needs to know first: which warehouse, and how to answer. The only reader of the environment."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.warehouse import Warehouse

HOME_HELP = (
    "Folder of the warehouse: catalog, memos, runs; or gs://bucket/path, and $HEADRACE_CATALOG_URL for the catalog. "
    "Default: $HEADRACE_HOME, or .headrace in this folder."
)

Home = Annotated[str, typer.Option("--home", help=HOME_HELP, show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def home_location(option: str) -> str:
    """The home a command works on: the option, else ``$HEADRACE_HOME``, else ``.headrace``.

    A home in a bucket is at the emulator that ``$STORAGE_EMULATOR_HOST`` names, unless it names an endpoint itself.
    """
    from warehouse.storage.locations import at_emulator, is_gcs, is_uri

    home = option or os.environ.get("HEADRACE_HOME", "") or ".headrace"
    if is_gcs(home):
        return at_emulator(home, os.environ.get("STORAGE_EMULATOR_HOST", ""))
    if is_uri(home):
        raise InputError("the home is a folder or a bucket", where="--home or $HEADRACE_HOME", value=home,
                         allowed="a local folder, or gs://bucket/path")  # fmt: skip
    return os.path.abspath(home)


def home_folder(option: str, what: str) -> str:
    """The home as a folder of this machine, for ``what`` is kept in no other place. Raises :class:`InputError`."""
    home = home_location(option)
    if "://" in home:
        raise InputError(f"{what} needs a home that is a local folder", where="--home or $HEADRACE_HOME", value=home,
                         next_step="give a folder of this machine instead")  # fmt: skip
    return home


#: Opens a warehouse, trying again in its own way.
Opening = Callable[[Callable[[], "Warehouse"]], "Warehouse"]


def open_once(opened: Callable[[], Warehouse]) -> Warehouse:
    """The warehouse, or the error that opening it raises."""
    return opened()


@contextmanager
def open_warehouse(option: str, opening: Opening = open_once) -> Iterator[Warehouse]:
    """The warehouse at :func:`home_location`, closed at the end.

    ``$HEADRACE_CATALOG_URL`` names another catalog; ``$HEADRACE_BUSY_TIMEOUT_SECS`` is how long to wait for another
    process's write lock.
    """
    from warehouse.config import WarehouseConfig
    from warehouse.warehouse import Warehouse

    config = WarehouseConfig(
        home=home_location(option),
        catalog_url=os.environ.get("HEADRACE_CATALOG_URL", ""),
        busy_timeout_secs=_seconds("HEADRACE_BUSY_TIMEOUT_SECS", default=30.0),
    )
    with opening(lambda: Warehouse.open(config)) as warehouse:
        yield warehouse


def user_name() -> str:
    """Who types this; empty for a user without a name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise InputError("not a number of seconds", where=f"${variable}", value=text) from None
