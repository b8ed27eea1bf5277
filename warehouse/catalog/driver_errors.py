"""Errors of database drivers, translated to Headrace errors."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.exc import DBAPIError, OperationalError

from transforms.errors import HeadraceError, InputError, StorageError
from warehouse.catalog.urls import without_secrets
from warehouse.errors import CatalogBusy, CatalogConflict, CatalogFull, CatalogLost, CommitInDoubt, CorruptFile


def explain(
    error: DBAPIError, where: str, dialect: str, *, committing: bool, secrets: Collection[str] = ()
) -> HeadraceError | None:
    """The Headrace error for a driver's error, or None for an error that only a defect explains.

    Args:
        error: the driver's error.
        where: the catalog, without secrets.
        dialect: ``sqlite`` or ``postgresql``.
        committing: whether the commit had been sent.
        secrets: texts that the error must not show.
    """
    said = without_secrets(str(error.orig), secrets).strip()
    if dialect == "sqlite":
        return _explain_sqlite(error, said, where)
    return _explain_postgresql(error, said, where, committing=committing)


_REFUSALS = ("disk is full", "disk i/o error", "unable to open database", "readonly database")


def _explain_sqlite(error: DBAPIError, said: str, where: str) -> HeadraceError | None:
    text = said.lower()
    if "database is locked" in text:
        return CatalogBusy("the catalog is locked by another process", where=where, value=said,
                           next_step="try again when it is done; `fuser` on the file shows the process")  # fmt: skip
    if "not a database" in text or "malformed" in text:
        return CorruptFile("the catalog file is not a valid SQLite database", where=where, value=said,
                           next_step="restore it from a backup, or register the tables into a new home")  # fmt: skip
    if isinstance(error, OperationalError) and any(refusal in text for refusal in _REFUSALS):
        return StorageError("the catalog file cannot be opened or written", where=where, value=said,
                            next_step="free disk space or check permissions; the transaction was rolled back")  # fmt: skip
    return None


#: By SQLSTATE, or by its class of two characters: the error, its text, and the next step.
_STATES: dict[str, tuple[type[HeadraceError], str, str]] = {
    "40001": (CatalogConflict, "the transaction conflicts with a concurrent one", "run it again"),
    "40P01": (CatalogConflict, "the transaction deadlocked with a concurrent one", "run it again"),
    "55P03": (CatalogBusy, "the catalog's write lock is held by another process",
              "try again when it is done; pg_locks (locktype advisory) and pg_stat_activity show the process"),
    "57014": (CatalogBusy, "the database cancelled a statement: it timed out or was stopped by hand",
              "try again; statement_timeout of the role or the database may be too short"),
    "25006": (StorageError, "the PostgreSQL server is read-only", "name the primary server in the catalog's URL"),
    "42501": (StorageError, "the role has no permission for this in the catalog",
              "GRANT CREATE, USAGE ON SCHEMA ... TO the role"),
    "3F000": (InputError, "the database has no such schema",
              "CREATE SCHEMA, or name another one: ?options=-csearch_path%3DNAME"),
    "53": (StorageError, "the database server is out of disk space or memory",
           "free some there; the transaction was rolled back"),
    "58": (StorageError, "the database server cannot read or write its disk",
           "read its log; the transaction was rolled back"),
    "XX001": (CorruptFile, "the database has damaged pages", "restore the database from a backup"),
    "XX002": (CorruptFile, "the database has a damaged index", "REINDEX the database"),
    "22001": (InputError, "a name must be short enough for its column of the catalog", "choose a shorter one"),
    "22003": (InputError, "a number must be small enough for its column of the catalog", "choose a smaller one"),
}  # fmt: skip

#: By a word of the text, for errors without SQLSTATE: the connection failed.
_UNCONNECTED: dict[str, tuple[type[HeadraceError], str, str]] = {
    "password": (InputError, "PostgreSQL rejected the user or the password", "check the URL, $PGPASSWORD or ~/.pgpass"),
    "no pg_hba.conf entry": (InputError, "PostgreSQL accepts no connection of this user from this host",
                             "add a line to pg_hba.conf"),
    "role": (InputError, "PostgreSQL has no such user", "createuser NAME, or name another one in the URL"),
    "invalid": (InputError, "an option of the catalog's URL must be one of libpq",
                "write sslmode, connect_timeout, options, ..."),
    "database": (InputError, "PostgreSQL has no such database", "createdb NAME, or name another one in the URL"),
}  # fmt: skip
_SIGNS = ("FATAL:  {}", "no {} supplied", "connection is bad: {}", "{} connection option")
_TOO_MANY = ("too many clients", "too many connections", "remaining connection slots")
#: SQLSTATEs of connections that failed: connection exceptions, a server that shuts down, idle sessions, too many clients.
_LOST = ("08", "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300")


def _explain_postgresql(error: DBAPIError, said: str, where: str, *, committing: bool) -> HeadraceError | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    lost = state.startswith(_LOST) or error.connection_invalidated
    if not lost and (found := _STATES.get(state) or _STATES.get(state[:2])):
        kind, what, next_step = found
        return kind(what, where=where, value=said, next_step=next_step)
    if "invalid connection option" in said:
        return _unconnected(said, where)
    if "NUL" in said and not state:
        return InputError("a text in a PostgreSQL catalog must hold no NUL character", where=where, value=said,
                          next_step="remove it from the name")  # fmt: skip
    if "during recovery" in said:
        kind, what, next_step = _STATES["25006"]
        return kind(what, where=where, value=said, next_step=next_step)
    if not lost and not (isinstance(error, OperationalError) and not state):
        return None
    if committing:
        return CommitInDoubt("the connection to the catalog broke during a commit", where=where, value=said,
                             next_step="check whether the change was made, and run the command again if not")  # fmt: skip
    return _unconnected(said, where)


def _unconnected(said: str, where: str) -> HeadraceError:
    for word, (kind, what, next_step) in _UNCONNECTED.items():
        if any(sign.format(word) in said for sign in _SIGNS):
            return kind(what, where=where, value=said, next_step=next_step)
    if any(words in said for words in _TOO_MANY):
        return CatalogFull("PostgreSQL has no connection left; nothing was changed", where=where, value=said,
                           next_step="try again, run fewer workers, or raise max_connections")  # fmt: skip
    return CatalogLost("the catalog cannot be reached; nothing was changed", where=where, value=said,
                       next_step="check that the server runs and that the URL has its host and port")  # fmt: skip
