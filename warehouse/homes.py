"""Where warehouses are: whether a home is one, and which existing one is nearest to a home that is not."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from transforms.errors import InputError, StorageError
from warehouse.catalog.urls import outline, parse_url
from warehouse.config import WarehouseConfig
from warehouse.storage.durable_files import make_folders

#: The file of a catalog in its home.
CATALOG_FILE: Final = "catalog.db"
#: The name of a home by default.
DEFAULT_HOME: Final = ".headrace"
_SIMILAR: Final = 0.5


def check_exists(config: WarehouseConfig) -> None:
    """Raise :class:`InputError` unless the warehouse exists, with the nearest one that does; nothing is created.

    A warehouse exists if its SQLite file and, of a local home, its folder do. Servers and buckets are not asked.
    """
    database = _sqlite_file(config)
    home = _local(config.home)
    if home is not None:
        check_folder(home)
    if database is None or os.path.exists(database):
        return
    if home is not None and not config.catalog_url:
        raise _absent(home)
    raise InputError("the catalog must exist", where="$HEADRACE_CATALOG_URL", value=outline(config.catalog_url),
                     next_step="correct the URL, or make a new warehouse with this catalog: headrace init")  # fmt: skip


def check_folder(home: str) -> None:
    """Raise :class:`InputError` unless the folder of a local home exists."""
    if not os.path.isdir(home):
        raise _absent(home)


def make_home(config: WarehouseConfig) -> None:
    """Make the folder of a local home. Its catalog is made when it is opened. Raises :class:`StorageError`."""
    home = _local(config.home)
    if home is None:
        return
    try:
        make_folders(home)
    except OSError as error:
        raise StorageError("the folder of a warehouse cannot be made", where=home, value=str(error),
                           next_step="give a home in a folder that exists and may be written") from error  # fmt: skip


def nearest_home(home: Path) -> Path | None:
    """An existing warehouse near a home without a warehouse: one beside it of similar name, else one in a folder above; None without one."""
    beside = [one.name for one in _folders(home.parent) if _is_home(one)]
    similar = get_close_matches(home.name, beside, 1, _SIMILAR)
    if similar:
        return home.parent / similar[0]
    above = (place for folder in home.parents for place in (folder, folder / DEFAULT_HOME))
    return next((place for place in above if _is_home(place)), None)


def _absent(home: str) -> InputError:
    near = nearest_home(Path(os.path.abspath(home)))
    new = f"headrace init --home {home} makes a new warehouse, as headrace table add and table import do"
    return InputError("the home must be the folder of a warehouse", where="--home or $HEADRACE_HOME", value=home,
                      allowed=f"a folder with {CATALOG_FILE}, or one whose catalog is in $HEADRACE_CATALOG_URL",
                      next_step=new if near is None else f"did you mean --home {near}? Or {new}")  # fmt: skip


def _sqlite_file(config: WarehouseConfig) -> str | None:
    """The file of a catalog in SQLite; None for a server, and for a catalog in memory."""
    url = parse_url(config.url)
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return url.database


def _local(home: str) -> str | None:
    """The folder of a local home; None for one in a bucket."""
    folder = home.removeprefix("file://")
    return None if "://" in folder else folder


def _is_home(folder: Path) -> bool:
    return (folder / CATALOG_FILE).is_file()


def _folders(parent: Path) -> list[Path]:
    try:
        return [one for one in parent.iterdir() if one.is_dir()]
    except OSError:  # it does not exist, or its content is hidden from this user
        return []
