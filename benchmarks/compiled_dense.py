"""The dense train step of DLRM and DCN-v2 in compiled kernels, against Keras's layers in TensorFlow, PyTorch and JAX, in one run.

    python -m benchmarks.compiled_dense [--rounds 7] [--secs 0.4] [--threads 1]

A step is forward, gradients by activations and weights, and Adam, over the same activations. Each side runs in a process of its own and waits while
another one is measured; rounds alternate. Times are the best rounds of each side, by the clock and by processor seconds, since threads of OpenMP collapse
where another process wants a core; ratios are of the best rounds by the clock, and the range of the rounds is beside them. PyTorch runs in ``.fbgemm`` (``make bench-fbgemm``), JAX
in ``.tpu`` (``make tpu``), on the CPU; a side is left out where its environment is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.support.dense_steps import DenseStepCase
from benchmarks.support.fbgemm_environment import FOLDER as FBGEMM
from benchmarks.support.harness import machine

_ROOT = Path(__file__).resolve().parents[1]
_PYTHONS = {
    "compiled": Path(sys.executable),
    "tensorflow": Path(sys.executable),
    "torch": FBGEMM / "bin" / "python",
    "jax": _ROOT / ".tpu" / "compiling" / "bin" / "python",
}
CASES = (
    DenseStepCase("dlrm", 8, 16, 64),
    DenseStepCase("dlrm", 8, 16, 1024),
    DenseStepCase("dlrm", 26, 16, 1024),
    DenseStepCase("dlrm", 26, 64, 2048, (512, 256)),
    DenseStepCase("dcn", 8, 16, 64),
    DenseStepCase("dcn", 26, 16, 1024),
)


class Side:
    """A process of one system for one case."""

    def __init__(self, system: str, case: DenseStepCase) -> None:
        self.system = system
        self.rounds: list[tuple[float, float]] = []
        threads = str(case.threads)
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": threads,
                       "CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if case.threads > 1 else 'false'} intra_op_parallelism_threads={threads}"}  # fmt: skip
        self._process = subprocess.Popen(
            [str(_PYTHONS[system]), "-m", "benchmarks.support.dense_steps", system], cwd=_ROOT, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._ask(asdict(case))

    def _ask(self, what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the side {self.system} ended with status {self._process.wait()}")
        return json.loads(line)

    def measure(self, secs: float) -> None:
        """One round."""
        wall, cpu = self._ask(secs)
        self.rounds.append((wall, cpu))

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(case: DenseStepCase, rounds: int, secs: float) -> None:
    """Print the sides of one case."""
    sides = [Side(system, case) for system, python in _PYTHONS.items() if python.exists()]
    for _ in range(rounds):
        for side in sides:
            side.measure(secs)
    for side in sides:
        side.end()
    print(f"{case}\n  {'':12}{'ms a step':>10}{'processor ms':>14}{'of compiled':>13}{'by rounds':>16}")
    ours = sides[0].rounds
    for side in sides:
        wall, cpu = (min(one[k] for one in side.rounds) for k in (0, 1))
        ratios = sorted(one[0] / own[0] for one, own in zip(side.rounds, ours, strict=True))
        print(f"  {side.system:12}{wall:10.3f}{cpu:14.3f}{wall / min(one[0] for one in ours):13.2f}"
              f"{ratios[0]:9.2f}..{ratios[-1]:.2f}", flush=True)  # fmt: skip


def main() -> None:
    """Compare all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--secs", type=float, default=0.4, help="of each side in a round")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(f"{machine()}, {given.threads} threads of each side")
    for name, python in _PYTHONS.items():
        if not python.exists():
            print(f"{name} is left out: its environment is missing")
    for case in CASES:
        compare(replace(case, threads=given.threads), given.rounds, given.secs)


if __name__ == "__main__":
    main()
