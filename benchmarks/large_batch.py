"""Training with a batch k times as large: the entropy of events as they come, by optimizer and schedule.

    python -m benchmarks.large_batch [--hours 48] [--batch-rows 256] [--factor 16] [--seeds 3] [--passes 1] [--sides LAMB LARS] [--globo FOLDER] [--quick]

A DLRM trains the first hours of Globo's news log, else the sample log, with small batches and with batches ``--factor`` times as large: with
the same rates; with rates times the root of the factor, without and with a warm-up; and with LAMB and LARS. The rates of small batches are those that suit batches of 1,024 times the root of the ratio. The figure is the normalised entropy of events before they are trained (of the
last pass), and that of the last quarter of the epochs; and by how much it is above that of the small batches, the mean and the standard error of seeds, paired.
Target: at most 0.1 %.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import OPTIONS, TrainingScene, add_options, make_scene
from trainer.run.weights.saved_run import read_newest_run

TARGET = 0.001


def setups(batch_rows: int, factor: int, steps: int) -> dict[str, Mapping[str, Any]]:
    """The options of each side by its name; ``steps``: of a run with large batches."""
    large = batch_rows * factor
    warm_up = {"learning_rate_schedule": {"warmup_steps": max(steps // 10, 1)}}
    before, rates = rates_of(batch_rows), rates_of(large)
    return {
        "small batches": {"batch_rows": batch_rows, **before},
        "large, the same rates": {"batch_rows": large, **before},
        "large, rates times the root": {"batch_rows": large, **rates},
        "the same with a warm-up": {"batch_rows": large, **rates, **warm_up},
        "LAMB with a warm-up": {"batch_rows": large, **rates, "dense_optimizer": "lamb", **warm_up},
        "LARS with a warm-up": {"batch_rows": large, **rates, "dense_optimizer": "lars", **warm_up},
    }  # fmt: skip


def rates_of(batch_rows: int) -> dict[str, float]:
    """The learning rates of a size of batches: those of the scene, which suit its batches, times the root of the ratio."""
    ratio = math.sqrt(batch_rows / OPTIONS["batch_rows"])
    return {
        name: OPTIONS[name] * ratio
        for name in ("embedding_learning_rate", "linear_learning_rate", "dense_learning_rate")
    }


def entropies(scene: TrainingScene, folder: Path, options: Mapping[str, Any]) -> tuple[float, float]:
    """The normalised entropy of a run over its last pass, and over the last quarter of its epochs."""
    file, run_dir = folder / "options.json", folder / "run"
    file.write_text(json.dumps(options))
    command = scene.command(run_dir)
    command[command.index("--config") + 1] = str(file)
    done = subprocess.run([sys.executable, "-m", "headrace", *command, "--json"], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode()[-4000:])
    saved = read_newest_run(run_dir, on_skip=print, weights=False)
    assert saved is not None
    scores = [one.scores for one in saved.progress.history]
    of_pass = scores[-(len(scores) // int(options["passes"])) :]
    return entropy_of(of_pass), entropy_of(of_pass[-max(len(of_pass) // 4, 1) :])


def entropy_of(scores: Sequence[Any]) -> float:
    """The normalised entropy of all events of some epochs."""
    events = sum(one.events for one in scores)
    loss = sum(one.events * float(one.log_loss or 0.0) for one in scores) / events
    base = (
        sum(one.events * float(one.log_loss or 0.0) / float(one.normalized_entropy or 1.0) for one in scores) / events
    )
    return loss / base


def main() -> None:
    """Print the entropies of all sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.set_defaults(hours=48)
    parser.add_argument("--batch-rows", type=int, default=256)
    parser.add_argument("--factor", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument(
        "--sides", nargs="+", help="sides to train beside small batches, by how their names begin; all without it"
    )
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-batches-") as name:
        scene = make_scene(Path(name), given)
        steps = scene.rows * given.passes // (given.batch_rows * given.factor)
        print(
            f"{scene.rows:,} events, batches of {given.batch_rows} and {given.batch_rows * given.factor}, {steps} steps of large ones, {given.passes} passes"
        )
        print(f"{'':<29}{'entropy':>9}{'newest':>9}   above small batches: all; newest")
        before: list[tuple[float, float]] = []
        for side, options in setups(given.batch_rows, given.factor, steps).items():
            if before and given.sides and not side.startswith(tuple(given.sides)):
                continue
            found = []
            for seed in range(given.seeds):
                with tempfile.TemporaryDirectory(prefix="headrace-batch-") as folder:
                    asked = {
                        **OPTIONS,
                        "events_per_epoch": scene.rows // 20,
                        "passes": given.passes,
                        "seed": seed,
                        **options,
                    }
                    found.append(entropies(scene, Path(folder), asked))
            before = before or found
            text = ""
            for k in (0, 1):
                above = [own[k] / small[k] - 1 for own, small in zip(found, before, strict=True)]
                error = statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else 0.0
                text += f"   {statistics.mean(above):+.2%} ± {error:.2%}"
            means = [statistics.mean(one[k] for one in found) for k in (0, 1)]
            print(f"{side:<29}{means[0]:>9.4f}{means[1]:>9.4f}{text if found is not before else ''}", flush=True)


if __name__ == "__main__":
    main()
