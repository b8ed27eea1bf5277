"""Opens a warehouse in Python."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.client.home import Home
from transforms.errors import InputError
from warehouse.config import WarehouseConfig
from warehouse.homes import check_exists, make_home
from warehouse.settings import given_settings, settings_of


def open(home: str | Path = ".headrace", *, catalog_url: str = "", create: bool = False, progress: bool = True) -> Home:
    """A warehouse, to work with it in Python as the commands do.

    Args:
        home: as ``--home`` of the commands: a folder or a bucket.
        catalog_url: the catalog's, if it is not in the home.
        create: make the warehouse if it is not there.
        progress: show what a command does, on a terminal and in a notebook.

    Raises :class:`~transforms.errors.InputError` for a home that is not a warehouse; nothing is made then.

    >>> with open(folder, create=True) as w:
    ...     w.status().tables
    0
    """
    location = str(home)
    place = location if "://" in location else os.path.abspath(location)
    config = settings_of(place, given_settings(catalog_url=catalog_url), {}).config
    if create:
        make_home(config)
    else:
        _check(config)
    return Home(config, progress=progress)


def _check(config: WarehouseConfig) -> None:
    try:
        check_exists(config)
    except InputError as error:
        error.where, error.next_step = (
            "home",
            "name one that exists, or make a new warehouse: hr.open(home, create=True)",
        )
        raise
