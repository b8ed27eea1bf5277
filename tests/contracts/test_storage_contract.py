"""The contract of a storage location."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from tests.support.gcs_server import GcsServer
from tests.support.processes import PATIENCE_SECS
from tests.support.s3_server import S3Server
from tests.warehouse.scenes import start
from transforms.errors import DataError, InputError
from warehouse import Storage, read_memo_file, write_memo_file
from warehouse.errors import MemoDamaged
from warehouse.storage.stored_file import Entries

LOCATIONS = ("bucket", "file URI", "folder", "s3 bucket")


@pytest.fixture(params=LOCATIONS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "bucket":
        server: GcsServer = request.getfixturevalue("gcs_server")
        return Storage(server.home(server.bucket()))
    if request.param == "s3 bucket":
        s3: S3Server = request.getfixturevalue("s3_server")
        return Storage(s3.home(s3.bucket()))
    return Storage(f"file://{tmp_path}/home" if request.param == "file URI" else str(tmp_path / "home"))


def test_what_is_written_is_read(storage: Storage) -> None:
    assert not storage.exists("a/b")
    assert storage.write_atomic("a/b", b"123") == 3
    assert storage.exists("a/b")
    assert storage.read_bytes("a/b") == b"123"
    with storage.open_input("a/b") as file:
        file.seek(1)
        assert file.read() == b"23"


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    assert storage.write_atomic("x", b"") == 0
    assert storage.exists("x")
    assert storage.read_bytes("x") == b""


def test_a_writer_function_gets_a_file(storage: Storage) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"one ")
        file.write(b"two")

    assert storage.write_atomic("x", write) == 7
    assert storage.read_bytes("x") == b"one two"


def test_a_writer_that_raises_leaves_nothing(storage: Storage) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"half")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        storage.write_atomic("x", write)
    with pytest.raises(RuntimeError, match="in the middle"):
        storage.create("x", write)
    assert storage.list("") == storage.list("", temporaries=True) == ()


def test_writing_again_replaces(storage: Storage) -> None:
    storage.write_atomic("x", b"long before")
    storage.write_atomic("x", b"after")
    assert storage.read_bytes("x") == b"after"


def test_large_content_round_trips(storage: Storage) -> None:
    content = bytes(range(251)) * 80_000
    assert storage.write_atomic("x", content) == len(content) == 20_080_000
    assert storage.read_bytes("x") == content
    assert storage.create("y", content)
    with storage.open_input("y") as file:
        assert file.read_at(1000, 19_999_000) == content[19_999_000:20_000_000]


def test_only_the_first_to_create_wins(storage: Storage) -> None:
    assert storage.create("a/x", b"first")
    assert not storage.create("a/x", b"second")
    assert storage.read_bytes("a/x") == b"first"
    assert [file.size_bytes for file in storage.list("a")] == [5]
    assert storage.list("a", temporaries=True) == ()
    assert storage.delete("a/x")
    assert storage.create("a/x", b"third")


@pytest.mark.parametrize("size_bytes", [0, 5, 9_000_000])
def test_an_open_file_is_uploaded_unless_there_is_one(storage: Storage, tmp_path: Path, size_bytes: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(250)) * (size_bytes // 250) + b"x" * (size_bytes % 250))
    with open(source, "rb") as file:
        file.seek(size_bytes)  # it is sent from its begin
        assert storage.upload("a/x", file)
    assert storage.read_bytes("a/x") == source.read_bytes()
    storage.write_atomic("a/y", b"first")
    if size_bytes < 8_000_000:  # the server forgets the condition of an upload in pieces
        with open(source, "rb") as file:
            assert not storage.upload("a/y", file)
        assert storage.read_bytes("a/y") == b"first"


_CREATE_MANY = """
import sys
from warehouse import Storage
home, name = sys.argv[1:]
storage = Storage(home)
storage.exists("x")
print("ready", flush=True)
sys.stdin.readline()
print(" ".join(str(number) for number in range(40) if storage.create(f"locks/{number}", f"{name} {number}".encode())))
"""


@pytest.mark.medium
def test_of_several_processes_that_create_one_wins(storage: Storage) -> None:
    names = ("one", "two", "three")
    processes = {name: start(_CREATE_MANY, storage.home, name) for name in names}
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    wins = {}
    for name, process in processes.items():
        out, err = process.communicate(timeout=PATIENCE_SECS)
        assert process.returncode == 0, err
        wins[name] = [int(number) for number in out.split()]
    assert sorted(itertools.chain(*wins.values())) == list(range(40))
    for name, numbers in wins.items():
        assert all(storage.read_bytes(f"locks/{number}") == f"{name} {number}".encode() for number in numbers)


def test_a_reader_never_reads_a_partial_file(storage: Storage) -> None:
    storage.write_atomic("x", bytes([0]) * 200_000)
    stop = threading.Event()

    def write() -> None:
        for turn in itertools.count(1):
            if stop.is_set():
                return
            storage.write_atomic("x", bytes([turn % 251]) * (200_000 + turn % 7))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = set()
        deadline = time.monotonic() + PATIENCE_SECS
        while len(seen) < 8 and time.monotonic() < deadline:
            content = storage.read_bytes("x")
            assert len(set(content)) == 1, "bytes of two writes in one file"
            assert len(content) >= 200_000
            seen.add((content[0], len(content)))
    finally:
        stop.set()
        thread.join()
    assert len(seen) >= 8, "the writer did not get on"


_WRITE_LARGE = """
import sys
from warehouse import Storage
storage = Storage(sys.argv[1])
def write(file):
    for piece in range(30):
        file.write(bytes([piece]) * 1_000_000)
