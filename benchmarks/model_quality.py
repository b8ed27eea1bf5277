"""Quality of DLRM and DCN-v2 beside scikit-learn's logistic regression and gradient-boosted trees.

    python -m benchmarks.model_quality [--data FOLDER] [--log NAME ...] [--side NAME ...] [--seeds N]

All sides have the same inputs and the same split: the last share of each log's partitions, in time order, is the test
set. Headrace's networks train with the linear part and MLPs; the other options are chosen by its trial, once a log, on
the newest quarter of a sample of the training range, and every seed trains with them. The rivals' options are chosen on the newest
quarter of the training range (:mod:`benchmarks.support.quality_rivals`). Nothing is chosen on the test set. AUC and
normalized entropy (log loss over that of the test events' own mean rate) are means and standard deviations over seeds;
logistic regression depends on no seed, and trees are fitted twice. ``--data`` holds the public logs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import QualityLog, public_logs, sample_log
from benchmarks.support.quality_rivals import boosted_trees, logistic_regression
from benchmarks.support.quality_scene import QualityScene, quality_scene
from trainer.model.metrics import auc, calibration, normalized_entropy
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.serving.trained import load_trained

LOGS = ("globo", "movielens", "sample")
OURS: Mapping[str, Mapping[str, Any]] = {
    "DLRM": {"network": "dlrm", "deep": True},
    "DCN-v2": {"network": "dcn", "deep": True},
}
RIVALS = {"logistic regression": logistic_regression, "boosted trees": boosted_trees}

#: Logistic regression depends on no seed; boosted trees hardly do, and take minutes each.
_RIVAL_SEEDS = {"logistic regression": 1, "boosted trees": 2}


@dataclass(frozen=True, slots=True)
class Quality:
    """The test metrics of one training."""

    auc: float
    normalized_entropy: float
    calibration: float


def _quality_of(labels: Any, probabilities: Any) -> Quality:
    return Quality(
        auc(labels, probabilities), normalized_entropy(labels, probabilities), calibration(labels, probabilities)
    )


def networks(scene: QualityScene, folder: Path, given: Mapping[str, Any]) -> Callable[[int], Quality]:
    """Choose the options; the result trains with a seed and evaluates."""
    config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(folder / "chosen"))
    print(f"  {given}: linear {config.linear}, rates {config.linear_learning_rate:g}, {config.embedding_learning_rate:g}, "
          f"{config.dense_learning_rate:g}, {config.passes} passes, batches of {config.batch_rows}", flush=True)  # fmt: skip

    def run(seed: int) -> Quality:
        run_dir = str(folder / f"{given['network']}-{seed}")
        train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir, seed=seed))
        scores: Any = load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer))
        return Quality(scores.auc, scores.normalized_entropy, scores.calibration)

    return run


def sides_of(scene: QualityScene, folder: Path, names: list[str]) -> dict[str, Callable[[int], Quality]]:
    """What is measured with each seed, by name."""
    labels = scene.tested.labels
    found: dict[str, Callable[[int], Quality]] = {
        name: networks(scene, folder, given) for name, given in OURS.items() if name in names
    }
    for name, fit in RIVALS.items():
        if name in names:
            predict = fit(scene.trained, scene.tested)
            found[name] = lambda seed, predict=predict: _quality_of(labels, predict(seed))  # type: ignore[misc]
    return found


def measure(log: QualityLog, names: list[str], seeds: int) -> dict[str, list[Quality]]:
    """All sides on one log, with every seed."""
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        labels = scene.tested.labels
        rate = normalized_entropy(labels, np.full(len(labels), scene.trained.labels.mean()))
        print(f"{log.name}: {scene.older.rows:,} trained events, {scene.newer.rows:,} tested, {int(labels.sum()):,} positive; "
              f"the training rate alone has {rate:.4f}", flush=True)  # fmt: skip
        found = {}
        for name, run in sides_of(scene, Path(folder), names).items():
            begun = time.monotonic()
            found[name] = [run(seed) for seed in range(min(seeds, _RIVAL_SEEDS.get(name, seeds)))]
            print(f"  {name:20}{_spread(found[name], 'auc')}{_spread(found[name], 'normalized_entropy')}"
                  f"{_spread(found[name], 'calibration')}{(time.monotonic() - begun) / len(found[name]):8.0f} s", flush=True)  # fmt: skip
    return found


def _spread(runs: list[Quality], name: str) -> str:
    values = [getattr(run, name) for run in runs]
    return f"{statistics.mean(values):9.4f} ±{statistics.stdev(values) if len(values) > 1 else 0.0:.4f}"


def ahead(found: Mapping[str, list[Quality]]) -> list[str]:
    """Our sides whose normalized entropy and AUC are better than those of every rival by more than the seeds' spread."""

    def mean(name: str, field: str) -> tuple[float, float]:
        values = [getattr(run, field) for run in found[name]]
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    winners = []
    for ours in filter(found.__contains__, OURS):
        gaps = []
        for field, sign in (("auc", 1), ("normalized_entropy", -1)):
            own = mean(ours, field)
            rivals = [mean(name, field) for name in RIVALS if name in found]
            gaps += [sign * (own[0] - rival[0]) - (own[1] ** 2 + rival[1] ** 2) ** 0.5 for rival in rivals]
        if all(gap > 0 for gap in gaps):
            winners.append(ours)
    return winners


def main() -> int:
    """Measure and print; the exit status is 1 if a network is behind a rival."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/")
    parser.add_argument("--log", action="append", choices=LOGS, help="only this log; may be repeated")
    parser.add_argument("--side", action="append", choices=[*OURS, *RIVALS], help="only this side; may be repeated")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    public = public_logs(options.data) if options.data else ()
    logs = [log for log in (*public, sample_log()) if log.name in (options.log or LOGS)]
    print(machine())
    print(f"  {'':20}{'AUC':>9}{'NE':>17}{'calibration':>17}{'each':>18}")
    behind = []
    for log in logs:
        found = measure(log, options.side or [*OURS, *RIVALS], options.seeds)
        behind += [f"{name} on {log.name}" for name in OURS if name in found and name not in ahead(found)]
    print("\nnot ahead of both by more than the spread: " + (", ".join(behind) or "none"))
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
