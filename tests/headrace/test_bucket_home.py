"""The commands on a home in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.called_commands import SEARCH_MODEL, call
from tests.support.gcs_server import GcsServer
from warehouse import Storage


@pytest.fixture
def bucket(gcs_server: GcsServer, small_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with a log in it; its emulator, the home and the catalog are named by the environment only."""
    bucket = gcs_server.bucket()
    storage = Storage(gcs_server.home(bucket))
    for path in small_log.rglob("*.parquet"):
        storage.write_atomic(f"gs://{bucket}/log/{path.relative_to(small_log)}", path.read_bytes())
    (tmp_path / "model.py").write_text(SEARCH_MODEL)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{gcs_server.address}")
    monkeypatch.setenv("HEADRACE_HOME", f"gs://{bucket}/home")
    monkeypatch.setenv("HEADRACE_CATALOG_URL", f"sqlite:///{tmp_path}/catalog.db")
    return bucket


@pytest.mark.slow
def test_from_a_log_in_a_bucket_to_memos_in_it(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = call(capsys, "table", "add", "log", f"gs://{bucket}/log")
    assert added["added"]
    assert call(capsys, "table", "add", "log", f"gs://{bucket}/log/")["unchanged"] == len(added["added"])
    assert call(capsys, "table", "ls")["tables"][0]["root"] == f"gs://{bucket}/log"
    call(capsys, "model", "submit", tmp_path / "model.py")
    done = call(capsys, "work", "--until-idle")
    assert done["memos"] == done["tasks"] == 2 * len(added["added"])
    status = call(capsys, "status")
    assert status["home"].startswith(f"gs://anonymous@{bucket}/home?endpoint_override=127.0.0.1")
    assert status["memos"]["READY"] == done["memos"]
    assert len(call(capsys, "graphs", "search")["graphs"]) == 2
    assert not (Path.cwd() / "gs:").exists()


def test_what_needs_a_local_home_says_so(bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "table", "add", "log", f"gs://{bucket}/log")
    said = call(capsys, "table", "import", "other", "x.csv", "--schema", "schema.json", status=2)
    assert "the home must be a local folder" in said
    call(capsys, "model", "submit", tmp_path / "model.py")
    assert "--run-dir" in call(capsys, "train", "ctr", status=2)
    assert "local folder" in call(capsys, "demo", status=2)
    said = call(capsys, "table", "add", "third", f"gs://{bucket}/log?scheme=https", status=2)
    assert "must be those of the home" in said


def test_a_bucket_without_a_catalog_url_says_what_to_set(
    bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_CATALOG_URL")
    assert "HEADRACE_CATALOG_URL" in call(capsys, "status", status=2)
    monkeypatch.setenv("HEADRACE_HOME", "az://bucket/home")
    assert "gs://bucket/path, or s3://bucket/path" in call(capsys, "status", status=2)


def test_a_bucket_that_is_not_there_is_one_clear_error(
    bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", f"gs://no-{bucket}/home")
    assert "no such bucket" in call(capsys, "table", "add", "log", f"gs://no-{bucket}/log", status=6)
