"""Files are written atomically, whatever fails."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import REPOSITORY, start
from transforms.errors import DataError, StorageError
from warehouse import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "home"))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_writer_that_raises_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"half of it")
        raise RuntimeError("in the middle")

    storage.write_atomic("a/b", b"before")
    with pytest.raises(RuntimeError, match="in the middle"):
        storage.write_atomic("a/b", write)
    assert storage.read_bytes("a/b") == b"before"
    assert everything(tmp_path) == ["home/a/b"]


def test_unfinished_writes_are_not_listed(storage: Storage, tmp_path: Path) -> None:
    storage.write_atomic("memos/x", b"1")
    (tmp_path / "home/memos/.x.123.tmp").write_bytes(b"half")
    assert [file.path for file in storage.list("memos")] == [str(tmp_path / "home/memos/x")]
    assert [file.path for file in storage.list("memos", temporaries=True)] == [str(tmp_path / "home/memos/.x.123.tmp")]


_FULL_DISK = """
import sys
from transforms.errors import StorageError
from warehouse import Storage
storage = Storage(sys.argv[1])
try:
    storage.write_atomic("memos/big", bytes(8_000_000))
except StorageError as error:
    print(error)
    assert "the disk is full" in error.what, error
    assert error.where.endswith("memos/big"), error
    assert storage.list("") == () and storage.list("", temporaries=True) == (), storage.list("")
    storage.write_atomic("memos/small", b"fits")
    assert storage.read_bytes("memos/small") == b"fits"
    print("refused cleanly")
"""


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """A real 1 MB file system, in a mount namespace of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    unshare = shutil.which("unshare")
    probe = [str(unshare), "-Urm", "sh", "-c", f"mount -t tmpfs -o size=1m none {folder}"]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount in a namespace of their own")
    script = f"mount -t tmpfs -o size=1m none {folder} && exec {sys.executable} - {folder}/home"
    done = subprocess.run(
        [unshare, "-Urm", "sh", "-c", script], input=_FULL_DISK, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False,
    )  # fmt: skip
    assert "refused cleanly" in done.stdout, done.stdout + done.stderr


def test_a_file_size_limit_is_one_clear_error(tmp_path: Path) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, {resource.RLIM_INFINITY}))\n"
    process = start(limit + _FULL_DISK, tmp_path / "home")
    out, err = process.communicate(timeout=PATIENCE_SECS)
    assert "refused cleanly" in out, out + err


def test_a_folder_that_cannot_be_written_names_the_path(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the home should be")
    with pytest.raises(StorageError) as caught:
        storage.write_atomic("memos/x", b"1")
    assert "memos/x" in caught.value.where


def test_a_scheme_that_nothing_serves() -> None:
    with pytest.raises(StorageError):
        Storage("nonsense://bucket").read_bytes("x")
    with pytest.raises(DataError, match="not there"):
        Storage("/").read_bytes("/no/such/file")


_WRITE_FOR_EVER = """
import sys, itertools
from warehouse import Storage
storage = Storage(sys.argv[1])
print("ready", flush=True)
for turn in itertools.count():
    storage.write_atomic("memos/x", bytes([turn % 251]) * 3_000_000)
"""


@pytest.mark.medium
def test_a_killed_writer_leaves_a_whole_file(storage: Storage, tmp_path: Path) -> None:
    for delay_secs in (0.003, 0.01, 0.02, 0.035, 0.05):
        process = start(_WRITE_FOR_EVER, tmp_path / "home")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not storage.exists("memos/x"):
            time.sleep(0.001)
        time.sleep(delay_secs)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        content = storage.read_bytes("memos/x")
        assert len(content) == 3_000_000
        assert len(set(content)) == 1, "bytes of two writes in one file"
