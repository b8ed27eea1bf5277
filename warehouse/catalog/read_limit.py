"""A limit on the time of read transactions, for a process that answers many users: no question may hold it for long.

SQLite is interrupted in the middle of a statement; PostgreSQL cancels a statement that takes as long as the limit by itself. In both, a
statement that would begin after the limit is refused, so that a question of many statements ends, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from transforms.errors import InputError
from warehouse.errors import CatalogTimeout

_KEY = "headrace_read_deadline"

#: Steps of SQLite's program between two looks at the clock: less than a millisecond.
_STEPS = 10_000

#: A stricter timeout of the role or the database stays.
_SET = text(
    "SELECT set_config(name, :milliseconds, true) FROM pg_settings WHERE name = 'statement_timeout'"
    " AND (setting = '0' OR CAST(setting AS bigint) > CAST(:milliseconds AS bigint))"
)


@dataclass(frozen=True)
class ReadLimit:
    """The longest time of a read transaction of the catalog at ``where``."""

    secs: float
    where: str
    elapsed: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Raises :class:`~transforms.errors.InputError` for no positive time."""
        if not (math.isfinite(self.secs) and self.secs > 0):
            raise InputError("the limit of a read must be > 0 seconds", where="read_secs", value=self.secs)

    def watch(self, engine: Engine) -> None:
        """Refuse statements that would begin after the limit, on all connections of an engine."""

        @event.listens_for(engine, "before_cursor_execute")
        def check(connection: Connection, *_: Any) -> None:
            if self.elapsed() > connection.info.get(_KEY, math.inf):
                raise self._over()

    @contextmanager
    def over(self, connection: Connection) -> Iterator[None]:
        """Limit what is read in the block. Raises :class:`~warehouse.errors.CatalogTimeout`."""
        deadline, info = self.elapsed() + self.secs, connection.info
        raw: Any = connection.connection.dbapi_connection
        is_sqlite = connection.dialect.name == "sqlite"
        if is_sqlite:
            raw.set_progress_handler(lambda: self.elapsed() > deadline, _STEPS)
        else:
            connection.execute(_SET, {"milliseconds": str(max(1, math.ceil(self.secs * 1000)))})
        info[_KEY] = deadline
        try:
            yield
        except DBAPIError as error:
            if _is_cancelled(error):
                raise self._over() from error
            raise
        finally:
            info.pop(_KEY, None)
            if is_sqlite:
                raw.set_progress_handler(None, 0)

    def _over(self) -> CatalogTimeout:
        return CatalogTimeout(f"reading the catalog took longer than {self.secs:g} s", where=self.where,
                              next_step="ask for less: more conditions, the order newest, or the same command in a terminal, which has no limit")  # fmt: skip


def _is_cancelled(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) == "57014" or str(error.orig) == "interrupted"
