"""What a database says, as errors of ours."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.exc import DBAPIError, OperationalError

from transforms.errors import HeadraceError, InputError, StorageError
from warehouse.catalog.urls import without_secrets
from warehouse.errors import CatalogBusy, CatalogConflict, CatalogFull, CatalogLost, CommitInDoubt, CorruptFile


def explain(
    error: DBAPIError, where: str, dialect: str, *, committing: bool, secrets: Collection[str] = ()
) -> HeadraceError | None:
    """The error of ours that ``error`` amounts to; None for one that only a defect of ours explains.

    ``committing``: the commit had been sent already. ``secrets``: what of the catalog's URL no error shows.
    """
    said = without_secrets(str(error.orig), secrets).strip()
    if dialect == "sqlite":
        return _explain_sqlite(error, said, where)
    return _explain_postgresql(error, said, where, committing=committing)


_REFUSALS = ("disk is full", "disk i/o error", "unable to open database", "readonly database")


def _explain_sqlite(error: DBAPIError, said: str, where: str) -> HeadraceError | None:
    text = said.lower()
    if "database is locked" in text:
        return CatalogBusy("another process holds the catalog", where=where, value=said,
                           next_step="try again when it is done; `fuser` on the file names it")  # fmt: skip
    if "not a database" in text or "malformed" in text:
        return CorruptFile("this file is not a catalog", where=where, value=said,
                           next_step="restore it from a backup, or register the tables into a new home")  # fmt: skip
    if isinstance(error, OperationalError) and any(refusal in text for refusal in _REFUSALS):
        return StorageError("the catalog's disk refused", where=where, value=said,
                            next_step="free space or check permissions; nothing was half written")  # fmt: skip
    return None


#: By SQLSTATE, or by its class of two characters: what it means, what happened, and the next step.
_STATES: dict[str, tuple[type[HeadraceError], str, str]] = {
    "40001": (CatalogConflict, "the database could not order this transaction and another one", "run it again"),
    "40P01": (CatalogConflict, "this transaction and another one waited for each other", "run it again"),
    "55P03": (CatalogBusy, "another process holds the catalog's write lock",
              "try again when it is done; pg_locks (locktype advisory) and pg_stat_activity name it"),
    "57014": (CatalogBusy, "the database cancelled a statement that took too long or was stopped by hand",
              "try again; statement_timeout of the role or the database may be too short"),
    "25006": (StorageError, "this PostgreSQL server only reads", "name the primary server in the catalog's URL"),
    "42501": (StorageError, "the role may not do this in the catalog", "GRANT CREATE, USAGE ON SCHEMA ... TO the role"),
    "3F000": (InputError, "the database has no such schema",
              "CREATE SCHEMA, or name another one: ?options=-csearch_path%3DNAME"),
    "53": (StorageError, "the database server has no room", "free disk space or memory there; nothing was half written"),
    "58": (StorageError, "the database server's disk refused", "read its log; nothing was half written"),
    "XX001": (CorruptFile, "the database server found damaged pages", "restore the database from a backup"),
    "XX002": (CorruptFile, "the database server found a damaged index", "REINDEX the database"),
    "22001": (InputError, "a name is longer than the catalog can keep", "choose a shorter one"),
    "22003": (InputError, "a number is larger than the catalog can keep", "choose a smaller one"),
}  # fmt: skip

#: What servers and the driver say when there is no SQLSTATE, because no connection came about.
_UNCONNECTED: dict[str, tuple[type[HeadraceError], str, str]] = {
    "password": (InputError, "PostgreSQL did not accept the user or the password",
                 "check the URL, $PGPASSWORD or ~/.pgpass"),
    "no pg_hba.conf entry": (InputError, "PostgreSQL does not let this user in from here", "add a line to pg_hba.conf"),
    "role": (InputError, "PostgreSQL does not know this user", "createuser NAME, or name another one in the URL"),
    "invalid": (InputError, "the catalog's URL has an option that means nothing",
                "options are those of libpq: sslmode, connect_timeout, options, ..."),
    "database": (InputError, "PostgreSQL does not know this database", "createdb NAME, or name another one in the URL"),
}  # fmt: skip
_SIGNS = ("FATAL:  {}", "no {} supplied", "connection is bad: {}", "{} connection option")
_TOO_MANY = ("too many clients", "too many connections", "remaining connection slots")
#: Classes of connections that broke, were refused or were ended: 08, shutdown of the server, an idle session ended.
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
        return InputError("PostgreSQL keeps no text with a NUL character", where=where, value=said,
                          next_step="take it out of the name")  # fmt: skip
    if "during recovery" in said:
        kind, what, next_step = _STATES["25006"]
        return kind(what, where=where, value=said, next_step=next_step)
    if not lost and not (isinstance(error, OperationalError) and not state):
        return None
    if committing:
        return CommitInDoubt("the connection to the catalog broke while a change was committed", where=where,
                             value=said, next_step="look whether it was made, and run it again if not")  # fmt: skip
    return _unconnected(said, where)


def _unconnected(said: str, where: str) -> HeadraceError:
    for word, (kind, what, next_step) in _UNCONNECTED.items():
        if any(sign.format(word) in said for sign in _SIGNS):
            return kind(what, where=where, value=said, next_step=next_step)
    if any(words in said for words in _TOO_MANY):
        return CatalogFull("PostgreSQL has no connection left; nothing was changed", where=where, value=said,
                           next_step="try again, run fewer workers, or raise max_connections")  # fmt: skip
    return CatalogLost("no connection to the catalog; nothing was changed", where=where, value=said,
                       next_step="check that the server runs and that the URL's host and port are its own")  # fmt: skip
