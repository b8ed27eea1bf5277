"""Load rows into a catalog by the database's fastest way; indexes are built after the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Protocol

Row = Sequence[Any]


class Loader(Protocol):
    """One open load."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Append rows."""


def loading(url: str) -> AbstractContextManager[Loader]:
    """Load into the catalog at a URL, which has the schema and empty tables."""
    return _loading_sqlite(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else _loading_postgresql(url)


@contextmanager
def _loading_sqlite(path: str) -> Iterator[Loader]:
    """Load into a SQLite file that no other process has open. A failed load leaves the file unusable."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF", "cache_size=-2000000"):
            connection.execute(f"PRAGMA {pragma}")
        indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        later = indexes.fetchall()
        for name, _ in later:
            connection.execute(f'DROP INDEX "{name}"')
        connection.execute("BEGIN")
        yield _SqliteLoader(connection)
        connection.execute("COMMIT")
        for _, statement in later:
            connection.execute(statement)
        if wrong := connection.execute("PRAGMA foreign_key_check").fetchone():
            raise AssertionError(f"references of rows must exist, got {wrong}")
        connection.execute("PRAGMA journal_mode=WAL")


class _SqliteLoader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
        self._connection.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({places})', rows)


@contextmanager
def _loading_postgresql(url: str) -> Iterator[Loader]:
    """Load into a PostgreSQL database without other connections. A failed load leaves it unusable."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'; SET max_parallel_maintenance_workers = 1")
        later = _take_indexes(connection)
        yield _PostgresLoader(connection)
        for statement in later:
            connection.execute(statement)
        connection.execute(_COUNTERS)
        connection.execute("VACUUM (ANALYZE)")


class _PostgresLoader:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loaded: set[str] = set()

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            if table not in self._loaded:
                cursor.execute(f'TRUNCATE "{table}"')  # rows loaded in the same transaction need no log
                self._loaded.add(table)
            with cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy:
                for row in rows:
                    copy.write_row(row)


_PG_CONSTRAINTS = """
SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype IN ('f', 'p', 'u') AND conrelid::regclass::text <> 'alembic_version'
ORDER BY contype = 'f', conname
"""
_PG_INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid)
"""
#: Set the sequences to continue after the loaded numbers.
_COUNTERS = """
DO $$ DECLARE c record; BEGIN
FOR c IN SELECT table_name, column_name, pg_get_serial_sequence(quote_ident(table_name), column_name) AS sequence
  FROM information_schema.columns WHERE table_schema = 'public' LOOP
  IF c.sequence IS NOT NULL THEN
    EXECUTE format('SELECT setval(%L, coalesce(max(%I), 0) + 1, false) FROM %I', c.sequence, c.column_name, c.table_name);
  END IF;
END LOOP; END $$
"""


def _take_indexes(connection: Any) -> list[str]:
    """Drop every index and constraint; return the statements that create them again, keys before foreign keys."""
    constraints = connection.execute(_PG_CONSTRAINTS).fetchall()
    indexes = connection.execute(_PG_INDEXES).fetchall()
    for name, table, _ in reversed(constraints):
        connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    return [
        *(definition for _, definition in indexes),
        *(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}' for name, table, definition in constraints),
    ]
