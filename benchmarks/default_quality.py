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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import MADE_UP, QualityLog, public_logs
from trainer.config import TrainConfig
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.model.metrics import normalized_entropy
from trainer.reading.columns import DecodedFragment, decode
from trainer.runs.identity import in_time_order
from trainer.serving.trained import load_trained
from trainer.training.choosing import choose_config
from trainer.training.loop import train
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution, register_table, submit_model
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution


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
    log.write(folder / "log")
    with Warehouse.open(WarehouseConfig(home=str(folder / "home"))) as warehouse:
        register_table(warehouse, log.table, str(folder / "log"), time_column="time")
        model = log.model()
        submit_model(warehouse, model, table=log.table)
        starts = [part.start for part in in_time_order(read_solution(warehouse, model.name))]
        end = starts[min(len(starts) - 1, max(1, round(len(starts) * (1 - log.test_share))))]
        older, newer = read_solution(warehouse, model.name, end=end), read_solution(warehouse, model.name, start=end)

        def read(solution: ReadSolution) -> Any:
            return lambda fragment: read_fragment(warehouse.storage, solution, fragment)

        began = time.monotonic()
        config = choose_config(older, read(older), {}, run_dir=str(folder / "run"))
        train(older, read(older), config)
        secs = time.monotonic() - began
        scores = load_trained(str(folder / "run")).evaluate(newer, read(newer))
        layout = lay_out([TypedInput(item.name, item.type) for item in older.inputs], TrainConfig("run"))
        trained, tested = (_decoded(solution, layout, read(solution)) for solution in (older, newer))
    began = time.monotonic()
    labels, rivals = _rival(layout, trained, tested)
    sklearn_secs = time.monotonic() - began
    rate = np.full(len(labels), np.concatenate([part.labels for part in trained]).mean())
    assert scores.normalized_entropy is not None, "the test has one label only"
    return Outcome(older.rows, newer.rows, int(labels.sum()), normalized_entropy(labels, rate), scores.normalized_entropy,
                   normalized_entropy(labels, rivals), secs, sklearn_secs, config)  # fmt: skip


def _decoded(solution: ReadSolution, layout: InputLayout, read: Any) -> list[DecodedFragment]:
    fragments: list[SolutionFragment] = [one for part in in_time_order(solution) for one in part.fragments]
    return [decode(read(fragment), layout, fragment.path) for fragment in fragments]


def _rival(
    layout: InputLayout, trained: Sequence[DecodedFragment], tested: Sequence[DecodedFragment]
) -> tuple[np.ndarray, np.ndarray]:
    """The test labels, and scikit-learn's probabilities for them."""
    ids, dense, labels = _matrix(layout, trained)
    test_ids, test_dense, test_labels = _matrix(layout, tested)
    if dense.shape[1]:
        scaler = StandardScaler().fit(dense)
        ids = sp.hstack([ids, sp.csr_matrix(scaler.transform(dense))]).tocsr()
        test_ids = sp.hstack([test_ids, sp.csr_matrix(scaler.transform(test_dense))]).tocsr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the default limit of iterations
        fitted = LogisticRegression().fit(ids, labels)
    return test_labels, fitted.predict_proba(test_ids)[:, 1]


def _matrix(layout: InputLayout, parts: Sequence[DecodedFragment]) -> tuple[Any, np.ndarray, np.ndarray]:
    blocks = []
    rows = sum(part.rows for part in parts)
    for f, item in enumerate(layout.embedded):
        ids = np.concatenate([part.ids[f] for part in parts])
        lengths = np.concatenate([np.diff(part.offsets[f]) for part in parts])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        block = sp.csr_matrix((np.ones(len(ids)), ids, starts), shape=(rows, item.type.buckets))
        block.sum_duplicates()
        blocks.append(block)
    dense = np.concatenate([part.dense for part in parts]).astype(np.float64)
    return sp.hstack(blocks).tocsr(), dense, np.concatenate([part.labels for part in parts])


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
