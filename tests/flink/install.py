"""Installs Flink and Beam's Flink job server in ``.flink/``: ``python -m tests.flink.install``.

Every version is pinned here. Flink comes in the package that PyFlink keeps its Java side in, checked by digest; the job
server is put together by Maven from Beam's parts, checked by Maven's checksums. Both are released code, unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.java_parts import BEAM, ROOT, JavaParts, build

FLINK_LINE = "1.19"
FLINK = "1.19.3"
FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"

RECIPE = Path(__file__).resolve().parent / "pom.xml"
FOLDER = ROOT / ".flink"
LIB = FOLDER / "lib"
JOB_SERVER = FOLDER / "job-server.jar"
#: Of the distribution's lib/ only what runs a job and logs: the rest is SQL.
_WANTED = ("flink-dist-", "log4j-")


def _bring(temporary: Path) -> None:
    _install_flink(temporary)
    build(RECIPE, temporary, beam_version=BEAM, flink_line=FLINK_LINE)
    shutil.move(temporary / "job-server.jar", JOB_SERVER)


def _install_flink(temporary: Path) -> None:
    LIB.mkdir()
    wanted = temporary / "requirements.txt"
    wanted.write_text(f"apache-flink-libraries=={FLINK} --hash=sha256:{FLINK_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--require-hashes", "-r", str(wanted), "-d", str(temporary)]  # fmt: skip
    subprocess.run(command, check=True)
    (archive,) = temporary.glob("apache*flink*libraries*.tar.gz")
    with tarfile.open(archive) as packed:
        for member in packed:
            name = member.name.rpartition("/")[2]
            if member.isfile() and "/deps/lib/" in member.name and name.startswith(_WANTED):
                content = packed.extractfile(member)
                assert content is not None
                with content, (LIB / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


PARTS = JavaParts(
    title=f"Flink {FLINK} and Beam's job server",
    folder=FOLDER,
    recipe=RECIPE,
    versions={"beam": BEAM, "flink": FLINK, "digest": FLINK_SHA256},
    bring=_bring,
)


if __name__ == "__main__":
    sys.exit(PARTS.install())
