"""Opening, locking and migrating the catalog."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from tests.warehouse.scenes import REPOSITORY, start, write_log
from transforms.errors import InputError, StorageError
from warehouse import Warehouse, WarehouseConfig, register_table
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.migrate import FOLDER, current_revision
from warehouse.catalog.migrations import HEAD
from warehouse.errors import CatalogBusy, CatalogVersionError, CorruptFile


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


def test_head_is_the_newest_step() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_opening_again_migrates_nothing(tmp_path: Path) -> None:
    Catalog.open(url(tmp_path)).close()
    before = (tmp_path / "catalog.db").read_bytes()
    Catalog.open(url(tmp_path)).close()
    assert (tmp_path / "catalog.db").read_bytes() == before


def test_a_newer_catalog_is_refused(tmp_path: Path) -> None:
    Catalog.open(url(tmp_path)).close()
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(CatalogVersionError) as caught:
        Catalog.open(url(tmp_path))
    assert caught.value.value == "9999"
    assert caught.value.where == str(tmp_path / "catalog.db")


def test_a_file_that_is_no_catalog(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, surely" * 500)
    with pytest.raises(CorruptFile) as caught:
        Catalog.open(url(tmp_path))
    assert caught.value.where == str(tmp_path / "catalog.db")


@pytest.mark.parametrize("wrong", ["nonsense", "nosuchdatabase://host/x"])
def test_a_url_that_means_nothing(wrong: str) -> None:
    with pytest.raises(InputError, match="catalog URL"):
        Catalog.open(wrong)


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Catalog.open(f"sqlite:///{tmp_path}/file/home/catalog.db")


_HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"BEGIN {sys.argv[2] if len(sys.argv) > 2 else 'EXCLUSIVE'}")
print("held", flush=True)
time.sleep(3600)
"""


def test_a_catalog_locked_by_another_process_is_busy(tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", hours=1)
    config = WarehouseConfig(str(tmp_path / "home"), busy_timeout_secs=0.2)
    with Warehouse.open(config) as warehouse:
        holder = start(_HOLD, tmp_path / "home/catalog.db")
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(CatalogBusy) as caught:
                register_table(warehouse, "log", str(root))
            assert caught.value.where == str(tmp_path / "home/catalog.db")
            assert caught.value.exit_status == 5
            assert holder.poll() is None, "nothing waited until the other process ended"
        finally:
            holder.kill()
            holder.communicate()
        assert register_table(warehouse, "log", str(root)).rows == 20, "free again once the other process is gone"


def test_a_new_catalog_locked_by_another_process_is_busy(tmp_path: Path) -> None:
    """The mode of the journal cannot change meanwhile."""
    path = tmp_path / "catalog.db"
    holder = start(_HOLD, path, "IMMEDIATE")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CatalogBusy, match="locked by another process"):
            Catalog.open(f"sqlite:///{path}", busy_timeout_secs=0.2)
    finally:
        holder.kill()
        holder.communicate()
    Catalog.open(f"sqlite:///{path}").close()


def test_readers_open_a_catalog_whose_write_lock_another_process_holds(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
    holder = start(_HOLD, home / "catalog.db", "IMMEDIATE")
    environment = {**os.environ, "HEADRACE_BUSY_TIMEOUT_SECS": "0"}
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        command = [sys.executable, "-m", "headrace", "status", "--home", str(home)]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        holder.kill()
        holder.communicate()


def test_opening_that_has_to_migrate_waits_for_the_write_lock(tmp_path: Path) -> None:
    Catalog.open(url(tmp_path)).close()
    path = tmp_path / "catalog.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE alembic_version")
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not table.startswith("sqlite_"):
                connection.execute(f"DROP TABLE {table}")
    holder = start(_HOLD, path, "IMMEDIATE")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CatalogBusy):
            Catalog.open(url(tmp_path), busy_timeout_secs=0.1)
        threading.Timer(0.3, holder.kill).start()
        catalog = Catalog.open(url(tmp_path), busy_timeout_secs=120)
        with catalog.read() as connection:
            assert current_revision(connection) == HEAD
        catalog.close()
    finally:
        holder.kill()
        holder.communicate()
