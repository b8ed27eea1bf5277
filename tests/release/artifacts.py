"""The files of a release: the source package and the wheel, their digests, and the signature of the digests."""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

DIGESTS = "SHA256SUMS"
_IDENTITY, _NAMESPACE = "release@headrace", "headrace"
_HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d{2}-\d{2}|unreleased)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Version:
    """A version of the changelog; ``date`` is empty before it is released."""

    name: str
    date: str


def newest_version(changelog: str) -> Version:
    """The version at the top of a changelog. Raises :class:`ValueError` without a heading of the form ``## 0.1.0 (2026-12-01)``."""
    found = _HEADING.search(changelog)
    if found is None:
        raise ValueError("a changelog must have a heading of the form ## 0.1.0 (2026-12-01), or (unreleased)")
    return Version(found[1], "" if found[2] == "unreleased" else found[2])


def check_version(setup: str, changelog: str) -> Version:
    """The version of a release. Raises :class:`ValueError` where setup.py and the changelog differ."""
    newest, declared = newest_version(changelog), re.search(r'version="([^"]+)"', setup)
    if declared is None or declared[1] != newest.name:
        raise ValueError(
            f"the version of setup.py must be that of CHANGELOG.md, {newest.name}, got {declared and declared[1]}"
        )
    return newest


def write_digests(folder: Path) -> Path:
    """Write the SHA-256 of each file of a folder as ``sha256sum`` does, sorted by name."""
    files = sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith(DIGESTS))
    lines = (f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    (folder / DIGESTS).write_text("".join(lines), encoding="utf-8")
    return folder / DIGESTS


def new_key(folder: Path) -> Path:
    """A key for a rehearsal; a release has one of its own."""
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", _IDENTITY, "-f", str(folder / "key")])
    return folder / "key"


def sign(digests: Path, key: Path) -> Path:
    """Sign the digests with an SSH key: ``ssh-keygen -Y sign``."""
    signature = digests.with_name(digests.name + ".sig")
    signature.unlink(missing_ok=True)
    _run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", _NAMESPACE, str(digests)])
    return signature


def verify(digests: Path, public_key: Path) -> None:
    """Raise :class:`ValueError` where the signature is not of this key, or a file is not that of its digest."""
    signers = digests.parent / "signers"
    signers.write_text(f"{_IDENTITY} {public_key.read_text(encoding='utf-8')}", encoding="utf-8")
    try:
        command = [
            "ssh-keygen",
            "-Y",
            "verify",
            "-f",
            str(signers),
            "-I",
            _IDENTITY,
            "-n",
            _NAMESPACE,
            "-s",
            f"{digests}.sig",
        ]
        with digests.open("rb") as text:
            done = subprocess.run(command, stdin=text, capture_output=True, text=True, check=False)
    finally:
        signers.unlink()
    if done.returncode:
        raise ValueError(f"the digests must have a signature of this key: {(done.stderr or done.stdout).strip()}")
    for line in digests.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if hashlib.sha256((digests.parent / name).read_bytes()).hexdigest() != digest:
            raise ValueError(f"a file of a release must have its digest, got other bytes: {name}")


def write_index(folder: Path, files: list[Path]) -> None:
    """Write a package index (PEP 503) of these files, with digests in its links."""
    project = folder / "simple" / "headrace"
    project.mkdir(parents=True)
    links = []
    for file in files:
        data = file.read_bytes()
        (project / file.name).write_bytes(data)
        links.append(f'<a href="{file.name}#sha256={hashlib.sha256(data).hexdigest()}">{file.name}</a>\n')
    (project / "index.html").write_text("<!DOCTYPE html>\n" + "".join(links), encoding="utf-8")


def commit_secs() -> str:
    """The time of the newest commit, for archives that are equal for equal sources."""
    return subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
