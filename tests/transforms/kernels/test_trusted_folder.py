"""Compiled kernels are loaded only from folders and files that no other user can write."""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from transforms.kernels.kept_code import KeptCode
from transforms.kernels.trusted_folder import distrust_of, private_folder, trusted_folder

_NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this user's own, in which temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o755)
    trusted_folder.cache_clear()
    yield folder
    trusted_folder.cache_clear()


def test_a_folder_of_one_s_own_is_trusted(own: Path) -> None:
    assert trusted_folder(str(own)) == str(own)
    assert trusted_folder(str(own / "not" / "there yet")) == str(own / "not" / "there yet")


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_that_others_may_write_to(own: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    own.chmod(mode)
    for _ in range(2):
        chosen = trusted_folder(str(own))
    assert chosen != str(own)
    assert stat.S_IMODE(Path(chosen).parent.stat().st_mode) == 0o700
    assert [record.message.count("other users may write") for record in caplog.records] == [1], "one line"


def test_folders_above_count_unless_they_are_sticky(own: Path) -> None:
    below = own / "below"
    below.mkdir(mode=0o755)
    own.chmod(0o777)
    assert distrust_of(str(below)) == f"other users may write to {own}"
    own.chmod(0o1777)
    assert distrust_of(str(below)) is None
    link = own.parent / "link"
    link.symlink_to(below)
    own.chmod(0o777)
    assert distrust_of(str(link)) is not None, "a link is as trusted as what it leads to"


@as_root
def test_a_folder_or_a_group_of_another_user(own: Path) -> None:
    os.chown(own, _NOBODY, -1)
    assert distrust_of(str(own)) == f"{own} belongs to another user"
    os.chown(own, 0, _NOBODY)
    own.chmod(0o775)
    assert distrust_of(str(own)) == f"other users may write to {own}"
    os.chown(own, 0, 0)
    assert distrust_of(str(own)) is None, "a group of one's own"


def test_the_private_folder_is_used_only_if_the_user_owns_it(own: Path) -> None:
    first = private_folder()
    assert private_folder() == first
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700
    os.chmod(first, 0o770)
    assert private_folder() != first
    os.rmdir(first)
    os.symlink(own, first)
    assert private_folder() not in (first, str(own))


class _Shell:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, (f"touch {self.path}",))

    def __init__(self, path: Path) -> None:
        self.path = path


@pytest.mark.parametrize("how", ["mode", "link", pytest.param("owner", marks=as_root)])
def test_a_file_of_another_user_is_not_unpickled(own: Path, how: str) -> None:
    kept = KeptCode(str(own), "f-1.py311", "sources")
    kept.save("int64", b"whole")
    assert kept.load("int64") == b"whole"
    (path,) = own.iterdir()
    content = pickle.dumps(_Shell(own / "run"))
    path.write_bytes(hashlib.sha256(content).digest() + content)
    if how == "mode":
        path.chmod(0o666)
    elif how == "owner":
        os.chown(path, _NOBODY, -1)
    else:
        path.rename(own / "elsewhere")
        path.symlink_to(own / "elsewhere")
    assert kept.load("int64") is None
    assert not (own / "run").exists()


_RUN = """
import os, sys, logging
from transforms.kernels.compiled import compiled
import body
print(body.f(1), body.f._cache.cache_path)
"""


@pytest.mark.medium
def test_an_installation_in_a_folder_of_all_works_and_says_so(own: Path) -> None:
    """A real process: the code is compiled, kept elsewhere, and found there by the next one."""
    (own / "body.py").write_text(
        "from transforms.kernels.compiled import compiled\n\n@compiled\ndef f(x):\n    return x + 1\n"
    )
    repository = str(ROOT)
    environment = {**os.environ, "PYTHONPATH": f"{repository}{os.pathsep}{own}", "TMPDIR": str(own.parent)}
    environment.pop("HOME", None)
    environment.pop("NUMBA_CACHE_DIR", None)
    own.chmod(0o777)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _RUN], env=environment, capture_output=True, text=True, check=True)
        value, folder = done.stdout.split()
        assert value == "2"
        assert not folder.startswith(str(own) + os.sep)
        assert len(list(Path(folder).glob("*.nbc"))) == 1
        assert done.stderr.count("other users may write") == 1
    assert not list(own.rglob("*.nbc"))


@pytest.mark.medium
def test_a_read_only_installation_without_a_home_works(own: Path) -> None:
    locators = "UserProvidedCacheLocator"
    (own / "body.py").write_text(
        "from transforms.kernels.compiled import compiled\n\n@compiled\ndef f(x):\n    return x + 1\n"
    )
    repository = str(ROOT)
    environment = {**os.environ, "PYTHONPATH": f"{repository}{os.pathsep}{own}", "TMPDIR": str(own.parent),
                   "NUMBA_CACHE_LOCATOR_CLASSES": locators}  # fmt: skip
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", _RUN], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[:1] == ["2"], done.stderr
