"""An environment with FBGEMM's CPU kernels: ``python -m benchmarks.support.fbgemm_environment FOLDER``.

Three releases that load together, pinned. TorchRec requires the package for GPUs, which has files of the same names: it is left out,
and the requirements of TorchRec are installed by name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.support.own_environment import made_environment

TORCH, FBGEMM, TORCHREC = "torch==2.13.0", "fbgemm-gpu-cpu==1.8.0", "torchrec==1.8.0"
OTHERS = ("numpy", "pandas", "pyre-extensions", "iopath", "tensordict", "torchmetrics==1.0.3", "tqdm", "psutil",
          "pyarrow==25.0.1")  # fmt: skip
_PROBE = "import torch, fbgemm_gpu, torchrec, pyarrow"

#: Where the benchmarks look for it.
FOLDER = Path(__file__).resolve().parents[2] / ".fbgemm"


def install(folder: Path) -> str:
    """Make the environment, if it is not there. Returns why it cannot be had, or ""."""
    return made_environment(folder, [[TORCH, *OTHERS], ["--no-deps", FBGEMM, TORCHREC]], _PROBE)


if __name__ == "__main__":
    if why := install(Path(sys.argv[1])):
        print(f"FBGEMM is left out: {why}")
