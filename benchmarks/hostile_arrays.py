"""Run every operator over malformed Arrow arrays; no read or write may be out of bounds.

    python -m benchmarks.hostile_arrays [--arrays N] [--seed N] [--without-bounds-checks] [--folder PATH]

Every buffer is next to a protected page, and the kernels are compiled with numba's bounds checks, which takes minutes the
first time: they are cached in ``--folder``. A trial that crashes its process is counted and printed with its seed and
number; ``python -m tests.transforms.hostile_trials --seed S --first N`` repeats it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.transforms.hostile_trials import Tally, run_apart

#: Trials per process.
_BATCH = 2000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--arrays", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=10)
    options.add_argument(
        "--without-bounds-checks", action="store_true", help="guard pages only, with the usual kernels"
    )
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "headrace-hostile-arrays")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    whole, begun = Tally(), time.perf_counter()
    while whole.arrays < given.arrays:
        whole.add(
            run_apart(given.seed, whole.plans, _BATCH, given.folder, bounds_checked=not given.without_bounds_checks)
        )
    print(f"{whole.arrays:,} arrays in {whole.plans:,} plans, seed {given.seed}, {time.perf_counter() - begun:,.0f} s: "
          f"{whole.unmade:,} plans without an Arrow array, {whole.refused:,} arrays refused, "
          f"{whole.computed:,} computed")  # fmt: skip
    print(f"reads or writes out of bounds: {whole.out_of_bounds + whole.deaths} ({whole.deaths} crashed processes); "
          f"other defects: {len(whole.defects) - whole.deaths}")  # fmt: skip
    for defect in whole.defects:
        print(f"  {defect}")
    raise SystemExit(bool(whole.defects))


if __name__ == "__main__":
    main()
