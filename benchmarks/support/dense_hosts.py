"""Hosts that train the dense part of a model together, in several ways of adding their gradients."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.whole_vectors import all_gather, summed
from trainer.job.host.channels import Channels
from trainer.job.host.dense.flat_all_reduce import FlatAllReduce
from trainer.job.host.dense.gradient_buckets import GradientBuckets

if TYPE_CHECKING:
    from trainer.model.dense_model import DenseModel
    from trainer.model.inputs import InputLayout
    from trainer.options.config import TrainConfig

Array = np.ndarray[Any, np.dtype[Any]]

#: The numbers of an event that the MLP of a case takes.
INPUTS = 64


@dataclass(frozen=True, slots=True)
class Way:
    """A way of adding gradients: whole vectors to all hosts after the backward pass, or buckets of so many bytes, after it or while it runs.

    ``bucket_bytes``: 0 for whole vectors.
    """

    bucket_bytes: int = 0
    is_overlapped: bool = False

    def __str__(self) -> str:
        if not self.bucket_bytes:
            return "whole vectors"
        return f"{'overlapped' if self.is_overlapped else 'buckets'} of {self.bucket_bytes >> 10} KiB"


@dataclass(frozen=True, slots=True)
class DenseCase:
    """An MLP of ``layers`` layers of ``width`` over batches of ``rows`` events."""

    width: int
    layers: int
    rows: int

    @property
    def dense_bytes(self) -> int:
        """Of the weights, about."""
        return 4 * self.width * (INPUTS + (self.layers - 1) * self.width)


#: By way, the seconds of a step in each round; and the seconds of a step without other hosts in each.
Times = tuple[dict[Way, list[float]], list[float]]


@dataclass(frozen=True, slots=True)
class TimedRounds:
    """Steps of a case in some ways, in turns, behind a link."""

    case: DenseCase
    link: Link
    ways: tuple[Way, ...]
    steps: int
    rounds: int

    def run(self, channels: Channels) -> Times:
        """The times of one host."""
        return _Trainer(self.case, channels).times(self)


class _Trainer:
    """One host's part of a case."""

    def __init__(self, case: DenseCase, channels: Channels) -> None:
        self._channels = channels
        self._model = _model(case)
        self._reduces: dict[int, tuple[FlatAllReduce, Any]] = {}
        rng = np.random.default_rng(channels.steps.rank)
        draw = rng.standard_normal
        labels = (rng.random(case.rows) < 0.3).astype(np.float32)
        none = np.zeros((case.rows, 0), np.float32)
        inputs = draw((case.rows, INPUTS), np.float32)
        self._rows, self._inputs = case.rows, (inputs, none, none, labels, np.ones(case.rows, np.float32))

    def _reduce(self, bucket_bytes: int) -> tuple[FlatAllReduce, Any]:
        """The sums in buckets of a size, and the gradients that are handed to them in stages."""
        if bucket_bytes not in self._reduces:
            channels = self._channels
            buckets = GradientBuckets.of(self._model.sizes, channels.steps.hosts, bucket_bytes)
            sums = FlatAllReduce(buckets, channels.shares, channels.sums)
            self._reduces[bucket_bytes] = sums, self._model.gradients_in_stages(buckets.groups, sums.put)
        return self._reduces[bucket_bytes]

    def step(self, way: Way) -> None:
        """Train a step."""
        if not way.bucket_bytes:
            *_, flat = self._model.gradients(*self._inputs)
            counts = [int(a[0][0]) for a in all_gather(self._channels.steps, [np.array([self._rows], np.int64)])]
            self._model.apply(summed(self._channels.steps, flat * np.float32(self._rows / sum(counts))))
            return
        sums, staged = self._reduce(way.bucket_bytes)
        sums.begin(self._rows)
        if way.is_overlapped:
            staged(*self._inputs)
        else:
            *_, flat = self._model.gradients(*self._inputs)
            sums.put_all(flat)
        self._model.apply(sums.finish().vector)

    def alone(self) -> None:
        """A step without other hosts."""
        *_, flat = self._model.gradients(*self._inputs)
        self._model.apply(flat)

    def times(self, rounds: TimedRounds) -> Times:
        """See :data:`Times`; all hosts begin a round together."""
        found: dict[Way, list[float]] = {way: [] for way in rounds.ways}
        alone = []
        for number in range(rounds.rounds + 1):  # the first traces
            for way in rounds.ways:
                secs = self._timed(partial(self.step, way), rounds.steps if number else 2)
                if number:
                    found[way].append(secs)
            alone.append(self._timed(self.alone, rounds.steps if number else 2))
        return found, alone[1:]

    def _timed(self, work: Any, steps: int) -> float:
        all_gather(self._channels.steps, [np.zeros(1, np.int64)])
        began = time.perf_counter()
        for _ in range(steps):
            work()
        return (time.perf_counter() - began) / steps


def laid_out(case: DenseCase, **options: Any) -> tuple[InputLayout, TrainConfig]:
    """The inputs and the options of a case; ``options``: others of training."""
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.options.config import TrainConfig
    from transforms.types import DType, Ragged

    config = TrainConfig("unused", batch_rows=case.rows, dim=INPUTS, bottom_mlp=(), top_mlp=(case.width,) * case.layers,
                         threads=1, **options)  # fmt: skip
    return lay_out([TypedInput("ids", Ragged(DType.INT64, 100))], config), config


def _model(case: DenseCase) -> DenseModel:
    from trainer.run.weights.run_state import build_in_tensorflow

    return build_in_tensorflow(*laid_out(case))
