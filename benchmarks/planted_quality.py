"""AUC of training without options on logs whose labels come from products of inputs, beside boosted trees and hand-tuned networks.

    python -m benchmarks.planted_quality [--log NAME ...] [--rows N] [--seeds N]

A label's log odds are a product of hidden vectors of two ids, of three, of an id and a number, or of an id and the mean of a list's items
(:mod:`benchmarks.support.planted_logs`). The last fifth of the events, in time order, is the test set. Boosted trees have each id as a category,
and a list as a count of each item. The hand-tuned side has three settings of networks, once and twice over the events, of which the one counts
that is best on the *test* set, so it is favoured. ``odds``: the AUC of the true odds, which no model can pass but by chance.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.support.harness import machine
from benchmarks.support.planted_logs import PLANTED, Columns
from benchmarks.support.quality_logs import QualityLog, draw_labels, write_hours
from benchmarks.support.quality_scene import QualityScene, quality_scene
from trainer.model.metrics import auc
from trainer.options.config import TrainConfig
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.serving.trained import load_trained
from transforms.expressions.expression import float32, int64, ragged
from transforms.expressions.model import Model
from transforms.types import DType, Ragged

Array = np.ndarray[Any, np.dtype[Any]]

#: The most that training without options may be below the better one of trees and hand-tuned networks.
TARGET = 0.01
_TEST_SHARE, _BUCKETS, _HOURS = 0.2, 1000, 100
#: Settings of networks beside a linear part.
_BY_HAND: tuple[Mapping[str, Any], ...] = (
    {"network": "dlrm", "embedding_learning_rate": 0.05, "dense_learning_rate": 0.01},
    {"network": "dcn", "embedding_learning_rate": 0.05, "dense_learning_rate": 0.01, "embedding_initial_stddev": 0.25},
    {"network": "fm", "embedding_learning_rate": 0.05, "dense_learning_rate": 0.01, "embedding_initial_stddev": 0.1},
)
_OF_ALL = {"linear": True, "deep": True, "linear_learning_rate": 0.05, "calibration": "none"}


@dataclass(frozen=True, slots=True)
class PlantedOutcome:
    """AUC on the test events.

    Attributes:
        odds: of the true log odds.
        trees, by_hand, ours: of the three sides.
        config: the options that ours chose.
    """

    odds: float
    trees: float
    by_hand: float
    ours: float
    config: TrainConfig

    @property
    def behind(self) -> float:
        """How far ours is below the better one of the others."""
        return max(self.trees, self.by_hand) - self.ours


def measure(kind: str, rows: int, seed: int, folder: Path) -> PlantedOutcome:
    """All sides on one log, drawn with a seed."""
    source = np.random.default_rng(seed)
    columns, odds = PLANTED[kind](source, rows)
    drawn = draw_labels(odds, source)
    labels, tested = np.asarray(drawn), rows - round(rows * _TEST_SHARE)

    def write(place: Path) -> None:
        arrays = {name: values for name, (_, values) in columns.items()}
        write_hours(place, np.arange(rows) * (3600 * _HOURS / rows), {**arrays, "clicked": drawn})

    with quality_scene(QualityLog(kind, write, lambda: _model(columns), _TEST_SHARE), folder) as scene:
        config = choose_config(scene.older, scene.read(scene.older), {"seed": seed}, run_dir=str(folder / "ours"))
        ours = _trained(scene, config)
        by_hand = [_trained(scene, replace(config, **_OF_ALL, **options, passes=passes, trial=(), run_dir=str(folder / f"hand-{k}-{passes}")))
                   for k, options in enumerate(_BY_HAND) for passes in (1, 2)]  # fmt: skip
    return PlantedOutcome(
        auc(labels[tested:], odds[tested:]), _trees(columns, labels, tested), max(by_hand), ours, config
    )


def _model(columns: Columns) -> Model:
    made = Model("planted", client="quality", label="clicked")
    for name, (kind, _) in columns.items():
        if isinstance(kind, Ragged):
            made.input(name, ragged(name, "int64").hash_buckets(_BUCKETS))
        else:
            made.input(name, float32(name) if kind.dtype is DType.FLOAT32 else int64(name).hash_buckets(_BUCKETS))
    return made


def _trained(scene: QualityScene, config: TrainConfig) -> float:
    train(scene.older, scene.read(scene.older), config)
    found = load_trained(config.run_dir).evaluate(scene.newer, scene.read(scene.newer)).auc
    assert found is not None, "the test has one label only"
    return found


def _trees(columns: Columns, labels: Array, tested: int) -> float:
    features: list[Array] = []
    categories: list[bool] = []
    for kind, values in columns.values():
        if isinstance(kind, Ragged):
            features.append(_item_counts(values))
            categories += [False] * features[-1].shape[1]
        else:
            is_number = kind.dtype is DType.FLOAT32
            codes = np.asarray(values) if is_number else np.unique(values, return_inverse=True)[1]
            features.append(codes.astype(np.float64)[:, None])
            categories.append(not is_number)
    table = np.hstack(features)
    model = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, categorical_features=categories, random_state=0)  # fmt: skip
    model.fit(table[:tested], labels[:tested])
    return auc(labels[tested:], model.decision_function(table[tested:]))


def _item_counts(lists: Any) -> Array:
    """How often each item is in each list."""
    offsets = np.asarray(lists.offsets)
    _, codes = np.unique(np.asarray(lists.values), return_inverse=True)
    found = np.zeros((len(lists), codes.max(initial=0) + 1))
    np.add.at(found, (np.repeat(np.arange(len(lists)), np.diff(offsets)), codes), 1)
    return found


def _line(kind: str, found: Sequence[PlantedOutcome]) -> str:
    sides = ("odds", "trees", "by_hand", "ours", "behind")
    means = (statistics.mean(getattr(one, side) for one in found) for side in sides)
    return f"{kind:14}" + "".join(f"{mean:10.4f}" for mean in means)


def main() -> int:
    """Measure and print; the exit status is 1 if Headrace misses the target on a log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", action="append", choices=list(PLANTED), help="only this log; may be repeated")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    print(f"{'log':14}{'odds':>10}{'trees':>10}{'by hand':>10}{'Headrace':>10}{'behind':>10}   AUC, means of {options.seeds} seeds", flush=True)  # fmt: skip
    missed = []
    for kind in options.log or PLANTED:
        found = []
        for seed in range(100, 100 + options.seeds):
            with tempfile.TemporaryDirectory() as name:
                found.append(measure(kind, options.rows, seed, Path(name)))
        print(_line(kind, found), flush=True)
        for one in found:
            chosen = next((row.name for row in one.config.trial if row.is_chosen), "no trial")
            print(f"{'':14}{chosen}; {one.config.passes} passes, batches of {one.config.batch_rows}")
        if statistics.mean(one.behind for one in found) > TARGET:
            missed.append(kind)
    print(f"\nmore than {TARGET} behind the better one of trees and hand-tuned networks: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
