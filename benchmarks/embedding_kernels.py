"""The ``cpu`` engine's lookups and updates against FBGEMM's CPU kernels and TensorFlow's, in one run.

    python -m benchmarks.embedding_kernels [--threads N] [--rounds N] [--repeats N] [--case NAME] [--tables FOLDER]

Each side runs in a process of its own and waits while another one is measured; rounds alternate, and ratios are taken within a
round. FBGEMM runs in the environment ``.fbgemm`` (``make bench-fbgemm``) and is left out, with a message, where that is missing.
The sides begin with equal tables, and the activations after one update must agree; TensorFlow has no row-wise Adagrad and runs
its own, so that its activations are compared before the update only. The last lines give the bytes that a case must move by
the bandwidth of a copy on this machine, and beside them what ``numpy.take`` of the same rows reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.embedding_cases import Case, cases
from benchmarks.support.fbgemm_environment import FOLDER

_ROOT = Path(__file__).resolve().parents[1]
_FBGEMM = FOLDER / "bin" / "python"
#: OpenMP's threads go on spinning for a while after their work.
_PAUSE_SECS = 0.3


class Side:
    """A process that runs one case for one system."""

    def __init__(self, name: str, python: Path, module: str, case: Case, threads: int, tables: str) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen([str(python), "-m", f"benchmarks.support.{module}"], cwd=_ROOT, env=environment,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
        self.sums = self._ask({"case": case.name, "threads": threads, "tables": tables})
        self.lookup_secs: list[float] = []
        self.both_secs: list[float] = []

    def _ask(self, document: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the side {self.name} ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, repeats: int) -> None:
        """One round: the median of its repeats."""
        found = self._ask({"repeats": repeats})
        self.lookup_secs.append(statistics.median(found["lookup_secs"]))
        self.both_secs.append(statistics.median(found["both_secs"]))
        time.sleep(_PAUSE_SECS)

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def copy_bandwidth() -> float:
    """Bytes a second that one thread reads and writes in a copy of 256 MB, the best of ten."""
    source, target = np.ones(32 << 20), np.empty(32 << 20)
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return 2 * source.nbytes / best


def gather_secs(case: Case, threads: int) -> float:
    """Seconds in which threads read the row of every id by ``numpy.take`` into a buffer in the cache, the median of ten."""
    inputs = [(table, ids) for (table, _), ids in zip(case.inputs, case.ids(), strict=True)]
    tables = [np.empty(shape, np.float32) for shape in case.tables]
    for table, ids in inputs:
        tables[table][np.unique(ids)] = 1.0  # pages that were never written to are all the same memory

    def gather(first: int) -> None:
        for table, ids in inputs[first::threads]:
            found = np.empty((min(len(ids), 4096), tables[table].shape[1]), np.float32)
            for start in range(0, len(ids), len(found)):
                part = ids[start : start + len(found)]
                np.take(tables[table], part, axis=0, out=found[: len(part)], mode="clip")

    secs = []
    with ThreadPoolExecutor(threads) as team:
        for _ in range(10):
            began = time.perf_counter()
            list(team.map(gather, range(threads)))
            secs.append(time.perf_counter() - began)
    return statistics.median(secs)


def compare(case: Case, threads: int, rounds: int, repeats: int, tables: str) -> None:
    """Run a case on all sides and print the results."""
    python = Path(sys.executable)
    sides = [Side("headrace", python, "side_of_engine", case, threads, tables)]
    if _FBGEMM.exists():
        sides.append(Side("FBGEMM", _FBGEMM, "side_of_fbgemm", case, threads, tables))
    else:
        print("FBGEMM is left out: make bench-fbgemm installs it in .fbgemm")
    sides.append(Side("TensorFlow", python, "side_of_tensorflow", case, threads, tables))
    for other in sides[1:2] if _FBGEMM.exists() else []:
        for kind in ("sum", "squares"):
            assert abs(other.sums[kind] - sides[0].sums[kind]) <= 1e-3 * abs(sides[0].sums["squares"]), (kind, other.sums, sides[0].sums)  # fmt: skip
    for _ in range(rounds):
        for side in sides:
            side.measure(repeats)
    for side in sides:
        side.end()
    ours = sides[0]
    print(
        f"\n{case.name}: {len(case.tables)} tables, {len(case.inputs)} inputs, {case.events} events, {threads} threads"
    )
    for side in sides:
        ratios = [statistics.median(a / b for a, b in zip(mine, its, strict=True))
                  for mine, its in ((ours.lookup_secs, side.lookup_secs), (ours.both_secs, side.both_secs))]  # fmt: skip
        print(f"  {side.name:<11} lookup {statistics.median(side.lookup_secs) * 1e3:8.2f} ms   lookup and update "
              f"{statistics.median(side.both_secs) * 1e3:8.2f} ms   headrace by it {ratios[0]:.2f}x and {ratios[1]:.2f}x")  # fmt: skip
    bandwidth, gather = copy_bandwidth(), gather_secs(case, threads)
    for kind, moved, secs in zip(("lookup", "lookup and update"), case.moved_bytes(), (ours.lookup_secs, ours.both_secs), strict=True):  # fmt: skip
        rate = moved / statistics.median(secs)
        print(
            f"  headrace {kind}: {moved / 1e6:.0f} MB at {rate / 1e9:.1f} GB/s, {100 * rate / bandwidth:.0f} % of a copy's"
        )
    rate = case.moved_bytes()[0] / gather
    print(f"  numpy.take of the same rows, {threads} threads: {gather * 1e3:.2f} ms, {rate / 1e9:.1f} GB/s by the same count, "
          f"{100 * rate / bandwidth:.0f} % of a copy's")  # fmt: skip


def main() -> None:
    """Run all cases, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--case", help="only this case")
    parser.add_argument("--tables", default="", help="folder with nvidia_synthetic_v3_tiny.json")
    options = parser.parse_args()
    known = cases(options.tables)
    if options.case not in (None, *known):
        parser.error(f"--case must be one of {', '.join(known)}, got {options.case}")
    for name, case in known.items():
        if options.case in (None, name):
            compare(case, options.threads, options.rounds, options.repeats, options.tables)


if __name__ == "__main__":
    main()
