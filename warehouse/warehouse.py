"""An open warehouse: its configuration, its catalog, its storage and its clock."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from warehouse.catalog.catalog import Catalog
from warehouse.catalog.clock import catalog_clock
from warehouse.config import WarehouseConfig
from warehouse.homes import make_home
from warehouse.storage.storage import Storage

#: Seconds since the epoch.
Clock = Callable[[], float]


class Warehouse:
    """The first argument of most functions of the package. Close it, or use it in a ``with`` statement."""

    def __init__(self, config: WarehouseConfig, catalog: Catalog, storage: Storage, clock: Clock) -> None:
        self.config = config
        self.catalog = catalog
        self.storage = storage
        self.clock = clock

    @classmethod
    def open(cls, config: WarehouseConfig, clock: Clock | None = None, *, read_secs: float | None = None) -> Warehouse:
        """Open the warehouse, creating its home and its catalog if they do not exist.

        The default ``clock`` is the one that all processes of the catalog share (:mod:`warehouse.catalog.clock`). ``read_secs``: the longest time of
        a read of the catalog; None: no limit. Raises the
        errors of :meth:`warehouse.catalog.catalog.Catalog.open`, and :class:`StorageError` for a home that cannot be made.
        """
        make_home(config)
        storage = Storage(config.home)
        catalog = Catalog.open(config.url, config.busy_timeout_secs, read_secs=read_secs)
        return cls(config, catalog, storage, clock or catalog_clock(catalog))

    def close(self) -> None:
        """Close the catalog's connections."""
        self.catalog.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
