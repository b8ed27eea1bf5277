"""The parts of a release: its version, its digests and their signature, its index, and its pins."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.release.artifacts import (
    Version,
    check_version,
    new_key,
    newest_version,
    sign,
    verify,
    write_digests,
    write_index,
)
from tests.release.refresh import changes, head_of, pins_of

needs_ssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen: apt-get install openssh-client"
)


def test_setup_and_changelog_have_one_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert check_version((ROOT / "setup.py").read_text(encoding="utf-8"), changelog).name
    assert newest_version("# Changelog\n\n## 0.2.0 (2026-12-24)\n\n## 0.1.0 (2026-12-01)\n") == Version(
        "0.2.0", "2026-12-24"
    )
    with pytest.raises(
        ValueError, match=r"the version of setup\.py must be that of CHANGELOG\.md, 0\.2\.0, got 0\.1\.0"
    ):
        check_version('version="0.1.0"', "## 0.2.0 (unreleased)")
    with pytest.raises(ValueError, match="must have a heading"):
        newest_version("## next\n")


@needs_ssh
def test_a_changed_file_or_another_key_is_found(tmp_path: Path) -> None:
    keys, release = tmp_path / "keys", tmp_path / "release"
    for folder in (keys, release, tmp_path / "other"):
        folder.mkdir()
    (release / "a.whl").write_bytes(b"wheel")
    key, digests = new_key(keys), write_digests(release)
    sign(digests, key)
    verify(digests, keys / "key.pub")
    assert digests.read_text() == f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"
    with pytest.raises(ValueError, match="must have a signature of this key"):
        verify(digests, new_key(tmp_path / "other").with_name("key.pub"))
    (release / "a.whl").write_bytes(b"another")
    with pytest.raises(ValueError, match=r"must have its digest, got other bytes: a\.whl"):
        verify(digests, keys / "key.pub")
    write_digests(release)
    with pytest.raises(ValueError, match="must have a signature of this key"):
        verify(digests, keys / "key.pub")
    assert sorted(one.name for one in release.iterdir()) == ["SHA256SUMS", "SHA256SUMS.sig", "a.whl"]


def test_an_index_names_its_files_with_their_digests(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    write_index(tmp_path / "index", [tmp_path / "a.whl"])
    page = (tmp_path / "index" / "simple" / "headrace" / "index.html").read_text()
    assert f'href="a.whl#sha256={hashlib.sha256(b"wheel").hexdigest()}"' in page


def test_pins_are_compared_by_normalised_names() -> None:
    before = pins_of("# pins\nml_dtypes==0.6.0\nscipy==1.17.1\ngone==1\n")
    after = pins_of(
        "ml-dtypes==0.6.0\nscipy==1.17.1 ; python_full_version < '3.12'\nscipy==1.18.1 ; python_full_version >= '3.12'\nnew==2\n"
    )
    assert changes(before, after) == ["gone: 1 -> removed", "new: new -> 2", "scipy: 1.17.1 -> 1.17.1 and 1.18.1"]
    assert head_of("# a\n# b\nml_dtypes==0.6.0\n") == "# a\n# b\n"


def test_the_pinned_set_is_read_completely() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert sum(len(versions) for versions in pins_of(text).values()) == len(lines)
