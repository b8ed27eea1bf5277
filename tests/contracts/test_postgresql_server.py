"""The tests' PostgreSQL server: it is from the pinned wheel if none is installed, and always stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.postgresql import NoPostgres, PostgresServer, find_programs, wheel_programs
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import start


def test_the_wheel_s_server_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    (programs,) = wheel_programs()
    server = PostgresServer(programs)
    try:
        assert server.execute("SELECT 1") == [(1,)]
        url = server.database()
        assert server.execute("SELECT count(*) FROM tables", url.split("?")[0].rpartition("/")[2]) == [(0,)]
        pid = int((server.folder / "data/postmaster.pid").read_text().split()[0])
    finally:
        server.close()
    assert not server.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


_ABANDON = """
import os, signal
from tests.support.postgresql import PostgresServer
server = PostgresServer()
print(server.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_stops_when_its_tests_are_killed() -> None:
    process = start(_ABANDON)
    out, _ = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == -signal.SIGKILL
    folder = Path(out.strip())
    deadline = time.monotonic() + PATIENCE_SECS
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists(), "the server, and its folder, go when nobody is there to use them"


def test_without_a_server_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tests.support.postgresql.wheel_programs", list)
    monkeypatch.setattr("tests.support.postgresql._DEBIAN", tmp_path)
    with pytest.raises(NoPostgres, match="pip install -r requirements"):
        find_programs()
