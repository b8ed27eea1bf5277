"""An environment with FBGEMM's CPU kernels: ``python -m benchmarks.support.fbgemm_environment FOLDER``.

Three releases that load together, pinned. TorchRec requires the package for GPUs, which has files of the same names: it is left out,
and the requirements of TorchRec are installed by name.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

TORCH, FBGEMM, TORCHREC = "torch==2.13.0", "fbgemm-gpu-cpu==1.8.0", "torchrec==1.8.0"
OTHERS = ("numpy", "pandas", "pyre-extensions", "iopath", "tensordict", "torchmetrics==1.0.3", "tqdm", "psutil",
          "pyarrow==25.0.1")  # fmt: skip
_PROBE = "import torch, fbgemm_gpu, torchrec, pyarrow"

#: Where the benchmarks look for it.
FOLDER = Path(__file__).resolve().parents[2] / ".fbgemm"


def install(folder: Path) -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    python = folder / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", _PROBE], capture_output=True, check=False).returncode == 0:
        return ""
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for wanted in ([TORCH, *OTHERS], ["--no-deps", FBGEMM, TORCHREC]):
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    probe = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else probe.stderr.strip().splitlines()[-1]


if __name__ == "__main__":
    if why := install(Path(sys.argv[1])):
        print(f"FBGEMM is left out: {why}")
