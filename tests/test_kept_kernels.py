"""The folder of compiled kernels that the tests of all checkouts share."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.kept_kernels import KEPT_SECS, remove_old_kernels, share_kernels


def test_a_folder_is_named_where_none_is(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    share_kernels(environment)
    assert environment["NUMBA_CACHE_DIR"] == str(tmp_path / "headrace-tests" / "kernels")
    environment = {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "/mine"}
    share_kernels(environment)
    assert environment["NUMBA_CACHE_DIR"] == "/mine"
    environment = {"XDG_CACHE_HOME": "relative"}
    share_kernels(environment)
    assert "NUMBA_CACHE_DIR" not in environment


def test_these_tests_have_a_folder() -> None:
    assert os.environ["NUMBA_CACHE_DIR"]


def test_files_that_no_test_has_needed_are_removed(tmp_path: Path) -> None:
    folder, now = tmp_path / "some.module", 1e9
    folder.mkdir()
    for name, read, written in (
        ("old.nbc", now - KEPT_SECS - 1, now - KEPT_SECS - 9),
        ("read.nbc", now - 9, now - 2 * KEPT_SECS),
        ("new.nbi", now - 2 * KEPT_SECS, now - 9),
        ("other.txt", 1.0, 1.0),
    ):
        (folder / name).write_bytes(b"code")
        os.utime(folder / name, (read, written))
    remove_old_kernels(tmp_path, now)
    assert sorted(path.name for path in folder.iterdir()) == ["new.nbi", "other.txt", "read.nbc"]
    remove_old_kernels(tmp_path / "absent", now)
