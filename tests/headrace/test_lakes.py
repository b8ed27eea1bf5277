"""The commands on Delta and Iceberg tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.called_commands import call
from tests.support.s3_server import S3Server
from tests.warehouse.lakes import scenes as lakes
from tests.warehouse.lakes.iceberg_deletes import catalog
from warehouse import Storage

START = datetime(2026, 3, 1, tzinfo=UTC)
MODEL = """
import headrace as hr

model = hr.Model("ctr", client="search", label="clicked", table="log")
model.input("query", hr.text("query").lower().unigrams().hash_buckets(100))
model.input("price", hr.float64("price").log1p())
"""


def events(ids: Sequence[int], clicked: int = 0) -> pa.Table:
    rows = [
        {"id": one, "time": START + timedelta(hours=one), "query": f"red shoe {one % 5}", "price": float(one), "clicked": clicked}
        for one in ids
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    (tmp_path / "model.py").write_text(MODEL)
    write_deltalake(str(tmp_path / "lake"), events(range(48)))
    return str(tmp_path / "lake")


def test_memos_of_what_did_not_change_stay(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = call(capsys, "table", "add", "log", lake)
    assert (added["version"], added["appended_rows"], added["rows"]) == (1, 48, 48)
    call(capsys, "model", "submit", tmp_path / "model.py")
    assert call(capsys, "work", "--until-idle")["memos"] == 4  # two inputs over two days

    DeltaTable(lake).update(predicate="id % 7 = 0", updates={"clicked": "1"})
    late = call(capsys, "table", "add", "log", lake)
    assert (late["updated_rows"], late["updated_columns"], late["recompute"]) == (7, ["clicked"], [])
    DeltaTable(lake).optimize.compact()
    DeltaTable(lake).delete("id = 5")
    assert call(capsys, "table", "add", "log", lake)["recompute"] == []
    assert call(capsys, "work", "--until-idle")["memos"] == 0

    DeltaTable(lake).update(predicate="id = 30", updates={"price": "9.5"})
    one_input = call(capsys, "table", "add", "log", lake)["recompute"]
    assert [(one["inputs"], one["memos"], one["rows"]) for one in one_input] == [(["price"], 1, 24)]
    assert call(capsys, "work", "--until-idle")["memos"] == 1
    write_deltalake(lake, events(range(48, 50)), mode="append")
    appended = call(capsys, "table", "add", "log", lake)
    assert sorted((one["memos"], one["rows"]) for one in appended["recompute"]) == [(1, 2), (1, 2)]
    assert call(capsys, "work", "--until-idle")["memos"] == 2
    history = call(capsys, "table", "history", "log")["versions"]
    assert [one["kind"] for one in history] == ["register", "overlay", "delete", "overlay", "append"]
    assert history[1]["source"] == f"{lake}, version 1"
    assert [one["why"] for one in history][1:] == ["UPDATE", "DELETE", "UPDATE", "WRITE"]
    assert not call(capsys, "verify")["findings"]


def test_what_is_printed(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = call(capsys, "table", "add", "log", lake, text=True)
    assert said.splitlines()[0].startswith("table log, version 1: 48 rows of version 0 of Delta ")
    assert "nothing new in Delta" in call(capsys, "table", "add", "log", lake, text=True)
    DeltaTable(lake).update(predicate="id < 2", updates={"clicked": "1"})
    said = " ".join(call(capsys, "table", "add", "log", lake, text=True).split())
    assert "went from version 0 to 1: overlaid clicked of 2 rows, kept 46 that are in other files now" in said
    assert "nothing must be computed" in said
    assert f"follows {lake}, version 1" in " ".join(call(capsys, "table", "show", "log", text=True).split())


def test_a_lakes_files_are_never_read_as_plain_files(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (file, *_) = sorted(Path(lake).glob("*.parquet"))
    plain = tmp_path / "plain"
    (plain / "date=2026-03-01").mkdir(parents=True)
    pq.write_table(events(range(3)), plain / "date=2026-03-01" / "x.parquet")
    call(capsys, "table", "add", "plain", plain)
    for command in (
        ("table", "import", "other", lake, "--time-column", "time"),
        ("table", "import", "other", f"{lake}/*.parquet", "--time-column", "time"),
        ("table", "append", "plain", lake),
        ("table", "append", "plain", file),
        ("table", "overlay", "plain", file, "--on", "id"),
        ("table", "overlay", "plain", lake),
        ("table", "delete", "plain", "--on", "id", "--keys", file),
    ):
        said = call(capsys, *command, status=2)
        assert "must be read by its log" in said, command
        assert "_delta_log" in said
    monkeypatch.setitem(sys.modules, "deltalake", None)
    said = call(capsys, "table", "add", "log", lake, status=6)
    assert f"{lake}/_delta_log" in said
    assert "headrace[delta]" in said
    iceberg = tmp_path / "iceberg"
    (iceberg / "metadata").mkdir(parents=True)
    (iceberg / "metadata" / "v1.metadata.json").write_text("{}")
    (iceberg / "data" / "date=2026-03-01").mkdir(parents=True)
    pq.write_table(events(range(3)), iceberg / "data" / "date=2026-03-01" / "x.parquet")
    assert "an Iceberg table must be read by its log" in call(capsys, "table", "add", "x", iceberg / "data", status=2)
    assert "must be readable by its log" in call(capsys, "table", "add", "x", iceberg, status=3)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    said = call(capsys, "table", "add", "x", iceberg, status=6)
    assert f"{iceberg}/metadata" in said
    assert "headrace[iceberg]" in said
    hudi = tmp_path / "hudi"
    (hudi / ".hoodie").mkdir(parents=True)
    assert "Hudi table must be read by its log" in call(capsys, "table", "add", "x", hudi, status=2)
    assert call(capsys, "table", "ls")["tables"][0]["name"] == "plain"


def test_options_of_the_other_kind_are_refused(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain" / "date=2026-03-01").mkdir(parents=True)
    pq.write_table(events(range(3)), tmp_path / "plain" / "date=2026-03-01" / "x.parquet")
    for option in (
        ("--key", "id"),
        ("--follow",),
        ("--every", "5s"),
        ("--lake-version", "1"),
        ("--partition-by", "hour"),
        ("--time-unit", "s"),
    ):
        assert option[0] in call(capsys, "table", "add", "x", tmp_path / "plain", *option, status=2)
    for option in (("--move",), ("--outside-times", "refuse")):
        assert option[0] in call(capsys, "table", "add", "x", lake, *option, status=2)
    assert "--follow" in call(capsys, "table", "add", "x", lake, "--follow", "--lake-version", "0", status=2)
    assert "--follow" in call(capsys, "table", "add", "x", lake, "--every", "5s", status=2)
    assert "longer than 0" in call(capsys, "table", "add", "x", lake, "--follow", "--every", "0s", status=2)
    call(capsys, "table", "add", "log", lake)
    assert "follows a lake" in call(capsys, "table", "import", "log", str(tmp_path / "plain" / "*/*.parquet"), status=2)
    assert "must be the one" in call(capsys, "table", "add", "log", tmp_path / "plain", status=2)
    call(capsys, "table", "add", "plain", tmp_path / "plain")
    assert "a table of files must not become" in call(capsys, "table", "add", "plain", lake, status=2)


@pytest.mark.slow
def test_follow_brings_each_version_until_it_is_stopped(lake: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "table", "add", "log", lake, "--follow", "--every", "0.2s", "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["version"], first["rows"]) == (1, 48)
    write_deltalake(lake, events(range(60, 63)), mode="append")
    second = json.loads(process.stdout.readline())
    assert (second["before"], second["appended_rows"], second["version"]) == ("0", 3, 2)
    DeltaTable(lake).delete("id = 60")
    third = json.loads(process.stdout.readline())
    assert (third["before"], third["deleted_rows"], third["version"]) == ("1", 1, 3)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, out) == (143, ""), err


def test_a_lake_in_s3(
    s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    lake = f"s3://{s3_server.bucket()}/lake"
    options = {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    write_deltalake(lake, events(range(24)), storage_options=options, partition_by=["clicked"])
    assert call(capsys, "table", "add", "log", lake)["rows"] == 24
    DeltaTable(lake, storage_options=options).delete("id = 3")
    assert call(capsys, "table", "add", "log", lake)["deleted_rows"] == 1
    assert "must be read by its log" in call(capsys, "table", "append", "log", lake, status=2)
    table = catalog(tmp_path).create_table("ns.log", schema=lakes.events(range(8)).schema)
    table.append(lakes.events(range(8)))
    folder, storage = Path(table.location().removeprefix("file://")), Storage(str(tmp_path))
    for path in folder.rglob("*.*"):
        storage.write_atomic(f"{lake} iceberg/{path.relative_to(folder)}", path.read_bytes())
    assert call(capsys, "table", "add", "other", f"{lake} iceberg")["rows"] == 8


def test_a_column_that_a_lake_drops_is_refused_with_the_models_that_read_it(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "table", "add", "log", lake)
    call(capsys, "model", "submit", tmp_path / "model.py")
    write_deltalake(lake, events(range(9)).drop_columns("price"), mode="overwrite", schema_mode="overwrite")
    said = call(capsys, "table", "add", "log", lake, status=3)
    assert "must stay in it, which live models read: ctr" in said
    texts = events(range(9)).set_column(3, "price", pa.array(["cheap"] * 9))
    write_deltalake(lake, texts, mode="overwrite", schema_mode="overwrite")
    said = call(capsys, "table", "add", "log", lake, status=3)
    assert "a column of another type, which live models read: ctr" in said
    assert "add the lake under another table name, such as log_2" in said
