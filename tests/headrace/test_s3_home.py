"""The commands on logs and homes in S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.isolation.processes import child_processes
from tests.support.called_commands import SEARCH_MODEL, call
from tests.support.s3_server import S3Server
from warehouse import Storage


@pytest.fixture
def bucket(s3_server: S3Server, small_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket with a log in it; server and credentials are named by the environment only."""
    bucket = s3_server.bucket()
    storage = Storage(str(tmp_path))
    for path in small_log.rglob("*.parquet"):
        storage.write_atomic(f"s3://{bucket}/log/{path.relative_to(small_log)}", path.read_bytes())
    (tmp_path / "model.py").write_text(SEARCH_MODEL)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    child_processes().close()  # children that another test has started have its environment
    yield bucket
    child_processes().close()


@pytest.mark.slow
def test_a_local_home_reads_a_log_in_s3(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = call(capsys, "table", "add", "log", f"s3a://{bucket}/log/", "--time-column", "time")
    assert added["added"]
    assert call(capsys, "table", "add", "log", f"s3://{bucket}/log")["unchanged"] == len(added["added"])
    assert call(capsys, "table", "ls")["tables"][0]["root"] == f"s3://{bucket}/log"
    call(capsys, "model", "submit", tmp_path / "model.py")
    assert call(capsys, "work", "--until-idle")["memos"] == 2 * len(added["added"])
    first = next((tmp_path / "log").rglob("*.parquet"))
    again = pq.read_table(first).slice(0, 3)
    Storage(str(tmp_path)).write_atomic(f"s3://{bucket}/late/x.parquet", lambda file: pq.write_table(again, file))
    assert call(capsys, "table", "append", "log", f"s3://{bucket}/late")["rows"] == 3
    assert call(capsys, "table", "add", "log", f"s3://{bucket}/log")["changed"] == []
    assert not (Path.cwd() / "s3:").exists()


@pytest.mark.medium
def test_a_home_in_s3(
    bucket: str,
    s3_server: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", f"s3://{bucket}/home")
    assert "HEADRACE_CATALOG_URL" in call(capsys, "status", status=2)
    monkeypatch.setenv("HEADRACE_CATALOG_URL", f"sqlite:///{tmp_path}/catalog.db")
    added = call(capsys, "table", "add", "log", f"s3://{bucket}/log")
    call(capsys, "model", "submit", tmp_path / "model.py")
    done = call(capsys, "work", "--until-idle")
    assert done["memos"] == done["tasks"] == 2 * len(added["added"])
    status = call(capsys, "status")
    assert status["home"] == f"s3://{bucket}/home?endpoint_override={s3_server.address}&scheme=http"
    assert status["memos"]["READY"] == done["memos"]
    assert call(capsys, "gc", "--yes")["foreign"] == []
    assert not call(capsys, "verify")["findings"]


def test_what_is_not_there_is_one_clear_error(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such bucket" in call(capsys, "table", "add", "log", f"s3://no-{bucket}/log", status=6)
    assert "no such folder" in call(capsys, "table", "add", "log", f"s3://{bucket}/nothing", status=3)
    said = call(capsys, "table", "add", "log", f"s3://{bucket}/log?region=x", status=2)
    assert "must be those of the home" in said
