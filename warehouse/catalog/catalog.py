"""The SQL catalog: transactions on SQLite and PostgreSQL.

A write transaction takes the catalog's write lock at its start, so the rows that it reads cannot change before it commits.
A process that is killed at any instruction leaves the last committed state.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    FromClause,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
)
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.exc import DBAPIError

from transforms.errors import HeadraceError, InputError, StorageError
from warehouse.catalog.bulk import insert_absent, insert_rows, one_of
from warehouse.catalog.driver_errors import explain
from warehouse.catalog.migrate import current_revision, migrate
from warehouse.catalog.migrations import HEAD
from warehouse.catalog.read_limit import ReadLimit
from warehouse.catalog.urls import parse_url, secrets_of, shown_url
from warehouse.errors import CatalogBusy, CatalogConflict, CatalogFull, CatalogLost, CommitInDoubt
from warehouse.scheduling.backoff import TRANSACTION_BACKOFF, Backoff, Retry

__all__ = [
    "CHUNK_KEYS",
    "LOCK_KEY",
    "Catalog",
    "chunks",
    "insert_absent",
    "insert_numbered",
    "one_of",
    "rows_of",
    "storable",
]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

#: The most bound values of a statement; the limit of SQLite is 32,766, of PostgreSQL 65,535.
CHUNK_KEYS = 10_000
#: The rows that a driver hands over at once.
_ROWS_AT_ONCE = 1_000

#: The page cache of a connection. A submission that changes more pages than fit writes and reads them several times.
SQLITE_CACHE_KIB = 65_536

#: PostgreSQL rolls back a transaction that is idle for this long.
IDLE_TRANSACTION_SECS = 300

#: The advisory lock of every write transaction on PostgreSQL. An advisory lock belongs to one database.
LOCK_KEY = int.from_bytes(b"headrace")


class Catalog:
    """A migrated catalog: :meth:`read` and :meth:`write` open one transaction, :meth:`run` also retries it.

    Retries wait with ``sleep``, for times that ``draw`` (a random number in ``[0, 1)``) varies.
    """

    def __init__(
        self,
        engine: Engine,
        where: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
        backoff: Backoff = TRANSACTION_BACKOFF,
        connect_secs: float = 30.0,
        read_limit: ReadLimit | None = None,
    ) -> None:
        self._engine = engine
        self._reader, self._writer = _transactions(engine)
        self.where = where
        self._read_limit = read_limit
        if read_limit is not None:
            read_limit.watch(engine)
        self._retry = Retry(backoff, _is_rolled_back, sleep, draw, on_retry=_log_attempt)
        self._idempotent_retry = replace(self._retry, is_transient=_is_rolled_back_or_in_doubt)
        self._connect_backoff = replace(backoff, attempts=None, limit_secs=connect_secs)

    @classmethod
    def open(
        cls,
        url: str,
        busy_timeout_secs: float = 30.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
        read_secs: float | None = None,
    ) -> Catalog:
        """Open the catalog at a URL, creating it or upgrading its schema where needed.

        A catalog with the newest schema is only read. A PostgreSQL database must exist; its tables need not. Connecting is
        retried for ``busy_timeout_secs``, so that a restart of the server does no harm. A read transaction that takes longer than ``read_secs``
        ends with :class:`~warehouse.errors.CatalogTimeout`; None: no limit.

        Raises:
            InputError: the URL is invalid, its driver is missing, or the server has no such user or database.
            CatalogBusy: another process holds the catalog.
            CatalogLost: no server answers.
            StorageError: the disk is full or read-only.
            CorruptFile: the file is not a database.
            CatalogVersionError: a newer Headrace wrote the catalog.
        """
        engine, where = _engine(url, busy_timeout_secs)
        limit = None if read_secs is None else ReadLimit(read_secs, where)
        catalog = cls(engine, where, sleep=sleep, draw=draw, connect_secs=busy_timeout_secs, read_limit=limit)
        try:
            catalog._bring_up_to_date(busy_timeout_secs)
        except BaseException:
            catalog.close()
            raise
        return catalog

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """One read transaction: a consistent snapshot."""
        try:
            with self._connected(self._reader) as connection, connection.begin(), self._limited(connection):
                yield connection
        except DBAPIError as error:
            self._raise_explained(error, committing=False)
        except UnicodeEncodeError as error:
            raise self._not_utf8(error) from error

    def _limited(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._read_limit is None else self._read_limit.over(connection)

    def query(self, action: Callable[[Connection], _T]) -> _T:
        """Run ``action`` in one read transaction and return its result; retried if the connection breaks."""

        def attempt() -> _T:
            with self.read() as connection:
                return action(connection)

        return self._retry.call(attempt)

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back when the block raises.

        Raises :class:`CommitInDoubt` when the connection breaks during the commit.
        """
        committing = False
        try:
            with self._connected(self._writer) as connection, connection.begin():
                yield connection
                committing = True
        except DBAPIError as error:
            self._raise_explained(error, committing=committing)
        except UnicodeEncodeError as error:
            raise self._not_utf8(error) from error

    def run(self, action: Callable[[Connection], _T], *, idempotent: bool = False) -> _T:
        """Run ``action`` in one write transaction and return its result.

        A transaction that the database rolled back (:class:`CatalogConflict`) or whose connection broke before the commit
        (:class:`CatalogLost`) is retried with exponential backoff, so ``action`` must change nothing but the catalog. A
        commit in doubt is retried only if the action is ``idempotent``. Raises the error of the last attempt, or
        :class:`CommitInDoubt` if any attempt may have been committed.
        """
        doubts: list[CommitInDoubt] = []

        def attempt() -> _T:
            try:
                with self.write() as connection:
                    return action(connection)
            except CommitInDoubt as error:
                doubts.append(error)
                raise

        try:
            return (self._idempotent_retry if idempotent else self._retry).call(attempt)
        except (CatalogBusy, CatalogLost, CommitInDoubt) as error:
            if not doubts or doubts[0] is error:
                raise
            raise doubts[0] from error

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _connected(self, engine: Engine) -> Connection:
        """A connection; retried for ``connect_secs`` while the server has none left."""
        retry = replace(self._retry, backoff=self._connect_backoff, is_transient=self._is_full, on_retry=self._log_full)
        return retry.call(engine.connect)

    def _is_full(self, error: Exception) -> bool:
        return isinstance(error, DBAPIError) and isinstance(self._explain(error), CatalogFull)

    def _log_full(self, _failed: int, _passed_secs: float, error: Exception) -> None:
        if isinstance(error, DBAPIError):  # the driver's text may hold a password
            _LOG.info("the server has no connection left; trying again: %s", self._explain(error))

    def _bring_up_to_date(self, patience_secs: float) -> None:
        """Upgrade the schema. A catalog with the newest one is neither locked nor written."""
        waits = replace(self._retry.backoff, limit_secs=patience_secs)
        retry = replace(self._idempotent_retry, backoff=waits, on_retry=_log_opening)
        retry.call(lambda: self._migrate(patience_secs))

    def _migrate(self, patience_secs: float) -> None:
        with self.read() as connection:
            if current_revision(connection) == HEAD:
                return
        if self.dialect == "sqlite":
            # SQLite does not wait for a lock when it changes the journal mode, so two first openings may collide.
            waits = Backoff(first_secs=0.02, most_secs=0.02, jitter=0.0, limit_secs=patience_secs)
            Retry(waits, _is_busy, time.sleep, random.random, time.monotonic).call(self._use_write_ahead_log)
        with self.write() as connection:
            migrate(connection, self.where)

    def _use_write_ahead_log(self) -> None:
        statement = "PRAGMA journal_mode=WAL"
        try:
            with self._engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                try:
                    raw.execute(statement)  # the driver's own: SQLAlchemy would begin a transaction first
                except sqlite3.Error as error:
                    raise DBAPIError.instance(statement, None, error, sqlite3.Error) from error
        except DBAPIError as error:
            self._raise_explained(error, committing=False)

    def _not_utf8(self, error: UnicodeEncodeError) -> InputError:
        return InputError("a text in the catalog must be valid Unicode", where=self.where, value=error.object,
                          next_step="remove bytes that are not text")  # fmt: skip

    def _explain(self, error: DBAPIError, *, committing: bool = False) -> HeadraceError | None:
        secrets = secrets_of(self._engine.url)
        return explain(error, self.where, self._engine.dialect.name, committing=committing, secrets=secrets)

    def _raise_explained(self, error: DBAPIError, *, committing: bool) -> NoReturn:
        explained = self._explain(error, committing=committing)
        if explained is None:
            raise error
        raise explained from error


