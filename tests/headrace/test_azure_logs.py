"""Logs in Azure Blob Storage, which are read-only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.cli.main import run
from tests.support.blob_server import serving
from tests.warehouse.lakes.iceberg_deletes import catalog
from tests.warehouse.lakes.scenes import events
from transforms.errors import StorageError
from warehouse import Storage
from warehouse.storage import objects


def test_a_log_in_azure(
    small_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs = {f"a b/{path.relative_to(small_log)}": path.read_bytes() for path in small_log.rglob("*.parquet")}
    rows = sum(pq.read_metadata(path).num_rows for path in small_log.rglob("*.parquet"))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    objects._shared.cache_clear()
    with serving(blobs) as environment:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        assert run(["table", "add", "log", "az://logs/a b/", "--time-column", "time", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == rows
        storage = Storage(str(tmp_path))
        (first, *_) = storage.list("az://logs/a b")
        assert storage.read_bytes(first.path) == blobs[first.path.removeprefix("az://logs/")]
        with storage.open_input(first.path) as file:
            assert file.read_at(4, 0) == b"PAR1"
        assert not storage.exists("az://logs/a b/nothing")
        assert not storage.folder_exists("az://logs/nothing")
        pq.write_table(pq.read_table(next(small_log.rglob("*.parquet"))).slice(0, 3), tmp_path / "late.parquet")
        assert run(["table", "append", "log", str(tmp_path / "late.parquet")]) == 6
        assert "read-only" in capsys.readouterr().err
        with pytest.raises(StorageError, match="no such bucket or container"):
            storage.list("az://others")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "somebody")
        objects._shared.cache_clear()
        with pytest.raises(StorageError, match="credentials") as caught:
            Storage(str(tmp_path)).list("az://logs")
        assert "AZURE_STORAGE_ACCOUNT_KEY" in caught.value.next_step
    objects._shared.cache_clear()


@pytest.mark.slow
def test_lakes_in_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = events(range(24))
    write_deltalake(str(tmp_path / "delta"), rows, partition_by=["country"])
    table = catalog(tmp_path).create_table("ns.log", schema=rows.schema)
    table.append(rows)
    folders = {"delta": tmp_path / "delta", "iceberg": Path(table.location().removeprefix("file://"))}
    blobs = {
        f"{name}/{path.relative_to(folder)}": path.read_bytes()
        for name, folder in folders.items() for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip
    with serving(blobs) as environment:
        home = ["--home", str(tmp_path / "home"), "--json"]
        # In a process of its own: deltalake holds the lock of the interpreter, and so the server here, while it waits.
        command = [sys.executable, "-m", "headrace", "table", "add", "delta", "az://logs/delta", *home]
        found = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout)["rows"] == 24
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        objects._shared.cache_clear()
        assert run(["table", "add", "iceberg", "az://logs/iceberg", *home]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 24
    objects._shared.cache_clear()
