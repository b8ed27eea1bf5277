"""AUC of DLRM and DCN-v2 with modules of towers, at several ratios of compression, against the model without them.

    python -m benchmarks.tower_quality --data FOLDER [--logs NAME ...] [--networks NAME ...] [--ratios N ...] [--seeds N] [--count N]
                                       [--strategies diverse coherent] [--towers FILE ...]

Each log is trained once in time order with the same options and seeds, and tested on its newest partitions. The network has no linear part beside it,
embeddings of 16 columns, and the rates of ``_RATES``; batches and scaling are chosen from the data. Towers are strided, every n-th input in one of ``--count`` towers; those of each
of ``--strategies``, by the interactions in a plain model of another seed, as `headrace towers make` makes them; and those of each ``--towers`` file of that command. The table gives the
mean AUC, the mean difference from the plain model with its deviation over the seeds, the p-value of a paired t-test, and against strided towers of the same ratio that of a Mann-Whitney test.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from scipy.stats import mannwhitneyu, ttest_rel

from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import QualityLog, public_logs
from benchmarks.support.quality_scene import QualityScene, quality_scene
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.tower_shapes import tower_shapes
from trainer.options.config import TrainConfig
from trainer.options.towers import Towers
from trainer.planning.towers.partitioner import make_towers
from trainer.planning.towers.tower_document import read_towers
from trainer.planning.towers.tower_plan import TowerFeature
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.serving.feature_interactions import sample_interactions
from trainer.serving.trained import load_trained
from trainer.tables.spec import FeatureSpec

_LOGS = ("globo", "movielens", "criteo")
_NETWORKS = ("dlrm", "dcn")
_RATIOS = (2, 4, 8, 16)
_DIM = 16
_SAMPLED_EVENTS = 10_000
_RATES = {"embedding_learning_rate": 0.02, "dense_learning_rate": 0.003}


def strided(names: Sequence[str], count: int) -> Towers:
    """Every ``count``-th input in one tower."""
    return tuple(tuple(names[t::count]) for t in range(min(count, len(names))))


def towers_in(file: Path) -> Towers:
    """The towers that ``headrace towers make --output`` has written to a file. Raises :class:`ConfigError`."""
    return read_towers(file.read_bytes(), str(file)).towers


def by_interactions(
    scene: QualityScene, config: TrainConfig, features: Sequence[FeatureSpec], strategies: Sequence[str], count: int, folder: Path
) -> dict[str, Towers]:  # fmt: skip
    """Towers of each strategy, by the interactions in a model that is trained for them."""
    if not strategies:
        return {}
    own = [
        TowerFeature(one.name, one.table.name, 4 * one.table.vocabulary_size * one.table.dim, 1.0) for one in features
    ]
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir))
        found = sample_interactions(load_trained(run_dir), scene.older, scene.read(scene.older), _SAMPLED_EVENTS)
    return {
        f"{one} {count}": make_towers(own, min(count, len(own)), strategy=one, interactions=found).towers
        for one in strategies
    }


def _auc(scene: QualityScene, config: TrainConfig, folder: Path) -> float:
    """The AUC of a training on the newest partitions."""
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir))
        auc = load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer)).auc
    assert auc is not None
    return auc


def _measure(log: QualityLog, network: str, options: argparse.Namespace) -> None:
    """Train the plain model and those with towers, and print their differences."""
    with tempfile.TemporaryDirectory() as made, quality_scene(log, Path(made)) as scene:
        folder = Path(made)
        given = {"network": network, "deep": True, "linear": False, "passes": 1, "dim": _DIM, **_RATES}
        config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(folder / "chosen"))
        inputs = [TypedInput(item.name, item.type) for item in scene.older.inputs]
        features = lay_out(inputs, config).features
        kinds = {f"strided {options.count}": strided([one.name for one in features], options.count)}
        other = replace(config, seed=options.seeds)
        kinds |= by_interactions(scene, other, features, options.strategies, options.count, folder)
        kinds |= {file.name: towers_in(file) for file in options.towers}
        print(
            f"{log.name}, {network}: {len(features)} embedded inputs, {scene.older.rows:,} events trained, {scene.newer.rows:,} tested",
            flush=True,
        )
        plain = [_auc(scene, replace(config, seed=seed), folder) for seed in range(options.seeds)]
        print(
            f"  {'plain':24} AUC {statistics.mean(plain):.5f} +- {_deviation(plain):.5f} over {len(plain)} seeds",
            flush=True,
        )
        of_strided: dict[float, list[float]] = {}
        for kind, towers in kinds.items():
            if kind != next(iter(kinds)):
                print(f"  {kind}: " + " | ".join(" ".join(tower) for tower in towers), flush=True)
            for ratio in options.ratios:
                compressed = replace(config, tower_modules={"towers": towers, "compression": ratio})
                shapes = tower_shapes(features, compressed)
                assert shapes is not None
                found = [_auc(scene, replace(compressed, seed=seed), folder) for seed in range(options.seeds)]
                _print(f"{kind}, ratio {shapes.compression:.3g}", plain, found, of_strided.get(ratio))
                of_strided.setdefault(ratio, found)


def _print(name: str, plain: Sequence[float], found: Sequence[float], strided: Sequence[float] | None) -> None:
    differences = [own - other for own, other in zip(found, plain, strict=True)]
    p = f"{ttest_rel(found, plain).pvalue:.3f}" if len(plain) > 1 else "none"
    against = ""
    if strided is not None:
        gain = statistics.mean(found) - statistics.mean(strided)
        against = f"; against strided {gain:+.5f}, Mann-Whitney p = {mannwhitneyu(found, strided).pvalue:.3f}"
    print(
        f"  {name:24} AUC {statistics.mean(found):.5f}, difference {statistics.mean(differences):+.5f} +- {_deviation(differences):.5f}, p = {p}{against}",
        flush=True,
    )


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public logs: globo/, ml1m/, criteo/")
    parser.add_argument("--logs", nargs="+", choices=_LOGS, default=list(_LOGS))
    parser.add_argument("--networks", nargs="+", choices=_NETWORKS, default=list(_NETWORKS))
    parser.add_argument("--ratios", type=float, nargs="+", default=list(_RATIOS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4, help="of strided towers")
    parser.add_argument(
        "--strategies",
        nargs="*",
        choices=("diverse", "coherent"),
        default=[],
        help="of the partitioner, beside strided towers",
    )
    parser.add_argument(
        "--towers",
        type=Path,
        nargs="*",
        default=[],
        help="files of `headrace towers make --output`, beside strided towers",
    )
    options = parser.parse_args()
    print(machine())
    for log in (one for one in public_logs(options.data) if one.name in options.logs):
        for network in options.networks:
            _measure(log, network, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
