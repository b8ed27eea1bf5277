from __future__ import annotations

import os
from pathlib import Path

import pytest

from warehouse.storage import durable_files
from warehouse.storage.durable_files import make_folders, sync_path, write_new_file


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced; those of one call in any order."""
    paths: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(durable_files.os, "fsync", note)
    return paths


def test_every_parent_that_gains_an_entry_is_synced(tmp_path: Path, synced: list[str]) -> None:
    make_folders(tmp_path / "a/b")
    assert (tmp_path / "a/b").is_dir()
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a")]
    make_folders(tmp_path / "a/b")
    assert len(synced) == 2


def test_a_relative_folder_is_made_where_the_process_is(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folders("a")
    assert synced == [str(tmp_path)]


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "a")


def test_a_new_file_is_synced_and_never_replaces_one(tmp_path: Path, synced: list[str]) -> None:
    place = tmp_path / "x"
    assert write_new_file(place, lambda file: file.write(b"123")) == 3
    assert synced == [str(place)]
    with pytest.raises(FileExistsError):
        write_new_file(place, lambda file: file.write(b"4"))
    assert place.read_bytes() == b"123"
    assert write_new_file(tmp_path / "y", lambda file: file.write(b"4"), synced=False, permissions=0o600) == 1
    assert (tmp_path / "y").stat().st_mode & 0o777 == 0o600
    sync_path(tmp_path)
    assert synced == [str(place), str(tmp_path)]
