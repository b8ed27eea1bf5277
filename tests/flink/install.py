"""Brings a Flink distribution and Beam's Flink job server into ``.flink/``: ``python tests/flink/install.py``.

Every version is pinned here. Flink comes in the package that PyFlink keeps its Java side in, checked by digest; the job
server is put together by Maven from Beam's parts, checked by Maven's checksums. Both are released code, unchanged.

The job server is older than the Python side on purpose of nobody: it is the newest of which every part could be had
from Maven when this was written. The job API between the two is versioned by URN, and this is what the test proves.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

BEAM_JOB_SERVER = "2.62.0"
FLINK_LINE = "1.19"
FLINK = "1.19.3"
FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".flink"
LIB = FOLDER / "lib"
JOB_SERVER = FOLDER / "job-server.jar"
_READY = FOLDER / "ready.json"
#: Of the distribution's lib/ only what runs a job and logs: the rest is SQL.
_WANTED = ("flink-dist-", "log4j-")


def pins() -> dict[str, str]:
    """What stands in ``.flink/`` once it is ready."""
    recipe = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()
    return {"beam": BEAM_JOB_SERVER, "flink": FLINK, "digest": FLINK_SHA256, "recipe": recipe}


def is_ready() -> bool:
    """Whether ``.flink/`` holds what is pinned here."""
    return _READY.is_file() and json.loads(_READY.read_text()) == pins()


def missing_tools() -> list[str]:
    """Programs that the set-up or the test needs and this machine has not."""
    return [name for name in ("java", "mvn") if shutil.which(name) is None]


def install() -> None:
    """Bring both; raises what the download or the build raised."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    LIB.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        _install_flink(Path(temporary))
        _build_job_server(Path(temporary))
    _READY.write_text(json.dumps(pins()))


def _install_flink(temporary: Path) -> None:
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


def _build_job_server(temporary: Path) -> None:
    command = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "-f", str(HERE / "pom.xml"), "package",
               f"-Dbeam.version={BEAM_JOB_SERVER}", f"-Dflink.line={FLINK_LINE}", f"-Dtarget={temporary}"]  # fmt: skip
    subprocess.run(command, check=True)
    shutil.move(temporary / "job-server.jar", JOB_SERVER)


def main() -> int:
    """Install what is not there yet. Status 1, with one line that says why, when it cannot be had here."""
    if missing := missing_tools():
        sys.stderr.write(f"not on this machine: {', '.join(missing)}\n")
        return 1
    if is_ready():
        return 0
    sys.stdout.write(f"Setting up Flink {FLINK} and Beam's job server in {FOLDER} (about two minutes the first time)\n")
    sys.stdout.flush()
    try:
        install()
    except (subprocess.CalledProcessError, OSError, tarfile.TarError) as error:
        shutil.rmtree(FOLDER, ignore_errors=True)
        sys.stderr.write(f"could not be downloaded or built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
