"""Installs PyTorch, TorchRec and JAX in ``.torch/``, with what Headrace's core needs: ``python -m tests.torch.install``.

Every version is pinned here. PyTorch brings libraries for GPUs, some gigabytes, so it is in no other environment. TorchRec requires FBGEMM's package for GPUs,
which has files of the same names as that for processors: it is left out, and the requirements of TorchRec are installed by name.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".torch"
PYTHON = FOLDER / "bin" / "python"
_READY = FOLDER / "ready.txt"

PINNED = ("torch==2.13.0", "torchdata==0.11.0", "jax==0.10.2", "torchmetrics==1.0.3")
WITHOUT_REQUIREMENTS = ("fbgemm-gpu-cpu==1.8.0", "torchrec==1.8.0")
#: Required by TorchRec.
OF_TORCHREC = ("pandas", "pyre-extensions", "iopath", "tensordict", "tqdm", "psutil")
#: Headrace's core, at the versions of requirements.txt.
CORE = ("alembic", "grpcio", "llvmlite", "numba", "numpy", "pyarrow", "pyyaml", "rich", "sqlalchemy", "tomli-w", "typer", "tzdata", "xxhash")  # fmt: skip
_PROBE = "import torch, torchdata, fbgemm_gpu, torchrec, jax, pyarrow, numba, sqlalchemy"


def is_ready() -> bool:
    """Whether the environment is there with the pinned packages, which were imported once."""
    return _READY.is_file() and _READY.read_text(encoding="utf-8") == _pins()


def install() -> None:
    """Make the environment, unless it is there. Raises :class:`subprocess.CalledProcessError`."""
    if is_ready():
        return
    _READY.unlink(missing_ok=True)
    venv.create(FOLDER, with_pip=True, clear=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = [line for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    constraints = FOLDER / "constraints.txt"
    constraints.write_text("\n".join(line for line in pins if line.partition("==")[0] in CORE) + "\n", encoding="utf-8")
    subprocess.run([*pip, *PINNED, *OF_TORCHREC, *CORE, "--constraint", str(constraints)], check=True)
    subprocess.run([*pip, "--no-deps", *WITHOUT_REQUIREMENTS], check=True)
    subprocess.run([PYTHON, "-c", _PROBE], check=True)
    _READY.write_text(_pins(), encoding="utf-8")


def _pins() -> str:
    return "\n".join([*PINNED, *WITHOUT_REQUIREMENTS, *OF_TORCHREC, *CORE])


if __name__ == "__main__":
    try:
        install()
    except subprocess.CalledProcessError as error:
        sys.exit(f"PyTorch is not installed: {error}")
