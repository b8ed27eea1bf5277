"""The dense train step of DLRM: the masked self-interaction against the gather form, with and without XLA.

    python -m benchmarks.dense_step [--rounds N] [--secs S] [--threads N]

Each side runs the same step over the same activations: forward, gradients by activations and weights, Adam. "gather" takes
the pairs of vectors from their products by a gather with a gather as its gradient; "masked" keeps all products
(:mod:`trainer.model.interaction`). Sides alternate in rounds of ``--secs``; times are medians, and ratios are of the
times within a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.support.harness import machine
from trainer.model.dlrm import Dlrm
from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.interaction import SelfInteraction
from trainer.options.config import TrainConfig
from transforms.types import Dense, DType

_NUMBERS = 13


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model."""

    inputs: int
    dim: int
    batch_rows: int
    top_mlp: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.inputs} inputs x {self.dim}, batch {self.batch_rows}, top {'-'.join(map(str, self.top_mlp))}"


SHAPES = (
    Shape(8, 16, 1024, (64, 32)),
    Shape(26, 16, 1024, (64, 32)),
    Shape(26, 64, 2048, (512, 256)),
)


class GatheredPairs(SelfInteraction):
    """The gather form, with the same layer."""

    def apply(self, layer: Any, stacked: Any, beside: Any = None) -> Any:
        """See :meth:`SelfInteraction.apply`."""
        pairs = self._pairs(self._products(stacked))
        return layer(pairs if beside is None else tf.concat([beside, pairs], axis=1))

    def _pairs(self, products: Any) -> Any:
        rows, columns = np.tril_indices(self.vectors, -1)
        taken = (rows * self.vectors + columns).astype(np.int32)
        source = np.full(self.vectors**2, self.pairs, np.int32)
        source[taken] = np.arange(self.pairs)

        def select(flat: Any) -> tuple[Any, Callable[[Any], Any]]:
            def gradient(upstream: Any) -> Any:
                return tf.gather(tf.pad(upstream, [[0, 0], [0, 1]]), source, axis=1)

            return tf.gather(flat, taken, axis=1), gradient

        return tf.custom_gradient(select)(products)


def make_step(shape: Shape, interaction: type[SelfInteraction], *, jit: bool) -> Callable[[], object]:
    """A train step over made activations."""
    items = [TypedInput(f"id_{k}", Dense(DType.INT64, 100)) for k in range(shape.inputs)]
    items += [TypedInput(f"number_{k}", Dense(DType.FLOAT32)) for k in range(_NUMBERS)]
    config = TrainConfig("run", dim=shape.dim, batch_rows=shape.batch_rows, top_mlp=shape.top_mlp)
    network = Dlrm(lay_out(items, config), config, BINARY)
    network._interaction = interaction(shape.inputs + 1)
    optimizer = keras.optimizers.Adam()
    optimizer.build(network.trainable)
    draw = np.random.default_rng(0)
    activations, dense = (tf.constant(draw.normal(size=(shape.batch_rows, width)).astype(np.float32))
                          for width in (shape.inputs * shape.dim, _NUMBERS))  # fmt: skip
    labels = tf.constant((draw.random(shape.batch_rows) < 0.1).astype(np.float32))

    def step(activations: Any, dense: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(activations)
            logits = network.logits(activations, dense, training=True)[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        by_activations, *gradients = tape.gradient(loss, [activations, *network.trainable])
        optimizer.apply(gradients, network.trainable)
        return by_activations

    compiled = tf.function(step, jit_compile=jit, autograph=False)
    return lambda: compiled(activations, dense, labels).numpy()


def measure(shape: Shape, rounds: int, secs: float) -> dict[str, list[float]]:
    """Milliseconds of a step of each side, one per round."""
    forms = {"gather": GatheredPairs, "masked": SelfInteraction}
    sides = {f"{name}{', XLA' if jit else ''}": make_step(shape, form, jit=jit)
             for jit in (False, True) for name, form in forms.items()}  # fmt: skip
    for run in sides.values():
        for _ in range(3):
            run()
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            steps, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < secs:
                run()
                steps += 1
            found[name].append((time.perf_counter() - begun) / steps * 1e3)
    return found


def main() -> None:
    """Print each side's time and its ratio to the gather form without XLA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--secs", type=float, default=0.5, help="of each side in a round")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(f"{machine()}, {given.threads} threads")
    for shape in SHAPES:
        found = measure(shape, given.rounds, given.secs)
        print(f"{shape}\n  {'':14}{'ms a step':>10}{'of gather':>11}{'min..max':>14}")
        for name, times in found.items():
            ratios = sorted(ours / base for ours, base in zip(times, found["gather"], strict=True))
            print(f"  {name:14}{statistics.median(times):10.2f}{statistics.median(ratios):11.2f}"
                  f"{ratios[0]:8.2f}..{ratios[-1]:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
