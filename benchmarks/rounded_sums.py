"""Dense gradients that are rounded to bfloat16 between hosts: the normalised entropy of events as they come.

    python -m benchmarks.rounded_sums [--hours 24] [--hosts 2] [--seeds 3] [--globo FOLDER] [--quick]

A job of several hosts trains the first hours of Globo's news log, else the sample log, with ``--dense-values float32`` and with ``bf16``, in turns.
The hosts share no machine, so each host's gradients are rounded and their sum again: in two legs only the sums of machines and theirs are. The
figure is the normalised entropy of events before they are trained, and by how much it is above that of float32: the mean and the standard error of
seeds, paired. What rounding does to one sum is measured by ``benchmarks.grid_sums``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.large_batch import entropy_of
from benchmarks.support.harness import machine
from benchmarks.support.training_scene import OPTIONS, TrainingScene, add_options, make_scene
from trainer.run.weights.saved_run import read_newest_run

_VALUES = ("float32", "bf16")


def trained_entropy(scene: TrainingScene, folder: Path, values: str, hosts: int, seed: int) -> float:
    """The normalised entropy of a job whose gradients are sent as these values."""
    run_dir = folder / f"{values}-{seed}"
    (folder / "options.json").write_text(json.dumps({**OPTIONS, "seed": seed}))
    command = scene.command(run_dir, "--hosts", str(hosts), "--readers", "1", "--dense-values", values, "--json")
    command[command.index("--config") + 1] = str(folder / "options.json")
    done = subprocess.run([sys.executable, "-m", "headrace", *command], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-4000:])
    saved = read_newest_run(run_dir, on_skip=print, weights=False)
    assert saved is not None
    return entropy_of([one.scores for one in saved.progress.history])


def main() -> int:
    """Print the entropies of both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-rounded-") as name:
        scene = make_scene(Path(name), given)
        print(f"{machine()}; {scene.rows:,} events, {given.hosts} hosts, {given.seeds} seeds")
        found: dict[str, list[float]] = {values: [] for values in _VALUES}
        for seed in range(given.seeds):
            for values in _VALUES:
                found[values].append(trained_entropy(scene, Path(name), values, given.hosts, seed))
            print(f"  seed {seed}: " + ", ".join(f"{values} {found[values][-1]:.6f}" for values in _VALUES), flush=True)
    above = [rounded / plain - 1 for plain, rounded in zip(*(found[values] for values in _VALUES), strict=True)]
    error = statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else 0.0
    print(f"bf16 is {statistics.mean(above):+.4%} ± {error:.4%} above float32")
    return 0


if __name__ == "__main__":
    sys.exit(main())
