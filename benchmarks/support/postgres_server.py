"""A PostgreSQL server for benchmarks: in its own folder, reached by a socket, with default durability."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.support.postgresql import find_programs

USER = DATABASE = "headrace"
_START_SECS = 120.0
#: Common settings for a machine of some gigabytes. Durability is the default: fsync and synchronous_commit are on.
_SETTINGS = {"listen_addresses": "", "shared_buffers": "2GB", "max_wal_size": "4GB", "wal_level": "minimal",
             "max_wal_senders": "0", "random_page_cost": "1.1", "jit": "off"}  # fmt: skip
#: Settings for a load that is repeated if it fails.
_LOADING = {**_SETTINGS, "fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


@contextmanager
def serving(folder: Path, *, loading: bool = False) -> Iterator[str]:
    """The URL of a database of a server with its data in ``folder``; both are created if absent."""
    programs, owner = find_programs(), _unprivileged()
    data = folder / "data"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if owner:
            shutil.chown(folder, owner["user"], owner["group"])
        _run(programs / "initdb", "-D", data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", **owner)
    words = [word for name, value in (_LOADING if loading else _SETTINGS).items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("ab") as log:
        command = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), *words]
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **owner)
    try:
        _wait(server, folder)
        with _connect(folder) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
        yield f"postgresql://{USER}@/{DATABASE}?host={folder}"
    finally:
        server.terminate()  # fast shutdown: disconnects clients and writes all data
        server.wait()
    if loading:
        subprocess.run(["sync"], check=True)


def _connect(folder: Path) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(folder), user=USER, dbname="postgres", autocommit=True)


def _wait(server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECS
    while True:
        try:
            _connect(folder).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer; see {folder}/log") from error
            time.sleep(0.05)


def _run(*command: object, **options: Any) -> None:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd="/", check=False, **options
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def _unprivileged() -> dict[str, Any]:
    """The user of the server, for :mod:`subprocess`: postgres refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    name = next(name for name in ("postgres", "nobody") if name in known)
    return {"user": known[name].pw_uid, "group": known[name].pw_gid, "extra_groups": ()}
