"""The SQL catalog: transactions, and what the database says turned into errors of ours.

A write transaction takes the write lock at its start, so that what it decides cannot have changed when it commits.
A process killed at any instruction leaves the last committed state.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

from transforms.errors import HeadraceError, InputError, StorageError
from warehouse.errors import CatalogBusy, CorruptFile
from warehouse.migrate import migrate

_T = TypeVar("_T")

#: Bound values a statement may carry at most; SQLite's own limit is 32,766.
CHUNK_KEYS = 10_000


class Catalog:
    """A migrated catalog. Use :meth:`read` and :meth:`write` as context managers; both are one transaction."""

    def __init__(self, engine: Engine, where: str) -> None:
        self._engine = engine
        self.where = where

    @classmethod
    def open(cls, url: str, busy_timeout_secs: float = 30.0) -> Catalog:
        """Open the catalog at a SQLAlchemy URL, create it if it is not there, and bring its schema up to date.

        Raises :class:`InputError` for a URL that means nothing, :class:`CatalogBusy` when another process holds it,
        :class:`StorageError` when the disk refuses, :class:`CorruptFile` when the file is no database and
        :class:`~warehouse.errors.CatalogVersionError` when a newer Headrace wrote it.
        """
        engine, where = _engine(url, busy_timeout_secs)
        catalog = cls(engine, where)
        try:
            if engine.dialect.name == "sqlite":
                catalog._use_write_ahead_log(busy_timeout_secs)
            with catalog.write() as connection:
                migrate(connection, where)
        except BaseException:
            catalog.close()
            raise
        return catalog

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """One read transaction: everything it sees is of one moment."""
        with self._explained(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """One write transaction: all of it is committed at the end, or nothing when the block raises."""
        with self._explained(), self._engine.connect() as connection:
            connection.execution_options(headrace_write=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _use_write_ahead_log(self, patience_secs: float) -> None:
        # SQLite does not wait for a lock while it changes the journal mode, so two first openings may collide.
        deadline = time.monotonic() + patience_secs
        while True:
            try:
                with self._explained(), self._engine.connect() as connection:
                    raw: Any = connection.connection.dbapi_connection
                    raw.execute("PRAGMA journal_mode=WAL")
                return
            except CatalogBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            explained = _explain(error, self.where)
            if explained is None:
                raise
            raise explained from error


def _engine(url: str, busy_timeout_secs: float) -> tuple[Engine, str]:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed), parsed.render_as_string(hide_password=True)
        where = os.path.abspath(parsed.database or "")
        _make_home(os.path.dirname(where))
        engine = create_engine(parsed.set(database=where), connect_args={"timeout": busy_timeout_secs})
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise InputError("not a catalog URL", value=url, allowed="sqlite:///path/catalog.db",
                         next_step=str(error)) from error  # fmt: skip
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine, where


def _make_home(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError("cannot create the warehouse's folder", where=folder, value=str(error)) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("headrace_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


_REFUSALS = ("disk is full", "disk i/o error", "unable to open database", "readonly database", "could not connect")


def _explain(error: DatabaseError, where: str) -> HeadraceError | None:
    said = str(error.orig)
    text = said.lower()
    if "database is locked" in text or "lock timeout" in text:
        return CatalogBusy("another process holds the catalog", where=where, value=said,
                           next_step="try again when it is done; `fuser` on the file names it")  # fmt: skip
    if "not a database" in text or "malformed" in text:
        return CorruptFile("this file is not a catalog", where=where, value=said,
                           next_step="restore it from a backup, or register the tables into a new home")  # fmt: skip
    if isinstance(error, OperationalError) and any(refusal in text for refusal in _REFUSALS):
        return StorageError("the catalog's disk refused", where=where, value=said,
                            next_step="free space or check permissions; nothing was half written")  # fmt: skip
    return None


def chunks(items: Sequence[_T], size: int = CHUNK_KEYS) -> Iterator[Sequence[_T]]:
    """``items`` in pieces that fit one statement."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def insert_absent(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary or unique key is not there yet; leave the others as they are."""
    listed = list(rows)
    if not listed:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), listed)
