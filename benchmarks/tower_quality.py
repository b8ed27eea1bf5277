"""AUC of DLRM and DCN-v2 with modules of towers, at several ratios of compression, against the model without them.

    python -m benchmarks.tower_quality [--data FOLDER] [--logs NAME ...] [--networks NAME ...] [--ratios N ...] [--shapes C,P,D ...] [--seeds N] [--count N]
                                       [--modules projection combination] [--strategies diverse coherent] [--towers FILE ...] [--rows N] [--results FILE]

Each log is trained once in time order with the same options and seeds, and tested on its newest partitions; ``planted`` is made here: pairs of ids
interact in it. The network has no linear part beside it, embeddings of 16 columns, and the rates of ``_RATES``; batches and scaling are chosen from the
data. Towers are strided, every n-th input in one of ``--count`` towers; those of each of ``--strategies``, by two DLRMs that are trained for this, as
`headrace towers make` does; and those of each ``--towers`` file of that command. The table gives the mean AUC, the mean difference from the plain
model with its deviation over the seeds, the p-value of a paired t-test, and against strided towers of the same ratio that of another one.
P-values are of single comparisons; the last line of a log says which differences stay with Holm's correction for all of them.

``--shapes`` are modules of DLRM as the paper writes them: c vectors of D columns for each input of a tower, and p that are linear in all columns of the tower. With
``0,1,16`` a tower is one vector, so that two of its inputs interact in no dot product. ``--results`` keeps each finished training in a file: a script that is
started again trains the others only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.comparisons import Comparisons
from benchmarks.support.harness import machine
from benchmarks.support.kept_results import KeptResults, training_key
from benchmarks.support.planted_logs import paired_ids
from benchmarks.support.quality_logs import QualityLog, draw_labels, public_logs, write_hours
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
from trainer.serving.interaction_probe import probe_interactions
from trainer.serving.trained import load_trained
from trainer.tables.spec import FeatureSpec
from transforms.expressions.expression import int64
from transforms.expressions.model import Model

_LOGS = ("planted", "globo", "movielens", "criteo")
_HOURS = 100
_NETWORKS = ("dlrm", "dcn")
_STRATEGIES = ("diverse", "coherent")
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
    log: str, scene: QualityScene, features: Sequence[FeatureSpec], options: argparse.Namespace, kept: KeptResults
) -> dict[str, Towers]:
    """Towers of each strategy, by the interactions in two DLRMs that are trained for them."""
    if not options.strategies:
        return {}
    count = min(options.count, len(features))

    def probe() -> dict[str, Any]:
        own = [
            TowerFeature(one.name, one.table.name, 4 * one.table.vocabulary_size * one.table.dim, 1.0)
            for one in features
        ]
        probed = probe_interactions(
            scene.older,
            scene.read(scene.older),
            {"dim": _DIM},
            most_trained=scene.older.rows,
            most_sampled=_SAMPLED_EVENTS,
        )
        towers = {
            one: make_towers(own, count, strategy=one, interactions=probed.interactions).towers for one in _STRATEGIES
        }
        agreement = probed.agreement
        return {"towers": towers, "agreement": [agreement.correlation, agreement.chance, agreement.floor]}

    found = kept.get({"log": log, "events": scene.older.rows, "dim": _DIM, "towers": count}, probe)
    correlation, chance, floor = found["agreement"]
    print(f"  two probes agree by r = {correlation:.2f}, chance {chance:.3f}, unrelated features have {floor:.3f}")
    return {f"{one} {options.count}": tuple(map(tuple, found["towers"][one])) for one in options.strategies}


def planted(rows: int, seed: int = 11) -> QualityLog:
    """A log of 16 ids, of which two each interact."""
    source = np.random.default_rng(seed)
    columns, logits, _ = paired_ids(source, rows)
    labels = draw_labels(logits, source)

    def write(folder: Path) -> None:
        times = np.arange(rows) * (3600 * _HOURS / rows)
        write_hours(folder, times, {**{name: values for name, (_, values) in columns.items()}, "clicked": labels})

    def model() -> Model:
        made = Model("pairs", client="quality", label="clicked")
        for name in columns:
            made.input(name, int64(name).hash_buckets(200))
        return made

    return QualityLog("planted", write, model)


def modules(network: str, options: argparse.Namespace) -> list[tuple[str, dict[str, object]]]:
    """The options of all modules of a network, beside their towers, and what tells those of equal ratios apart."""
    if network == "dcn":
        return [("", {"compression": ratio}) for ratio in options.ratios]
    found: list[tuple[str, dict[str, object]]] = [
        (f"{one}, ", {"module": one, "compression": ratio}) for one in options.modules for ratio in options.ratios
    ]
    return found + [(f"c {c}, p {p}, D {d}, ", {"combinations": c, "projections": p, "dim": d}) for c, p, d in options.shapes]  # fmt: skip


def shape(text: str) -> tuple[int, int, int]:
    """The numbers of ``--shapes``. Raises :class:`ValueError`."""
    c, p, d = map(int, text.split(","))
    return c, p, d


def _auc(kept: KeptResults, log: str, scene: QualityScene, config: TrainConfig, folder: Path) -> float:
    """The AUC of a training on the newest partitions."""

    def found() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as run_dir:
            train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir))
            auc = load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer)).auc
        assert auc is not None
        return auc

    return float(kept.get(training_key(log, config, scene.older.rows, scene.newer.rows), found))


def _measure(log: QualityLog, network: str, options: argparse.Namespace) -> None:
    """Train the plain model and those with towers, and print their differences."""
    kept = KeptResults(options.results)
    with tempfile.TemporaryDirectory() as made, quality_scene(log, Path(made)) as scene:
        folder = Path(made)
        given = {"network": network, "deep": True, "linear": False, "passes": 1, "dim": _DIM, **_RATES}
        config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(folder / "chosen"))
        inputs = [TypedInput(item.name, item.type) for item in scene.older.inputs]
        features = lay_out(inputs, config).features
        kinds = {f"strided {options.count}": strided([one.name for one in features], options.count)}
        print(
            f"{log.name}, {network}: {len(features)} embedded inputs, {scene.older.rows:,} events trained, {scene.newer.rows:,} tested",
            flush=True,
        )
        kinds |= by_interactions(log.name, scene, features, options, kept)
        kinds |= {file.name: towers_in(file) for file in options.towers}

        def trained(config: TrainConfig) -> list[float]:
            return [_auc(kept, log.name, scene, replace(config, seed=seed), folder) for seed in range(options.seeds)]

        plain = trained(config)
        print(
            f"  {'plain':24} AUC {statistics.mean(plain):.5f} +- {statistics.stdev(plain):.5f} over {len(plain)} seeds",
            flush=True,
        )
        of_strided: dict[str, list[float]] = {}
        comparisons = Comparisons()
        for kind, towers in kinds.items():
            if kind != next(iter(kinds)):
                print(f"  {kind}: " + " | ".join(" ".join(tower) for tower in towers), flush=True)
            for label, chosen in modules(network, options):
                compressed = replace(config, tower_modules={"towers": towers, **chosen})
                shapes = tower_shapes(features, compressed)
                assert shapes is not None
                found = trained(compressed)
                module = json.dumps(chosen)
                name = f"{kind}, {label}ratio {shapes.compression:.3g}"
                _print(comparisons, name, plain, found, of_strided.get(module))
                of_strided.setdefault(module, found)
        print(f"  {comparisons.summary}", flush=True)


def _print(
    comparisons: Comparisons, name: str, plain: Sequence[float], found: Sequence[float], strided: Sequence[float] | None
) -> None:
    """Print a row, whose comparisons count among those of the log."""
    chance, against = comparisons.chance(f"{name} against plain", found, plain), ""
    if strided is not None:
        gain = statistics.mean(found) - statistics.mean(strided)
        p = comparisons.chance(f"{name} against strided", found, strided)
        against = f"; against strided {gain:+.5f}, p = {p:.3f}"
    differences = [own - other for own, other in zip(found, plain, strict=True)]
    print(
        f"  {name:40} AUC {statistics.mean(found):.5f}, difference {statistics.mean(differences):+.5f} +- {statistics.stdev(differences):.5f}, p = {chance:.3f}{against}",
        flush=True,
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/, criteo/")
    parser.add_argument("--logs", nargs="+", choices=_LOGS, help="default: all of --data, and the planted one")
    parser.add_argument("--rows", type=int, default=200_000, help="of the planted log")
    parser.add_argument(
        "--modules", nargs="+", choices=("projection", "combination"), default=["projection"], help="of DLRM"
    )
    parser.add_argument("--networks", nargs="+", choices=_NETWORKS, default=list(_NETWORKS))
    parser.add_argument("--ratios", type=float, nargs="*", default=list(_RATIOS))
    parser.add_argument("--shapes", type=shape, nargs="*", default=[], help="C,P,D of modules of DLRM, beside --ratios")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4, help="of strided towers")
    parser.add_argument(
        "--strategies",
        nargs="*",
        choices=_STRATEGIES,
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
    parser.add_argument("--results", type=Path, help="a file that keeps finished trainings")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error(f"--seeds must be at least 2, which differences are compared over, got {options.seeds}")
    logs = {one.name: one for one in (planted(options.rows), *(public_logs(options.data) if options.data else ()))}
    if missing := [name for name in options.logs or () if name not in logs]:
        parser.error(f"--data must be given for {', '.join(missing)}")
    print(machine())
    for log in (logs[name] for name in options.logs or _LOGS if name in logs):
        for network in options.networks:
            _measure(log, network, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
