"""The environments in which training steps are lowered and compiled for TPUs: packages of their own, in one folder.

Their TensorFlow is another build than the trainer's, and the release of libtpu that it works with does not know the newest TPUs. So there
are two environments, and none shares a process with the trainer: :meth:`TpuEnvironment.run` starts a module in one of them, with a document on
standard input and one on standard output.

libtpu, the TPU compiler, is under the Google Cloud Platform terms of service: it is downloaded on request, and no part of Headrace.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainer.errors import CheckFailed, ConfigError
from transforms.child_process import child_environment, module_command
from transforms.installation import IS_WHEEL, ROOT

#: The one with TensorFlow, and the one with the compiler.
Part = Literal["lowering", "compiling"]
PARTS: tuple[Part, ...] = ("lowering", "compiling")
_READY = "ready.json"
#: What an error shows of the end of a process's output.
_SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class TpuEnvironment:
    """A folder that ``make tpu`` made, or will make."""

    folder: Path

    @property
    def is_ready(self) -> bool:
        """Whether it holds the pinned packages."""
        ready = self.folder / _READY
        return ready.is_file() and json.loads(ready.read_text()) == pins()

    def install(self) -> None:
        """Install what is pinned, unless it is there. Raises :class:`subprocess.CalledProcessError` or :class:`OSError`."""
        if self.is_ready:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in PARTS:
            subprocess.run([sys.executable, "-m", "venv", str(self.folder / part)], check=True)
            pip = [
                str(self._python(part)),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            subprocess.run([*pip, "-r", str(requirements_of(part))], check=True)
        (self.folder / _READY).write_text(json.dumps(pins()))

    def run(self, part: Part, module: str, document: Mapping[str, Any], *, timeout_secs: float) -> dict[str, Any]:
        """The document that a module answers with in one of the environments.

        Raises :class:`ConfigError` for an environment that is not installed, and :class:`CheckFailed` for a process that ends
        with an error, or not in time.
        """
        if not self.is_ready:
            raise ConfigError(
                "the environment for TPU programs must be installed", where=str(self.folder), next_step="make tpu"
            )
        try:
            done = subprocess.run(
                module_command(module, python=str(self._python(part))), input=json.dumps(document), capture_output=True,
                text=True, timeout=timeout_secs, env=self._variables(part),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise CheckFailed(f"{module} must end in time", value=f"{timeout_secs:.0f} s",
                              next_step="allow more time, or check a smaller model") from error  # fmt: skip
        if done.returncode:
            raise CheckFailed(
                f"{module} must end with status 0", value=done.returncode, where=done.stderr[-_SHOWN_CHARACTERS:]
            )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _python(self, part: Part) -> Path:
        return self.folder.resolve() / part / "bin" / "python"

    def _variables(self, part: Part) -> dict[str, str]:
        """The environment variables of its processes: no TPU is looked for, and several processes may load libtpu."""
        (packages,) = (self.folder.resolve() / part).glob("lib/python3*/site-packages")
        own = {
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(self._own_packages()),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TPU_LIBRARY_PATH": str(packages / "libtpu" / "libtpu.so"),
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_WORKER_HOSTNAMES": "localhost",
        }
        return {**child_environment(), **own}

    def _own_packages(self) -> Path:
        """A folder with Headrace's packages; in that of a wheel are the packages of its environment, and these must not be found."""
        if not IS_WHEEL:
            return ROOT.resolve()
        link, target = self.folder.resolve() / "own" / "headrace", ROOT.resolve() / "headrace"
        link.parent.mkdir(exist_ok=True)
        if not link.exists() or link.resolve() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        return link.parent


def requirements_of(part: Part) -> Path:
    """The file that pins an environment's packages."""
    return Path(__file__).with_name(f"{part}.txt")


def pins() -> dict[str, str]:
    """The pins of the installed packages, which are written once the folder is ready."""
    files: dict[str, str] = {part: hashlib.sha256(requirements_of(part).read_bytes()).hexdigest() for part in PARTS}
    return {**files, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def main() -> int:
    """Install the environments in the folder that the command line names; status 1, with the reason, where that fails."""
    environment = TpuEnvironment(Path(sys.argv[1]))
    if environment.is_ready:
        return 0
    sys.stdout.write(
        f"Setting up TensorFlow for TPUs and the TPU compiler in {environment.folder} (some minutes)\n"
        "  libtpu is under the Google Cloud Platform terms of service\n"
    )
    sys.stdout.flush()
    try:
        environment.install()
    except (subprocess.CalledProcessError, OSError) as error:
        sys.stderr.write(f"could not be installed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
