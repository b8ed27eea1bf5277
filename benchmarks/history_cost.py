"""What the metric history takes of a training step, and of a commit.

    python -m benchmarks.history_cost [--rounds N] [--steps N]

Both sides train the same batches by the same model, alternately: "with" records the history and the norm of the dense gradient, as training
does, and "without" does neither. Their ratio is of the median times of a step within a round. Beside it stands what the recorder itself has
taken, by the clock around its calls: the ratio contains the noise of the machine, this does not. The part of a commit is the
packing of the largest history into bytes, in the thread that writes the commit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.support.harness import machine
from trainer.model.dense_model import DenseModel
from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.tensorflow_settings import prepare_tensorflow
from trainer.options.config import TrainConfig
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.history_file import history_bytes, history_of_bytes
from trainer.run.history.recorder import HistoryRecorder
from trainer.run.history.run_history import MOST_COMMITS, MOST_WINDOWS, RunHistory
from trainer.run.reading.batches import Batch
from trainer.run.weights.gauges import gauges_of
from trainer.run.weights.run_state import Weights, build_weights
from trainer.tables.batches import IdBatch
from transforms.types import Dense, DType, Ragged

TARGET = 0.01
_BUCKETS, _BATCHES = 100_000, 8


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model, whose inputs of ids have one id an event."""

    inputs: int
    dim: int
    batch_rows: int
    top_mlp: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.inputs} inputs x {self.dim}, batch {self.batch_rows}, top {'-'.join(map(str, self.top_mlp))}"

    @property
    def config(self) -> TrainConfig:
        """The options of its training."""
        return TrainConfig(
            "unused", batch_rows=self.batch_rows, dim=self.dim, top_mlp=self.top_mlp, deterministic=False
        )


SHAPES = (Shape(8, 16, 256, (64, 32)), Shape(8, 16, 1024, (64, 32)), Shape(26, 16, 1024, (64, 32)))


class _WithoutNorms(DenseModel):
    """A model whose step does not look at the size of its gradient."""

    def _train_step(self, activations, linear, dense, labels, weights):
        logits, gradients = self._gradients(activations, linear, dense, labels, weights)
        self._apply_step(gradients[2:])
        return logits, gradients[0], gradients[1], self.units_on(gradients[2:]), tf.zeros([])


def _weights(shape: Shape, *, has_history: bool) -> Weights:
    inputs = [TypedInput(f"f{k}", Ragged(DType.INT64, _BUCKETS)) for k in range(shape.inputs)]
    layout = lay_out([*inputs, *(TypedInput(f"n{k}", Dense(DType.FLOAT32)) for k in range(4))], shape.config)
    prepare_tensorflow(shape.config)
    dense = None if has_history else _WithoutNorms(layout, shape.config, BINARY)
    return build_weights(layout, shape.config, BINARY, dense=dense)


def _batches(shape: Shape, weights: Weights) -> list[Batch]:
    rng, rows, found = np.random.default_rng(0), shape.batch_rows, []
    for _ in range(_BATCHES):
        ids = ((rng.zipf(1.2, shape.inputs * rows) - 1) % _BUCKETS).astype(np.int32)
        offsets = np.arange(shape.inputs)[:, None] * rows + np.arange(rows + 1)[None]
        bags = IdBatch(ids, offsets.astype(np.int64), None, (_BUCKETS,) * shape.inputs)
        numbers = rng.normal(size=(rows, weights.layout.dense_width)).astype(np.float32)
        labels = (rng.random(rows) < 0.3).astype(np.float32)
        found.append(Batch(rows, bags, numbers, labels, np.ones(rows, np.float32), ()))
    return found


class _Timed:
    """A recorder whose own time is added up."""

    def __init__(self, weights: Weights, steps) -> None:
        look = partial(gauges_of, weights, steps)
        layout = HistoryLayout.of(weights.head.each)
        self._own = HistoryRecorder(RunHistory.empty(layout), weights.head, look, clock=time.monotonic, now=time.time)
        self.secs = 0.0

    def add(self, labels, logits) -> None:
        began = time.perf_counter()
        self._own.add(labels, logits)
        self._own.count_step()
        self.secs += time.perf_counter() - began


def _train(weights: Weights, batches: list[Batch], count: int, *, has_history: bool) -> tuple[float, float]:
    """The median seconds of a step, and the mean seconds of the recorder in one."""
    steps, secs = weights.steps(0, 0), []
    recorder = _Timed(weights, steps) if has_history else None
    with steps:
        for number in range(count):
            began = time.perf_counter()
            for trained in steps.train(batches[number % _BATCHES]):
                if recorder is not None:
                    recorder.add(trained.batch.labels[: trained.batch.rows], trained.logits)
            secs.append(time.perf_counter() - began)
    return statistics.median(secs), 0.0 if recorder is None else recorder.secs / count


def _measure(shape: Shape, rounds: int, count: int) -> None:
    sides = {name: _weights(shape, has_history=name == "with") for name in ("without", "with")}
    batches = _batches(shape, sides["with"])
    for name, weights in sides.items():
        _train(weights, batches, 3 * _BATCHES, has_history=name == "with")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            found[name].append(_train(sides[name], batches, count, has_history=name == "with"))
    without, own = (statistics.median(one[0] for one in found[name]) for name in ("without", "with"))
    recorder = statistics.median(one[1] for one in found["with"])
    ratio = statistics.median(a[0] / b[0] for a, b in zip(found["with"], found["without"], strict=True))
    print(f"{shape}: a step {without * 1e3:.2f} ms without, {own * 1e3:.2f} ms with ({ratio:.3f}x); "
          f"the recorder {recorder * 1e6:.0f} µs, {recorder / without:.2%} of a step (target: at most {TARGET:.0%})")  # fmt: skip


def _pack() -> None:
    layout, rng = HistoryLayout.of(BINARY.each), np.random.default_rng(0)
    rows = np.floor(rng.random((MOST_WINDOWS, layout.width)) * 1e5)
    rows[:, [layout.places[None, name] for name in ("idle_units", "fullness_samples", "gradient_steps")]] = 0.0
    rows[:, layout.places["", "ranked"]] = rows[:, layout.places["", "pairs"]] * 0.7
    rows[:, layout.places["", "positives"]] = rows[:, layout.places["", "events"]] * 0
    rows[:, layout.places["", "events"]] = rows[:, layout.places[None, "events"]]
    rows[:, layout.places[None, "steps"]] = 16
    rows[:, layout.places[None, "step"]] = 16 * np.arange(1, MOST_WINDOWS + 1)
    commits = rows[1::2][:MOST_COMMITS].copy()
    commits[:, layout.places[None, "steps"]] = 32
    commits[:, layout.places[None, "commit"]] = np.arange(1, MOST_COMMITS + 1)
    history = RunHistory(layout, 0, 16, rows, commits)
    began = time.perf_counter()
    data = history_bytes(history)
    packed = time.perf_counter()
    history_of_bytes(data, "the benchmark")
    read = time.perf_counter()
    print(f"the largest history of a label, {MOST_WINDOWS:,} windows and {MOST_COMMITS:,} commits: {len(data):,} bytes, "
          f"packed in {(packed - began) * 1e3:.0f} ms, read and checked in {(read - packed) * 1e3:.0f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=96, help="of a round")
    given = parser.parse_args()
    print(machine())
    for shape in SHAPES:
        _measure(shape, given.rounds, given.steps)
    _pack()


if __name__ == "__main__":
    main()
