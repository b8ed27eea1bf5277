"""The warehouse's configuration: one frozen value, validated once, passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from transforms.errors import InputError
from warehouse.catalog.urls import outline
from warehouse.planning.rates import LIST_PRICES, MEASURED_RATES, Prices, Rates
from warehouse.scheduling.fair_shares import FLOOR_SHARE
from warehouse.scheduling.task_states import AttemptLimits


@dataclass(frozen=True, slots=True)
class WarehouseConfig:
    """Where the warehouse lives and how it behaves.

    ``home``: folder (or ``scheme://`` location) of the memo files, and of the catalog unless ``catalog_url`` names
    another: ``sqlite:///path`` or ``postgresql://user@host/database`` (psycopg 3). ``fragment_rows``: row groups of one file are gathered into fragments of up to this many rows.
    ``lease_secs``: how long a worker owns a task without a heartbeat. ``max_attempts``: failed attempts after which a task
    is quarantined, ``max_losses``: lost workers, ``max_untried``: failed attempts in which nothing was tried. ``retry_backoff_secs``: wait at most this long before the second attempt, doubled for
    each further one; ``untried_backoff_secs``: the same after an attempt in which nothing was tried, since the raw data could
    not be read, or the worker is of another release. ``client_floor_share``: the part of the workers that a waiting client gets whatever the others weigh.
    ``deadline_secs``: how long a task may wait before it is computed, of clients that have no deadline of their own.
    ``busy_timeout_secs``: how long to wait for another process's write lock on the catalog, and for a connection.
    ``pin_ttl_secs``: how long a job's pin on what it reads holds without a heartbeat.
    ``read_threads``: columns digested at the same time; 0 means one per CPU core. ``rates`` and ``prices``: what reading,
    writing and storing a byte costs, for matching to weigh against computing.
    """

    home: str
    catalog_url: str = field(default="", repr=False)  # it may hold a password
    fragment_rows: int = 1_000_000
    lease_secs: float = 60.0
    max_attempts: int = 3
    max_losses: int = 10
    max_untried: int = 6
    retry_backoff_secs: float = 0.5
    untried_backoff_secs: float = 60.0
    client_floor_share: float = FLOOR_SHARE
    deadline_secs: float = 3600.0
    busy_timeout_secs: float = 30.0
    read_threads: int = 0
    rates: Rates = MEASURED_RATES
    prices: Prices = LIST_PRICES
    pin_ttl_secs: float = 300.0

    def __post_init__(self) -> None:
        if not self.home:
            raise InputError("the warehouse needs a home folder", where="WarehouseConfig.home", value=self.home)
        if "://" in self.home and not self.home.startswith("file://") and not self.catalog_url:
            raise InputError("a warehouse whose home is not a local folder needs a catalog URL", value=self.home,
                             next_step="set catalog_url, or $HEADRACE_CATALOG_URL for commands, for example "
                             "sqlite:////var/lib/headrace/catalog.db")  # fmt: skip
        if not self.url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:", "postgres:")):
            raise InputError("the catalog stands in SQLite or in PostgreSQL", where="WarehouseConfig.catalog_url",
                             value=outline(self.catalog_url),
                             allowed="sqlite:///path/catalog.db, postgresql://user@host/database")  # fmt: skip
        for name, least in (
            ("fragment_rows", 1),
            ("max_attempts", 1),
            ("max_losses", 1),
            ("max_untried", 1),
            ("read_threads", 0),
        ):
            self._check(name, least, getattr(self, name), integral=True)
        for name, value in (
            ("retry_backoff_secs", self.retry_backoff_secs),
            ("untried_backoff_secs", self.untried_backoff_secs),
            ("busy_timeout_secs", self.busy_timeout_secs),
        ):
            self._check(name, 0, value, integral=False)
        if not 0 <= self.client_floor_share <= 1:
            raise InputError("a share lies between 0 and 1", where="WarehouseConfig.client_floor_share",
                             value=self.client_floor_share)  # fmt: skip
        for name, what, secs in (
            ("lease_secs", "a lease", self.lease_secs),
            ("pin_ttl_secs", "a pin", self.pin_ttl_secs),
            ("deadline_secs", "a deadline", self.deadline_secs),
        ):
            if not (math.isfinite(secs) and secs > 0):
                raise InputError(f"{what} lasts longer than nothing", where=f"WarehouseConfig.{name}", value=secs,
                                 allowed="seconds > 0")  # fmt: skip

    def _check(self, name: str, least: int, value: float, *, integral: bool) -> None:
        kind = int if integral else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) or not value >= least or math.isinf(value):
            noun = "an integer" if integral else "a number"
            raise InputError("a setting is out of range", where=f"WarehouseConfig.{name}", value=value,
                             allowed=f"{noun} >= {least}")  # fmt: skip

    @property
    def limits(self) -> AttemptLimits:
        """How often a task is tried."""
        return AttemptLimits(self.max_attempts, self.max_losses, self.max_untried)

    @property
    def url(self) -> str:
        """The catalog's SQLAlchemy URL: ``catalog_url``, or ``catalog.db`` in ``home``."""
        return self.catalog_url or f"sqlite:///{self.home.removeprefix('file://')}/catalog.db"
