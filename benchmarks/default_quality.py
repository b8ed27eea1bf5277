"""Quality of training with default options, compared with scikit-learn's logistic regression on the same inputs.

    python -m benchmarks.default_quality [--data FOLDER] [--log NAME ...]

The last share of each log's partitions, in time order, is the test set. Headrace trains without options and is evaluated on
the test set. LogisticRegression has default options and the same inputs: a column for every hashed id, standardised
numbers. Normalized entropy is the log loss divided by that of the test events' own mean rate; "train rate" is that of
predicting the training range's rate. ``--data`` holds the public logs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import MADE_UP, QualityLog, public_logs
from benchmarks.support.quality_scene import Events, quality_scene
from trainer.config import TrainConfig
from trainer.model.metrics import normalized_entropy
from trainer.serving.trained import load_trained
from trainer.training.choosing import choose_config
from trainer.training.loop import train


@dataclass(frozen=True, slots=True)
class Outcome:
    """Test normalized entropy of each side."""

    train_events: int
    test_events: int
    test_positives: int
    rate: float
    headrace: float
    sklearn: float
    secs: float
    sklearn_secs: float
    config: TrainConfig


def measure(log: QualityLog, folder: Path) -> Outcome:
    """Both sides on one log."""
    with quality_scene(log, folder) as scene:
        began = time.monotonic()
        run_dir = str(folder / "run")
        config = choose_config(scene.older, scene.read(scene.older), {}, run_dir=run_dir)
        train(scene.older, scene.read(scene.older), config)
        secs = time.monotonic() - began
        scores = load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer))
    began = time.monotonic()
    rivals = _rival(scene.trained, scene.tested)
    sklearn_secs = time.monotonic() - began
    labels = scene.tested.labels
    rate = np.full(len(labels), scene.trained.labels.mean())
    assert scores.normalized_entropy is not None, "the test has one label only"
    return Outcome(scene.older.rows, scene.newer.rows, int(labels.sum()), normalized_entropy(labels, rate), scores.normalized_entropy,
                   normalized_entropy(labels, rivals), secs, sklearn_secs, config)  # fmt: skip


def _rival(trained: Events, tested: Events) -> np.ndarray:
    """scikit-learn's probabilities of the tested events."""
    ids, test_ids = trained.one_hot(), tested.one_hot()
    if trained.dense.shape[1]:
        scaler = StandardScaler().fit(trained.dense)
        ids = sp.hstack([ids, sp.csr_matrix(scaler.transform(trained.dense))]).tocsr()
        test_ids = sp.hstack([test_ids, sp.csr_matrix(scaler.transform(tested.dense))]).tocsr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the default limit of iterations
        fitted = LogisticRegression().fit(ids, trained.labels)
    return np.asarray(fitted.predict_proba(test_ids)[:, 1])


def main() -> int:
    """Measure and print; the exit status is 1 if Headrace is worse than logistic regression or the training rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/, criteo/, obd/")
    parser.add_argument("--log", action="append", help="only this log; may be repeated")
    options = parser.parse_args()
    logs = [log for log in (*(public_logs(options.data) if options.data else ()), *MADE_UP)
            if not options.log or log.name in options.log]  # fmt: skip
    print(machine())
    print(f"{'log':13} {'train':>8} {'test':>7} {'clicks':>7} {'train rate':>10} {'sklearn':>8} {'Headrace':>8}"
          f" {'sklearn s':>9} {'Headrace s':>10}", flush=True)  # fmt: skip
    behind = []
    for log in logs:
        with tempfile.TemporaryDirectory() as name:
            found = measure(log, Path(name))
        print(f"{log.name:13} {found.train_events:8,} {found.test_events:7,} {found.test_positives:7,} {found.rate:10.4f}"
              f" {found.sklearn:8.4f} {found.headrace:8.4f} {found.sklearn_secs:9.1f} {found.secs:10.1f}", flush=True)  # fmt: skip
        print(
            f"{'':13} {found.config.chosen['deep']}; {found.config.passes} passes, batches of {found.config.batch_rows}"
        )
        if found.headrace > min(found.sklearn, found.rate):
            behind.append(log.name)
    print("\nbehind: " + (", ".join(behind) or "none"))
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
