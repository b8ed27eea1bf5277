"""What every location that a storage may stand on has to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from transforms.errors import DataError
from warehouse import Storage

LOCATIONS: dict[str, Callable[[Path], str]] = {
    "folder": str,
    "file URI": lambda path: f"file://{path}",
}


@pytest.fixture(params=sorted(LOCATIONS))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage(LOCATIONS[request.param](tmp_path / "home"))


def test_what_is_written_is_read(storage: Storage) -> None:
    assert not storage.exists("a/b")
    assert storage.write_atomic("a/b", b"123") == 3
    assert storage.exists("a/b")
    assert storage.read_bytes("a/b") == b"123"
    with storage.open_input("a/b") as file:
        file.seek(1)
        assert file.read() == b"23"


def test_a_writer_function_gets_a_file(storage: Storage) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"one ")
        file.write(b"two")

    assert storage.write_atomic("x", write) == 7
    assert storage.read_bytes("x") == b"one two"


def test_writing_again_replaces(storage: Storage) -> None:
    storage.write_atomic("x", b"long before")
    storage.write_atomic("x", b"after")
    assert storage.read_bytes("x") == b"after"


def test_listing_is_sorted_and_can_be_read_back(storage: Storage) -> None:
    for name in ("m/b/2", "m/a", "m/b/1", "other"):
        storage.write_atomic(name, name.encode())
    home = storage.home.rstrip("/")
    listed = storage.list(f"{home}/m")
    assert [file.path for file in listed] == [f"{home}/m/a", f"{home}/m/b/1", f"{home}/m/b/2"]
    assert [file.size_bytes for file in listed] == [3, 5, 5]
    assert all(file.mtime_ns > 0 for file in listed)
    assert storage.read_bytes(listed[1].path) == b"m/b/1"
    assert storage.folders(f"{home}/m") == (f"{home}/m/b",)
    assert storage.folder_exists(f"{home}/m")
    assert not storage.folder_exists(f"{home}/nothing")


def test_an_absent_folder_is_empty(storage: Storage) -> None:
    assert storage.list("nothing/here") == ()
    assert storage.folders("nothing/here") == ()


def test_deleting(storage: Storage) -> None:
    storage.write_atomic("x", b"1")
    assert storage.delete("x")
    assert not storage.delete("x")
    assert not storage.exists("x")


def test_a_missing_file_names_its_path(storage: Storage) -> None:
    with pytest.raises(DataError) as caught:
        storage.read_bytes("no/such")
    assert "no/such" in caught.value.where
