"""Installs pinned Java programs in an ignored folder of the checkout."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Of both job servers. It is older than the Python side on purpose of nobody: it is the newest of which every part
#: could be had from Maven when this was written. The job API between the two is versioned by URN; the tests prove it.
BEAM = "2.62.0"


def missing_tools() -> list[str]:
    """Programs that the set-up or the test needs and this machine has not."""
    return [name for name in ("java", "mvn") if shutil.which(name) is None]


@dataclass(frozen=True)
class JavaParts:
    """``versions``: all that is pinned beside the ``recipe``, a Maven project; ``bring``: fills ``folder``, with a
    folder for what is needed only meanwhile, and raises what the download or the build raised.
    """

    title: str
    folder: Path
    recipe: Path
    versions: Mapping[str, str]
    bring: Callable[[Path], None]

    def pins(self) -> dict[str, str]:
        """What stands in the folder once it is ready."""
        return {**self.versions, "recipe": hashlib.sha256(self.recipe.read_bytes()).hexdigest()}

    def is_ready(self) -> bool:
        """Whether the folder holds what is pinned."""
        ready = self.folder / "ready.json"
        return ready.is_file() and json.loads(ready.read_text()) == self.pins()

    def is_missing(self) -> bool:
        """Whether a test that needs it must be skipped."""
        return bool(missing_tools()) or not self.is_ready()

    def install(self) -> int:
        """Install what is not there yet. Status 1, with one line that says why, when it cannot be had here."""
        if missing := missing_tools():
            sys.stderr.write(f"not on this machine: {', '.join(missing)}\n")
            return 1
        if self.is_ready():
            return 0
        sys.stdout.write(f"Setting up {self.title} in {self.folder} (about two minutes the first time)\n")
        sys.stdout.flush()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        try:
            with tempfile.TemporaryDirectory() as temporary:
                self.bring(Path(temporary))
        except (subprocess.CalledProcessError, OSError, tarfile.TarError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            sys.stderr.write(f"could not be downloaded or built: {error}\n")
            return 1
        (self.folder / "ready.json").write_text(json.dumps(self.pins()))
        return 0


def build(recipe: Path, target: Path, **versions: str) -> None:
    """Have Maven make the ``recipe`` in ``target``, every part checked by Maven's checksums."""
    given = [f"-D{name.replace('_', '.')}={version}" for name, version in versions.items()]
    command = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "-f", str(recipe), "package",
               f"-Dtarget={target}", *given]  # fmt: skip
    subprocess.run(command, check=True)
