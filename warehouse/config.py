"""The warehouse's configuration."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from transforms.errors import InputError
from warehouse.catalog.urls import outline
from warehouse.planning.rates import LIST_PRICES, MEASURED_RATES, Prices, Rates
from warehouse.scheduling.fair_shares import FLOOR_SHARE
from warehouse.scheduling.task_states import AttemptLimits


@dataclass(frozen=True, slots=True)
class WarehouseConfig:
    """The settings of a warehouse.

    Attributes:
        home: the folder, or ``scheme://`` location, of memo files and, by default, of the catalog.
        catalog_url: ``sqlite:///path`` or ``postgresql://user@host/database`` (psycopg 3).
        fragment_rows: the most rows of a fragment of several row groups.
        lease_secs: how long a lease lasts without a heartbeat.
        max_attempts: failed attempts after which a task is quarantined.
        max_losses: lost workers after which a task is quarantined.
        max_untried: failed attempts that did not run the component after which a task is quarantined.
        retry_backoff_secs: the longest wait before the second attempt; doubled for each further one.
        untried_backoff_secs: the same after an attempt that did not run the component, since the raw data could not be
            read or the worker has another release.
        client_floor_share: the minimum share of the workers for every waiting client.
        deadline_secs: the longest time that a task may wait, for clients without a deadline.
        busy_timeout_secs: how long to wait for the catalog's write lock, and for a connection.
        read_threads: columns whose digests are computed at the same time; 0: one per CPU core.
        rates: CPU seconds of reading and writing, which matching compares with computing.
        prices: the prices of storage and computing.
        pin_ttl_secs: how long a pin lasts without a heartbeat.
        lineage: where events of OpenLineage are sent: a URL of http or https, or the absolute path of a file that grows; empty: they are not made.
        lineage_token_file: the absolute path of a file with the token that a receiver asks for; empty: it asks for none.
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
    lineage: str = ""
    lineage_token_file: str = ""

    def __post_init__(self) -> None:
        if not self.home:
            raise InputError("home must be a folder or a location", where="WarehouseConfig.home", value=self.home)
        if "://" in self.home and not self.home.startswith("file://") and not self.catalog_url:
            raise InputError("a warehouse whose home is not a local folder must have a catalog URL", value=self.home,
                             next_step="set catalog_url, or $HEADRACE_CATALOG_URL for commands, for example "
                             "sqlite:////var/lib/headrace/catalog.db")  # fmt: skip
        if not self.url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:", "postgres:")):
            raise InputError("catalog_url must be one of SQLite or PostgreSQL", where="WarehouseConfig.catalog_url",
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
            raise InputError("client_floor_share must be in [0, 1]", where="WarehouseConfig.client_floor_share",
                             value=self.client_floor_share)  # fmt: skip
        for name, secs in (
            ("lease_secs", self.lease_secs),
            ("pin_ttl_secs", self.pin_ttl_secs),
            ("deadline_secs", self.deadline_secs),
        ):
            if not (math.isfinite(secs) and secs > 0):
                raise InputError(f"{name} must be > 0 seconds", where=f"WarehouseConfig.{name}", value=secs)

        self._check_lineage()

    def _check_lineage(self) -> None:
        """Raise :class:`InputError` for another receiver than these, and for a token without a URL."""
        text, allowed = self.lineage, "such as http://127.0.0.1:5000, or an absolute path"
        place = urlsplit(text)
        is_url = place.scheme in ("http", "https") and bool(place.hostname)
        if place.username or place.password:
            raise InputError("lineage must not hold a password", where="WarehouseConfig.lineage", value="a URL with a user",
                             next_step="set lineage_token_file")  # fmt: skip
        if text and not is_url and not ("://" not in text and os.path.isabs(text)):
            raise InputError("lineage must be a URL of http or https, or the absolute path of a file", where="WarehouseConfig.lineage",
                             value=text[:200], allowed=allowed)  # fmt: skip
        if self.lineage_token_file and not (is_url and os.path.isabs(self.lineage_token_file)):
            raise InputError("lineage_token_file must be an absolute path, and go with a URL in lineage", where="WarehouseConfig.lineage_token_file",
                             value=self.lineage_token_file[:200])  # fmt: skip

    def _check(self, name: str, least: int, value: float, *, integral: bool) -> None:
        kind = int if integral else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool) or not value >= least or math.isinf(value):
            noun = "an integer" if integral else "a number"
            raise InputError(f"{name} must be {noun} >= {least}", where=f"WarehouseConfig.{name}", value=value)

    @property
    def limits(self) -> AttemptLimits:
        """The limits of a task's attempts."""
        return AttemptLimits(self.max_attempts, self.max_losses, self.max_untried)

    @property
    def url(self) -> str:
        """The catalog's SQLAlchemy URL: ``catalog_url``, or ``catalog.db`` in ``home``."""
        return self.catalog_url or f"sqlite:///{self.home.removeprefix('file://')}/catalog.db"
