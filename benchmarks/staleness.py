"""Training with a staleness of 1 against 0: samples a second, and quality.

    python -m benchmarks.staleness [--speed] [--quality --data FOLDER] [--staleness N ...] [--logs NAME ...] [--seeds N] [--rounds N]

Speed: a model whose dense part takes about as long as its table work, which is measured first, trains the same batches in both ways,
alternately, each part with one thread. Quality: DLRM trains each log with each staleness and without one, with the same options and seeds; the
table gives the updates of its own row that a looked-up id missed, and the mean differences of AUC and normalized entropy on the newest
partitions, with their standard errors over seeds and a paired t-test's p-value. Above it stands what ``"staleness": "auto"`` takes. ``--data`` holds
the public logs. Without an option both parts run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.comparisons import Comparisons
from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import QualityLog, public_logs, sample_log
from benchmarks.support.quality_scene import quality_scene
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.options.config import TrainConfig
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.run.reading.batches import Batch
from trainer.run.weights.run_state import Weights, build_weights
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.serving.trained import load_trained
from trainer.tables.batches import IdBatch
from trainer.tables.routes.cpu_engine import CpuEngine
from transforms.types import DType, Ragged

TARGET = 1.5
_FEATURES, _BUCKETS, _DIM, _ROWS, _VALENCY, _BATCHES = 16, 200_000, 32, 1024, 20, 8
_STEPS = 40


@dataclass(frozen=True, slots=True)
class _Times:
    tables_secs: float
    dense_secs: float


def _layout(config: TrainConfig) -> InputLayout:
    return lay_out([TypedInput(f"f{k}", Ragged(DType.INT64, _BUCKETS)) for k in range(_FEATURES)], config)


def _weights(top_mlp: tuple[int, ...]) -> Weights:
    config = TrainConfig("unused", batch_rows=_ROWS, dim=_DIM, bottom_mlp=(), top_mlp=top_mlp, threads=1)
    weights = build_weights(_layout(config), config)
    return Weights(
        weights.layout, CpuEngine(weights.layout.features, seed=0, threads=1), weights.dense, weights.head, None
    )


def _batches() -> list[Batch]:
    rng, found = np.random.default_rng(0), []
    for _ in range(_BATCHES):
        ids = ((rng.zipf(1.2, _FEATURES * _ROWS * _VALENCY) - 1) % _BUCKETS).astype(np.int32)
        starts = np.arange(_FEATURES)[:, None] * _ROWS * _VALENCY
        offsets = starts + np.arange(_ROWS + 1)[None] * _VALENCY
        bags = IdBatch(ids, offsets.astype(np.int64), None, (_BUCKETS,) * _FEATURES)
        labels = (rng.random(_ROWS) < 0.3).astype(np.float32)
        found.append(Batch(_ROWS, bags, np.zeros((_ROWS, 0), np.float32), labels, np.ones(_ROWS, np.float32), ()))
    return found


def _times(weights: Weights, batches: list[Batch]) -> _Times:
    """The median seconds of the parts of a step."""
    tables, dense = [], []
    for batch in batches:
        weights.train(batch)  # rows are touched for the first time
    for batch in [*batches, *batches]:
        marks = [time.perf_counter()]
        looked_up = weights.look_up(batch)
        marks.append(time.perf_counter())
        step = weights.differentiate(batch, looked_up)
        marks.append(time.perf_counter())
        weights.update_tables(batch, weights.apply_dense(batch, step))
        marks.append(time.perf_counter())
        tables.append(marks[1] - marks[0] + marks[3] - marks[2])
        dense.append(marks[2] - marks[1])
    return _Times(statistics.median(tables), statistics.median(dense))


def _balanced(batches: list[Batch]) -> tuple[int, ...]:
    """The hidden widths whose dense part takes about as long as the tables."""
    for width in range(128, 4096, 64):
        times = _times(_weights((width, width)), batches)
        if times.dense_secs >= 0.95 * times.tables_secs:
            break
    print(
        f"  tables {times.tables_secs * 1e3:.1f} ms, dense part {times.dense_secs * 1e3:.1f} ms a step with layers of {width}"
    )
    return width, width


def _steps_per_sec(weights: Weights, batches: list[Batch], staleness: int) -> float:
    with StepPipeline(weights, staleness) as steps:
        began = time.perf_counter()
        for number in range(_STEPS):
            steps.train(batches[number % len(batches)])
        steps.drain()
    return _STEPS / (time.perf_counter() - began)


def measure_speed(rounds: int) -> float:
    """Print both sides; returns the median ratio of a round."""
    batches = _batches()
    top_mlp = _balanced(batches)
    sides = {staleness: _weights(top_mlp) for staleness in (0, 1)}
    ratios = []
    for number in range(rounds + 1):
        rates = {staleness: _steps_per_sec(weights, batches, staleness) * _ROWS for staleness, weights in sides.items()}
        if number:  # the first round compiles
            ratios.append(rates[1] / rates[0])
            print(f"  round {number}: {rates[0]:,.0f} and {rates[1]:,.0f} samples/s, {ratios[-1]:.2f}x", flush=True)
    ratio = statistics.median(ratios)
    print(f"  staleness 1 trains {ratio:.2f}x the samples of staleness 0 (target {TARGET}x)")
    return ratio


def measure_quality(log: QualityLog, seeds: int, stale: Sequence[int]) -> None:
    """Train with each staleness and each seed, and print what it misses and the differences to a staleness of 0, paired by seed."""
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        given = {"network": "dlrm", "deep": True}
        read = scene.read(scene.older)
        auto = choose_config(scene.older, read, {**given, "staleness": "auto"}, run_dir=str(Path(folder) / "chosen"))
        print(f'  {log.name}: "auto" takes {auto.staleness}: {auto.chosen["staleness"]}', flush=True)
        found: dict[int, list[dict[str, float]]] = {one: [] for one in (0, *stale)}
        for seed in range(seeds):
            for staleness, results in found.items():
                run_dir = Path(folder) / f"{staleness}-{seed}"
                config = replace(auto, run_dir=str(run_dir), seed=seed, staleness=staleness)
                missed = train(scene.older, read, config).staleness.rows.mean
                scores = load_trained(str(run_dir)).evaluate(scene.newer, scene.read(scene.newer))
                results.append(
                    {
                        "missed": missed,
                        "auc": float(scores.auc or 0),
                        "normalized entropy": float(scores.normalized_entropy or 0),
                    }
                )
                shutil.rmtree(run_dir)
        comparisons = Comparisons()
        for staleness in stale:
            print(f"  {log.name:10} staleness {staleness:2}, an id misses {_mean(found[staleness], 'missed'):6.3f} updates of its row: "
                  + "; ".join(_difference(comparisons, staleness, name, found[0], found[staleness]) for name in ("auc", "normalized entropy")), flush=True)  # fmt: skip
        print(f"  {log.name:10} {comparisons.summary}", flush=True)


def _mean(results: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.mean(one[name] for one in results)


def _difference(
    comparisons: Comparisons,
    staleness: int,
    name: str,
    serial: Sequence[Mapping[str, float]],
    stale: Sequence[Mapping[str, float]],
) -> str:
    pairs = [(one[name], other[name]) for one, other in zip(serial, stale, strict=True)]
    differences = [other - one for one, other in pairs]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    p = comparisons.chance(f"{name} of staleness {staleness}", *zip(*pairs, strict=True))
    return f"{name} {_mean(serial, name):.4f} {statistics.mean(differences):+.5f} ± {error:.5f} (p = {p:.2f})"


def main() -> int:
    """Measure and print; the exit status is 1 below the target of speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/")
    parser.add_argument("--staleness", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--logs", nargs="+", help="names of the logs of --quality; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    both = not (options.speed or options.quality)
    print(machine())
    ratio = measure_speed(options.rounds) if options.speed or both else TARGET
    if options.quality or both:
        for log in (*(public_logs(options.data) if options.data else ()), sample_log()):
            if not options.logs or log.name in options.logs:
                measure_quality(log, options.seeds, options.staleness)
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
