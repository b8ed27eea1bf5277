"""Trainings whose rows and gradients pass through the encodings of the wire, in one process."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.stats import t

from benchmarks.support.comparisons import Comparisons
from benchmarks.support.quality_logs import QualityLog
from benchmarks.support.quality_scene import quality_scene
from trainer.options.config import TrainConfig
from trainer.run.choosing.choose import choose_config
from trainer.run.loop import train
from trainer.run.weights import run_state
from trainer.serving.trained import load_trained
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.spec import FeatureSpec
from trainer.tables.wire import fp14_blocks, fp16_blocks

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """An encoding of values: the bytes of so many, and functions that write values to a buffer and read them from it."""

    encoded_bytes: Callable[[int], int]
    encode: Callable[[Array, Array], None]
    decode: Callable[[Array, Array], None]


ENCODINGS = {
    "fp16": ValueEncoding(fp16_blocks.encoded_bytes, fp16_blocks.encode, fp16_blocks.decode),
    "fp14": ValueEncoding(fp14_blocks.encoded_bytes, fp14_blocks.encode, fp14_blocks.decode),
}


class EncodedHost(OneHost):
    """One host whose float32 arrays, the rows that it fetches and their summed gradients, are encoded and decoded on their way."""

    def __init__(self, encoding: ValueEncoding | None) -> None:
        self._encoding = encoding
        self.plain_bytes = self.sent_bytes = 0

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """What this host sends to itself, after the wire."""
        return [[self._sent(one) if one.dtype == np.float32 else one for one in parts[0]]]

    def _sent(self, values: Array) -> Array:
        self.plain_bytes += values.nbytes
        if self._encoding is None:
            self.sent_bytes += values.nbytes
            return values
        buffer, received = np.empty(self._encoding.encoded_bytes(len(values)), np.uint8), np.empty_like(values)
        self._encoding.encode(values, buffer)
        self._encoding.decode(buffer, received)
        self.sent_bytes += len(buffer)
        return received


@contextmanager
def _tables_behind(encoding: ValueEncoding | None) -> Iterator[list[EncodedHost]]:
    """Trainings have their tables behind a wire, those of the linear part too; gives the hosts as they are made."""
    hosts: list[EncodedHost] = []

    def engine(features: Sequence[FeatureSpec], config: TrainConfig, *_: Any) -> EmbeddingEngine:
        hosts.append(EncodedHost(encoding))
        return ShardedTables(features, seed=config.seed, exchange=hosts[-1])

    with mock.patch.object(run_state, "_engine_of", engine):
        yield hosts


def measure_quality(log: QualityLog, seeds: int) -> None:
    """Train DLRM with each seed and encoding, in time order, and print the differences on the newest partitions."""
    with tempfile.TemporaryDirectory() as folder, quality_scene(log, Path(folder)) as scene:
        given = {"network": "dlrm", "deep": True}
        config = choose_config(scene.older, scene.read(scene.older), given, run_dir=str(Path(folder) / "chosen"))
        print(f"{log.name}: {scene.older.rows:,} trained events, {scene.newer.rows:,} tested", flush=True)
        encodings: dict[str, ValueEncoding | None] = {"float32": None, **ENCODINGS}
        found: dict[str, list[Any]] = {name: [] for name in encodings}
        for seed in range(seeds):
            for name, encoding in encodings.items():
                run_dir = str(Path(folder) / f"{name}-{seed}")
                with _tables_behind(encoding) as hosts:
                    train(scene.older, scene.read(scene.older), replace(config, run_dir=run_dir, seed=seed))
                found[name].append(load_trained(run_dir).evaluate(scene.newer, scene.read(scene.newer)))
                ratio = sum(one.sent_bytes for one in hosts) / sum(one.plain_bytes for one in hosts)
                print(
                    f"  seed {seed}, {name}: AUC {found[name][-1].auc:.5f}, {ratio:.4f}x the bytes of values",
                    flush=True,
                )
        comparisons = Comparisons()
        for metric in ("auc", "normalized_entropy"):
            _print_differences(
                comparisons, metric, {name: [getattr(one, metric) for one in runs] for name, runs in found.items()}
            )
        print(f"  {comparisons.summary}", flush=True)


def _print_differences(comparisons: Comparisons, metric: str, found: dict[str, list[float]]) -> None:
    plain = found.pop("float32")
    print(f"  {metric}: float32 {statistics.mean(plain):.5f} +- {_spread(plain):.5f}", flush=True)
    for name, encoded in found.items():
        differences = [b - a for a, b in zip(plain, encoded, strict=True)]
        mean, spread, count = statistics.mean(differences), _spread(differences), len(differences)
        p = comparisons.chance(f"{metric} of {name}", plain, encoded)
        half = float(t.ppf(0.95, count - 1)) * spread / count**0.5 if count > 1 else float("inf")
        print(f"    {name} {statistics.mean(encoded):.5f}, difference {mean:+.5f} +- {spread:.5f} over {count} seeds, p = {p:.2f}, "
              f"90 % interval of the mean {mean - half:+.5f} to {mean + half:+.5f}", flush=True)  # fmt: skip


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