def _is_busy(error: Exception) -> bool:
    return isinstance(error, CatalogBusy)


def _is_rolled_back(error: Exception) -> bool:
    return isinstance(error, (CatalogConflict, CatalogLost))


def _is_rolled_back_or_in_doubt(error: Exception) -> bool:
    return isinstance(error, (CatalogConflict, CatalogLost, CommitInDoubt))


def _log_attempt(failed: int, _passed_secs: float, error: Exception) -> None:
    _LOG.info("attempt %d of a transaction failed; trying again: %s", failed, error)


def _log_opening(_failed: int, _passed_secs: float, error: Exception) -> None:
    _LOG.info("the catalog cannot be opened yet; trying again: %s", error)


def _engine(url: str, busy_timeout_secs: float) -> tuple[Engine, str]:
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql(parsed, busy_timeout_secs)
    return _sqlite(parsed, busy_timeout_secs)


def _sqlite(url: URL, busy_timeout_secs: float) -> tuple[Engine, str]:
    where = os.path.abspath(url.database or "")
    _make_home(os.path.dirname(where))
    engine = create_engine(
        url.set(database=where), connect_args={"timeout": busy_timeout_secs}, json_deserializer=_document
    )
    engine.dialect.statement_compiler = _HintingCompiler
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine, where


