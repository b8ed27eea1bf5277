"""The running Headrace as a wheel; equal files give equal bytes.

Its modules have the names that they have here, by which Beam pickles their functions for workers: a checkout's wheel holds five packages.

A wheel, unlike a source package, installs without compiling or downloading anything.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from transforms.errors import InputError
from transforms.installation import PACKAGES, ROOT

NAME = "headrace"

#: The earliest time in a zip file, so that the wheel is independent of modification times.
_WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_DESCRIPTION = ("METADATA", "entry_points.txt")
_TOP_LEVEL = "".join(f"{package}\n" for package in sorted(PACKAGES)).encode("ascii")
_FORMAT = b"Wheel-Version: 1.0\nGenerator: headrace\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_ASK_SETUPTOOLS = "import sys, setuptools.build_meta as build; build.prepare_metadata_for_build_wheel(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class OwnMetadata:
    """The metadata files of a package's ``dist-info`` folder, by name."""

    files: Mapping[str, bytes]

    @property
    def version(self) -> str:
        """The version."""
        return str(self._headers["Version"])

    @property
    def requirements(self) -> tuple[str, ...]:
        """The requirements of the package, including those of extras."""
        return tuple(self._headers.get_all("Requires-Dist", []))

    @property
    def _headers(self) -> Message:
        return HeaderParser().parsestr(self.files["METADATA"].decode("utf-8"))


def source_folder() -> Path:
    """The folder with the running packages: a checkout, or an environment's packages."""
    return ROOT.resolve()


def own_metadata(source: Path) -> OwnMetadata:
    """The metadata of a checkout's ``setup.py`` if setuptools is installed, else of the installed package.

    Raises :class:`InputError` if there is neither.
    """
    if (source / "setup.py").is_file() and find_spec("setuptools") is not None:
        return _described_by_setuptools(source)
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise InputError("Headrace cannot be packed without package metadata",
                         where=str(source), allowed="an installed headrace, or a checkout and setuptools",
                         next_step="pip install headrace, or give an image with --sdk_container_image") from None  # fmt: skip
    texts = {name: installed.read_text(name) for name in _DESCRIPTION}
    return OwnMetadata({name: text.encode("utf-8") for name, text in texts.items() if text is not None})


def _described_by_setuptools(source: Path) -> OwnMetadata:
    with TemporaryDirectory(prefix="headrace-") as folder:
        command = [sys.executable, "-c", _ASK_SETUPTOOLS, folder]
        answer = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
        found = list(Path(folder).glob("*.dist-info"))
        if answer.returncode or len(found) != 1:
            raise InputError("setuptools cannot describe this checkout", where=str(source / "setup.py"),
                             value="\n".join(answer.stderr.strip().splitlines()[-1:]),
                             next_step="see the output of python -m pip install -e .")  # fmt: skip
        files = {path.name: path.read_bytes() for path in found[0].iterdir() if path.name in _DESCRIPTION}
    return OwnMetadata(files)


def write_wheel(folder: Path, source: Path, metadata: OwnMetadata) -> Path:
    """Pack the packages in ``source`` into ``folder``; the same files and metadata give the same bytes."""
    info = f"{NAME}-{metadata.version}.dist-info"
    contents = {str(path.relative_to(source)): path.read_bytes() for path in _package_files(source)}
    contents |= {f"{info}/{name}": content for name, content in metadata.files.items()}
    contents |= {f"{info}/WHEEL": _FORMAT, f"{info}/top_level.txt": _TOP_LEVEL}
    contents[f"{info}/RECORD"] = _record(contents, f"{info}/RECORD")
    target = folder / f"{NAME}-{metadata.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents, key=lambda name: (name.startswith(info), name)):
            entry = zipfile.ZipInfo(name, _WRITTEN_AT)
            entry.external_attr, entry.compress_type = _MODE, zipfile.ZIP_DEFLATED
            archive.writestr(entry, contents[name])
    return target


def _package_files(source: Path) -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*")):
            inside = path.relative_to(source).parts
            if path.is_file() and "__pycache__" not in inside and not any(part.startswith(".") for part in inside):
                yield path


def _record(contents: Mapping[str, bytes], own_name: str) -> bytes:
    lines = []
    for name in sorted(contents):
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=").decode("ascii")
        lines.append(f"{name},sha256={digest},{len(contents[name])}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode("utf-8")
