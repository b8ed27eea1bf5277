"""Trainings whose rows and gradients pass through the 16-bit encoding of the wire, in one process."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.stats import ttest_rel

from benchmarks.support.quality_logs import QualityLog
from benchmarks.support.quality_scene import quality_scene
from trainer.embedding.engine import EmbeddingEngine
from trainer.embedding.exchange import OneHost
from trainer.embedding.partitioned.sharded_tables import ShardedTables
from trainer.embedding.spec import FeatureSpec
from trainer.embedding.wire import value_blocks
from trainer.serving.trained import load_trained
from trainer.training import run_state
from trainer.training.choosing import choose_config
from trainer.training.loop import train

Array = np.ndarray[Any, np.dtype[Any]]


class Fp16Host(OneHost):
    """One host whose float32 arrays, the rows that it fetches and their summed gradients, are encoded and decoded on their way."""

    def __init__(self, block: int) -> None:
        self._block = block

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """What this host sends to itself, after the wire."""
        return [[self._sent(one) if one.dtype == np.float32 else one for one in parts[0]]]

    def _sent(self, values: Array) -> Array:
        buffer = np.empty(value_blocks.encoded_bytes(len(values), self._block), np.uint8)
        received = np.empty_like(values)
        value_blocks.encode(values, buffer, self._block)
        value_blocks.decode(buffer, received, self._block)
        return received


@contextmanager
def _fp16_tables(block: int) -> Iterator[None]:
    """Trainings have tables behind the wire; those of the linear part too."""

    def engine(features: Sequence[FeatureSpec], seed: int, plan: Any) -> EmbeddingEngine:
        return ShardedTables(features, seed=seed, exchange=Fp16Host(block))

    with mock.patch.object(run_state, "_engine_of", engine):
        yield


def measure_quality(log: QualityLog, seeds: int, block: int = value_blocks.BLOCK_VALUES) -> None:
    """Train DLRM with each seed both ways, in time order, and print the differences on the newest partitions."""
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        given = {"network": "dlrm", "deep": True}
        config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(Path(folder) / "chosen"))
        print(f"{log.name}: {scene.older.rows:,} trained events, {scene.newer.rows:,} tested", flush=True)
        found: dict[str, list[Any]] = {"float32": [], "fp16": []}
        for seed in range(seeds):
            for values, results in found.items():
                run_dir = str(Path(folder) / f"{values}-{seed}")
                with _fp16_tables(block) if values == "fp16" else nullcontext():
                    train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir, seed=seed))
                results.append(load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer)))
            print(f"  seed {seed}: AUC {found['float32'][-1].auc:.5f} and {found['fp16'][-1].auc:.5f}", flush=True)
        for name in ("auc", "normalized_entropy"):
            _print_differences(name, *([getattr(one, name) for one in results] for results in found.values()))


def _print_differences(name: str, plain: list[float], encoded: list[float]) -> None:
    differences = [b - a for a, b in zip(plain, encoded, strict=True)]
    mean, spread = statistics.mean(differences), statistics.stdev(differences) if len(differences) > 1 else 0.0
    p = float(ttest_rel(plain, encoded).pvalue) if len(differences) > 1 else float("nan")
    print(f"  {name:20} float32 {statistics.mean(plain):.5f} +- {statistics.stdev(plain) if len(plain) > 1 else 0:.5f}, "
          f"fp16 {statistics.mean(encoded):.5f}; difference {mean:+.6f} +- {spread:.6f}, p = {p:.2f}", flush=True)  # fmt: skip