storage.exists("x")
print("ready", flush=True)
storage.write_atomic("memos/x", write)
print("done", flush=True)
"""


@pytest.mark.medium
def test_a_killed_writer_leaves_nothing_visible(storage: Storage) -> None:
    for delay_secs in (0.005, 0.02, 0.05):
        process = start(_WRITE_LARGE, storage.home)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay_secs)
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate()
        listed = storage.list("memos")
        if "done" not in out and not listed:
            assert not storage.exists("memos/x")
        else:  # the kill came too late: then all of it is there
            assert [file.size_bytes for file in listed] == [30_000_000]
            storage.delete("memos/x")


def test_listing_is_sorted_and_can_be_read_back(storage: Storage) -> None:
    for name in ("m/b/2", "m/a", "m/b/1", "other", "mm/x"):
        storage.write_atomic(name, name.encode())
    root = storage.root
    listed = storage.list(f"{root}/m")
    assert [file.path for file in listed] == [f"{root}/m/a", f"{root}/m/b/1", f"{root}/m/b/2"]
    assert storage.list("m") == storage.list("m/") == listed
    assert [file.size_bytes for file in listed] == [3, 5, 5]
    assert all(abs(file.mtime_ns / 1e9 - time.time()) < 600 for file in listed)
    assert storage.read_bytes(listed[1].path) == b"m/b/1"
    assert storage.folders(f"{root}/m") == (f"{root}/m/b",)
    assert storage.folders("") == (f"{root}/m", f"{root}/m/b", f"{root}/mm")
    assert storage.folder_exists(f"{root}/m")
    assert not storage.folder_exists(f"{root}/nothing")
    assert not storage.folder_exists(f"{root}/m/a")
    assert storage.absolute(storage.home) == root
    found = storage.entries(f"{root}/m")
    assert (found.folders, [file.path for file in found.files]) == (("b",), [f"{root}/m/a"])
    assert storage.entries("m/") == storage.entries("m") == found
    assert [file.size_bytes for file in found.files] == [3]
    assert storage.entries("").folders == ("m", "mm")


def test_a_name_is_matched_literally(storage: Storage) -> None:
    for name in ("date=2026-01-01/hour=03/a b%20c?d=1#e.parquet", "ü/日本"):
        storage.write_atomic(name, b"1")
        listed = storage.list(name.rpartition("/")[0])
        assert [file.path for file in listed] == [f"{storage.root}/{name}"]
        assert storage.read_bytes(listed[0].path) == b"1"
        with storage.open_input(listed[0].path) as file:
            assert file.read() == b"1"


def test_unfinished_files_are_hidden(storage: Storage) -> None:
    storage.write_atomic("memos/x", b"1")
    storage.write_atomic("memos/.x.123.tmp", b"half")
    assert [file.path for file in storage.list("memos")] == [f"{storage.root}/memos/x"]
    assert [file.path for file in storage.list("memos", temporaries=True)] == [f"{storage.root}/memos/.x.123.tmp"]
    assert [file.path for file in storage.entries("memos").files] == [f"{storage.root}/memos/x"]


def test_an_absent_folder_is_empty(storage: Storage) -> None:
    storage.write_atomic("x", b"1")
    assert storage.list("nothing/here") == ()
    assert storage.folders("nothing/here") == ()
    assert storage.entries("nothing/here") == Entries((), ())


def test_deleting(storage: Storage) -> None:
    storage.write_atomic("x", b"1")
    assert storage.delete("x")
    assert not storage.delete("x")
    assert not storage.exists("x")


def test_a_missing_file_names_its_path(storage: Storage) -> None:
    for read in (storage.read_bytes, storage.open_input):
        with pytest.raises(DataError) as caught:
            read("no/such")
        assert "no/such" in caught.value.where


def test_a_memo_that_changed_is_found_out(storage: Storage) -> None:
    columns = {"a": pa.array(range(1000)), "b": pa.array([f"text {i}" for i in range(1000)])}
    file = write_memo_file(storage, "memos/x", columns)
    assert read_memo_file(storage, "memos/x", file.columns, file.checksum)["b"].equals(columns["b"])
    content = storage.read_bytes("memos/x")
    storage.write_atomic("memos/x", content[: len(content) // 2])
    with pytest.raises(MemoDamaged):
        read_memo_file(storage, "memos/x", file.columns, file.checksum)
    write_memo_file(storage, "memos/x", {**columns, "b": columns["b"].take(pa.array(range(999, -1, -1)))})
    with pytest.raises(MemoDamaged):
        read_memo_file(storage, "memos/x", file.columns, file.checksum)


def test_a_location_that_means_nothing_is_refused() -> None:
    for home in ("gs://", "gs://somebody@bucket/x", "gs://bucket?endpoint=here", "gs://bucket?scheme=ftp",
                 "s3://", "s3://somebody@bucket/x", "s3://bucket?endpoint=here", "s3://bucket?scheme=ftp", "s3://b!/x",
                 "gs://bucket?retry_limit_seconds=soon", "gs://bucket?retry_limit_seconds=0", "gs://bucket?scheme=http&scheme=https"):  # fmt: skip
        with pytest.raises(InputError):
            Storage(home)
