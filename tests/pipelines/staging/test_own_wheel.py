"""The wheel for remote machines holds only Headrace, and is reproducible."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipelines.staging import own_wheel
from pipelines.staging.own_wheel import PACKAGES, OwnMetadata, own_metadata, source_folder, write_wheel
from tests.pipelines.scenes import REPOSITORY
from transforms.errors import InputError

PACK = """
import sys
from pathlib import Path
from pipelines.staging.own_wheel import own_metadata, source_folder, write_wheel
assert not str(source_folder()).startswith(sys.argv[2]), source_folder()
print(write_wheel(Path(sys.argv[1]), source_folder(), own_metadata(source_folder())))
"""


@pytest.fixture(scope="module")
def metadata() -> OwnMetadata:
    return own_metadata(source_folder())


def packed(folder: Path, metadata: OwnMetadata) -> Path:
    folder.mkdir()
    return write_wheel(folder, source_folder(), metadata)


@pytest.mark.medium
def test_the_same_files_give_the_same_bytes(tmp_path: Path, metadata: OwnMetadata) -> None:
    one, other = packed(tmp_path / "one", metadata), packed(tmp_path / "other", own_metadata(source_folder()))
    assert one.name == other.name == f"headrace-{metadata.version}-py3-none-any.whl"
    assert one.read_bytes() == other.read_bytes()


def test_it_holds_what_runs_here_and_nothing_else(tmp_path: Path, metadata: OwnMetadata) -> None:
    with zipfile.ZipFile(packed(tmp_path / "wheel", metadata)) as archive:
        names = archive.namelist()
        for name in names:
            if not name.startswith("headrace-"):
                assert archive.read(name) == (REPOSITORY / name).read_bytes(), name
    there = {name for name in names if name.endswith(".py")}
    here = {str(path.relative_to(REPOSITORY)) for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")}
    assert there == here
    assert "transforms/operators/public_suffix_list.dat" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "benchmarks", "."))]


def test_its_record_has_the_checksum_of_every_file(tmp_path: Path, metadata: OwnMetadata) -> None:
    with zipfile.ZipFile(packed(tmp_path / "wheel", metadata)) as archive:
        record = f"headrace-{metadata.version}.dist-info/RECORD"
        lines = [line.rsplit(",", 2) for line in archive.read(record).decode().splitlines()]
        assert {name for name, _, _ in lines} == set(archive.namelist())
        for name, digest, size in lines[:-1]:
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content)), name
        assert lines[-1] == [record, "", ""]


@pytest.mark.slow
def test_an_installed_headrace_packs_itself_into_the_same_bytes(tmp_path: Path, metadata: OwnMetadata) -> None:
    wheel = packed(tmp_path / "wheel", metadata)
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile",
                    "--target", str(place), str(wheel)], check=True)  # fmt: skip
    (tmp_path / "again").mkdir()
    answer = subprocess.run([sys.executable, "-c", PACK, str(tmp_path / "again"), str(REPOSITORY)], cwd=tmp_path,
                            env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True, text=True, check=False)  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()).read_bytes() == wheel.read_bytes()


def test_what_nothing_describes_cannot_be_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_wheel, "NAME", "headrace-that-nobody-installed")
    with pytest.raises(InputError, match="cannot be packed without package metadata") as caught:
        own_metadata(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert "--sdk_container_image" in caught.value.next_step


def test_a_setup_file_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("raise SystemExit('no such thing')\n")
    with pytest.raises(InputError, match="cannot describe") as caught:
        own_metadata(tmp_path)
    assert "no such thing" in str(caught.value.value)
