from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.examples import scaled
from transforms.errors import StorageError
from warehouse.files.batch_files.folder import BatchFolder, evictions
from warehouse.files.own_files import kind_of
from warehouse.storage.stored_file import ListedFile

DIGEST, OTHER = "ab" * 32, "cd" * 32
WRITES_FOR_EVER = """
import sys
from warehouse.files.batch_files.folder import BatchFolder
file = BatchFolder(sys.argv[1], 1 << 40).begin("log", sys.argv[2])
while True:
    file.write(b"x" * 4096)
    print(file.size_bytes, flush=True)
"""


def write(folder, digest=DIGEST, content=b"12345678"):
    file = folder.begin("log", digest)
    file.write(content)
    file.publish()
    return folder.path("log", digest)


def test_a_file_is_visible_once_it_is_published(tmp_path):
    folder = BatchFolder(tmp_path, 1000)
    file = folder.begin("log", DIGEST)
    file.write(b"1234")
    assert folder.find("log", DIGEST) is None
    file.publish()
    path = folder.find("log", DIGEST)
    assert path.read_bytes() == b"1234"
    assert kind_of(str(path.relative_to(tmp_path))) == "batch files"
    assert folder.find("log", OTHER) is None
    assert folder.find("other", DIGEST) is None


def test_an_unfinished_file_has_a_name_that_garbage_collection_deletes(tmp_path):
    folder = BatchFolder(tmp_path, 1000)
    file = folder.begin("log", DIGEST)
    file.write(b"1234")
    (found,) = folder.files()
    assert kind_of(os.path.relpath(found.path, tmp_path)) == "unfinished writes"
    file.discard()
    assert folder.files() == []
    file.discard()


def test_the_later_one_of_two_writers_takes_the_place(tmp_path):
    folder = BatchFolder(tmp_path, 1000)
    files = [folder.begin("log", DIGEST) for _ in range(2)]
    for file in files:
        file.write(b"same")
    for file in files:
        file.publish()
        assert folder.find("log", DIGEST).read_bytes() == b"same"
    assert len(folder.files()) == 1


def test_many_threads_write_one_file(tmp_path):
    folder = BatchFolder(tmp_path, 1 << 30)
    threads = [threading.Thread(target=write, args=(folder, DIGEST, b"a" * 100_000)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert folder.find("log", DIGEST).read_bytes() == b"a" * 100_000
    assert len(folder.files()) == 1


def test_a_killed_writer_leaves_no_visible_file(tmp_path):
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(tmp_path), DIGEST]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    folder = BatchFolder(tmp_path, 1 << 40)
    assert folder.find("log", DIGEST) is None
    (left,) = folder.files()
    assert kind_of(os.path.relpath(left.path, tmp_path)) == "unfinished writes"
    assert write(folder).read_bytes() == b"12345678"


def test_a_file_without_space_is_an_error(tmp_path):
    folder = BatchFolder(tmp_path, 10)
    file = folder.begin("log", DIGEST)
    file.write(b"12345678")
    with pytest.raises(StorageError, match="stay in their limit") as caught:
        file.write(b"90ab")
    assert "--batch-files" in caught.value.next_step
    file.discard()


def test_files_that_were_not_used_since_the_folder_was_opened_make_space(tmp_path):
    old, older = (write(BatchFolder(tmp_path, 1000), digest) for digest in (DIGEST, OTHER))
    os.utime(old, (100, 100))
    os.utime(older, (50, 50))
    folder = BatchFolder(tmp_path, 20, clock=lambda: 200.0)
    write(folder, "ef" * 32)
    assert [path.exists() for path in (old, older)] == [True, False]
    assert folder.find("log", DIGEST) == old  # used now
    file = folder.begin("log", OTHER)
    with pytest.raises(StorageError):
        file.write(b"12345678")
    file.discard()


def test_a_file_is_used_when_it_is_found(tmp_path):
    path = write(BatchFolder(tmp_path, 1000))
    os.utime(path, (100, 100))
    BatchFolder(tmp_path, 1000, clock=lambda: 300.0).find("log", DIGEST)
    assert path.stat().st_mtime == 300.0
    assert time.time() > 300.0


@settings(max_examples=scaled(100))
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.booleans()), max_size=8),
    st.integers(0, 60),
    st.integers(0, 120),
    st.integers(0, 9),
)
def test_as_few_files_go_as_make_space(drawn, needed, most, since):
    files = [
        ListedFile(f"batches/log/{'.' if hidden else ''}{k}{'.tmp' if hidden else ''}", size, used)
        for k, (size, used, hidden) in enumerate(drawn)
    ]
    gone = evictions(files, needed, most, since)
    total = sum(one.size_bytes for one in files) + needed
    may_go = [one for one in files if one.mtime_ns < since and not one.path.endswith(".tmp")]
    if gone is None:
        assert total - sum(one.size_bytes for one in may_go) > most
        return
    assert total - sum(one.size_bytes for one in gone) <= most
    assert set(gone) <= set(may_go)
    if gone:
        assert total - sum(one.size_bytes for one in gone[:-1]) > most
        assert all(one.mtime_ns >= gone[-1].mtime_ns for one in may_go if one not in gone)