_DECODER = json.JSONDecoder()


def _document(text: str) -> Any:
    """The value of a JSON text; as ``json.loads``, but without its search for white space, which takes as long as a short text."""
    with contextlib.suppress(ValueError):
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
    return json.loads(text)


class _HintingCompiler(SQLiteCompiler):
    """Writes INDEXED BY, the one hint of SQLite, which SQLAlchemy leaves out."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        return text


def _make_home(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError("cannot create the warehouse's folder", where=folder, value=str(error)) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin with an explicit BEGIN, not when the driver guesses
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size=-{SQLITE_CACHE_KIB}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("headrace_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql(url: URL, busy_timeout_secs: float) -> tuple[Engine, str]:
    defaults = {"application_name": "headrace", "connect_timeout": max(2, math.ceil(busy_timeout_secs)),
                "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}  # fmt: skip
    arguments = {name: value for name, value in defaults.items() if name not in url.query}
    where = shown_url(url)
    try:
        # A connection that the server closed is detected before use, and replaced.
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=True)
    except ImportError as error:
        raise InputError("a catalog in PostgreSQL needs a package that is not installed", where=where,
                         value=str(error), next_step="pip install 'headrace[postgres]'") from error  # fmt: skip
    event.listen(engine, "connect", _prepare_postgresql)
    # lock_timeout is in milliseconds; 0 means no timeout.
    patience_ms = max(1, math.ceil(busy_timeout_secs * 1000))
    take_lock = f"SET LOCAL lock_timeout = {patience_ms}; SELECT pg_advisory_xact_lock({LOCK_KEY})"

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("headrace_write", False):
            connection.exec_driver_sql(take_lock)

    return engine, where


def _prepare_postgresql(connection: Any, _record: object) -> None:
    # Without keepalives the lock of a machine that disappears during a write is held for hours.
    connection.execute("SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3")
    # The same for a process that stops, unless the server, the role or the URL set a timeout.
    connection.execute(
        "SELECT set_config(name, %s, false) FROM pg_settings "
        "WHERE name = 'idle_in_transaction_session_timeout' AND setting = '0'",
        (str(IDLE_TRANSACTION_SECS * 1000),),
    )
    connection.commit()


def _transactions(engine: Engine) -> tuple[Engine, Engine]:
    """Engines for read and for write transactions over the same connections."""
    if engine.dialect.name == "sqlite":
        return engine, engine.execution_options(headrace_write=True)
    # Set for each transaction, whatever the defaults of the database or the role are. Writers are READ COMMITTED: under
    # REPEATABLE READ the statement that waits for the lock takes the snapshot before it waits, so the transaction does not
    # see the last writer's changes. Under the lock nothing changes between statements.
    return (
        engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True),
        engine.execution_options(isolation_level="READ COMMITTED", postgresql_readonly=False, headrace_write=True),
    )


def as_dry_run(action: Callable[[Connection], _T]) -> Callable[[Connection], _T]:
    """``action``, rolled back: it returns its result and changes nothing."""

    def dry_run(connection: Connection) -> _T:
        with connection.begin_nested() as attempt:
            answer = action(connection)
            attempt.rollback()
        return answer

    return dry_run


def chunks(items: Sequence[_T], size: int = CHUNK_KEYS) -> Iterator[Sequence[_T]]:
    """``items`` in pieces that fit one statement."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def rows_of(connection: Connection, query: Executable) -> Iterator[Any]:
    """The rows of a query, which the driver hands over a thousand at a time: one at a time takes twice as long."""
    for rows in connection.execute(query).partitions(_ROWS_AT_ONCE):
        yield from rows


def storable(text: str) -> str:
    """``text`` with NULs and lone surrogates escaped, which a database cannot store."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def insert_numbered(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Insert the rows and return their new ids, in the same order."""
    if not rows:
        return ()
    of = table.c.id
    if connection.dialect.name == "sqlite":
        # Ids increase and no other process writes meanwhile. RETURNING would take one statement per row.
        last = connection.execute(select(func.max(of))).scalar() or 0
        insert_rows(connection, table, rows)
        return tuple(connection.execute(select(of).where(of > last).order_by(of)).scalars())
    statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return tuple(connection.execute(statement, rows).scalars())
