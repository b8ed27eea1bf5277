"""Quality of training with default options beside logistic regression, boosted trees and the base rate on the same inputs.

    python -m benchmarks.default_quality [--data FOLDER] [--log NAME ...] [--seeds N]

The last share of each log's partitions, in time order, is the test set. Headrace trains without options, with several seeds, each with a
choice of options of its own, and is evaluated on the test set. The rivals have the same inputs, and options that are chosen on the
newest quarter of the training range (:mod:`benchmarks.support.quality_rivals`); nothing is chosen on the test set. The base rate
predicts the training range's rate. Figures are normalized entropy (log loss over that of the test events' own mean rate) and
calibration, means over seeds; *error* is the standard error of the ratio to the best rival, paired by test event. ``--data`` holds the public logs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import MADE_UP, QualityLog, public_logs
from benchmarks.support.quality_rivals import boosted_trees, logistic_regression
from benchmarks.support.quality_scene import QualityScene, quality_scene
from trainer.model.metrics import EPSILON, calibration, normalized_entropy
from trainer.options.config import TrainConfig
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.run.progress.identity import in_time_order
from trainer.serving.trained import load_trained

Array = np.ndarray[Any, np.dtype[Any]]

#: The most that training without options may be above the best rival.
_TARGET = 1.005


@dataclass(frozen=True, slots=True)
class Outcome:
    """Test figures of all sides on one log.

    Attributes:
        rate, linear, trees: normalized entropy of the base rate, logistic regression and boosted trees.
        ours, calibrations: normalized entropy and calibration of Headrace, of each seed.
        configs: its options with each seed.
        error: the standard error of :attr:`ratio`, by the losses of the test events.
        secs: the mean time of choosing and training.
    """

    train_events: int
    test_events: int
    test_positives: int
    rate: float
    linear: float
    trees: float
    ours: tuple[float, ...]
    calibrations: tuple[float, ...]
    configs: tuple[TrainConfig, ...]
    error: float
    secs: float

    @property
    def ratio(self) -> float:
        """The mean of ours over the best of the others."""
        return statistics.mean(self.ours) / min(self.rate, self.linear, self.trees)


def measure(log: QualityLog, folder: Path, seeds: int) -> Outcome:
    """All sides on one log."""
    with quality_scene(log, folder) as scene:
        began = time.monotonic()
        found = [_train(scene, folder / f"run-{seed}", seed) for seed in range(seeds)]
        secs = (time.monotonic() - began) / seeds
    labels = scene.tested.labels
    base = np.full(len(labels), scene.trained.labels.mean())
    rivals = [base, *(fit(scene.trained, scene.tested)(0) for fit in (logistic_regression, boosted_trees))]
    entropies = [normalized_entropy(labels, one) for one in rivals]
    best = _losses(labels, rivals[int(np.argmin(entropies))])
    ours, configs = zip(*found, strict=True)
    behind = np.mean([_losses(labels, one) for one in ours], axis=0) - best
    return Outcome(
        scene.older.rows,
        scene.newer.rows,
        int(labels.sum()),
        entropies[0],
        entropies[1],
        entropies[2],
        tuple(normalized_entropy(labels, one) for one in ours),
        tuple(calibration(labels, one) for one in ours),
        configs,
        float(behind.std(ddof=1) / np.sqrt(len(behind)) / best.mean()),
        secs,
    )


def _losses(labels: Array, probabilities: Array) -> Array:
    p = np.clip(np.asarray(probabilities, np.float64), EPSILON, 1 - EPSILON)
    return np.asarray(-np.where(labels == 1, np.log(p), np.log1p(-p)))


def _train(scene: QualityScene, run_dir: Path, seed: int) -> tuple[Array, TrainConfig]:
    """The tested events' probabilities by one training, and its options."""
    config = choose_config(scene.older, scene.read(scene.older), {"seed": seed}, run_dir=str(run_dir))
    train(scene.older, scene.read(scene.older), config)
    trained, read = load_trained(str(run_dir)), scene.read(scene.newer)
    fragments = [one for part in in_time_order(scene.newer) for one in part.fragments]
    return np.concatenate([np.asarray(trained.predict(read(one))) for one in fragments]), config


def main() -> int:
    """Measure and print; the exit status is 1 if Headrace misses the target on a log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/, criteo/, obd/")
    parser.add_argument("--log", action="append", help="only this log; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    logs = [log for log in (*(public_logs(options.data) if options.data else ()), *MADE_UP)
            if not options.log or log.name in options.log]  # fmt: skip
    print(machine())
    print(f"{'log':15}{'train':>8}{'test':>8}{'positive':>9}{'base rate':>10}{'linear':>8}{'trees':>8}{'Headrace':>9}{'±':>7}"
          f"{'/ best':>8}{'error':>7}{'calibration':>12}{'s':>6}", flush=True)  # fmt: skip
    missed, ahead = [], 0
    for log in logs:
        with tempfile.TemporaryDirectory() as name:
            found = measure(log, Path(name), options.seeds)
        spread = statistics.stdev(found.ours) if len(found.ours) > 1 else 0.0
        print(f"{log.name:15}{found.train_events:8,}{found.test_events:8,}{found.test_positives:9,}{found.rate:10.4f}{found.linear:8.4f}"
              f"{found.trees:8.4f}{statistics.mean(found.ours):9.4f}{spread:7.4f}{found.ratio:8.4f}{found.error:7.4f}"
              f"{statistics.mean(found.calibrations):12.3f}{found.secs:6.0f}", flush=True)  # fmt: skip
        for config in found.configs:
            chosen = next((one.name for one in config.trial if one.is_chosen), config.chosen["deep"])
            print(
                f"{'':15}{chosen}; {config.passes} passes, batches of {config.batch_rows}, calibration {config.calibration}"
            )
        ahead += found.ratio < 1
        if found.ratio > _TARGET:
            missed.append(log.name)
    print(
        f"\nbetter than all three on {ahead} of {len(logs)}; above {_TARGET} of the best: "
        + (", ".join(missed) or "none")
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
