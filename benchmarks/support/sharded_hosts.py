"""Hosts that train the dense part of a model together: each updates all weights, or its segments of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Self

import numpy as np

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.dense_hosts import INPUTS, DenseCase, laid_out
from benchmarks.support.whole_vectors import all_gather
from trainer.job.host.channels import Channels
from trainer.job.host.dense.all_reduce import DenseSum
from trainer.job.host.dense.dense_sums import StagedSums
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.job.host.dense.sharded_updates import ShardedUpdates
from trainer.job.host.sharded_weights import empty_batch
from trainer.model.inputs import InputLayout
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import LookedUp
from trainer.run.weights.run_state import build_in_tensorflow

Array = np.ndarray[Any, np.dtype[Any]]

#: Each host updates all weights, or its segments.
WHOLE, SEGMENTS = "all weights", "segments"
SIDES = (WHOLE, SEGMENTS)


@dataclass(frozen=True, slots=True)
class SideTimes:
    """One side on one host, means of a step in each round.

    Attributes:
        step_secs: of the clock.
        cpu_secs: of all threads of the host, in a step.
        update_cpu_secs: of these, in the update of weights and the copy of those of other hosts.
        slot_bytes: of the optimizer, on this host.
    """

    step_secs: tuple[float, ...]
    cpu_secs: tuple[float, ...]
    update_cpu_secs: tuple[float, ...]
    slot_bytes: int

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float, float]], slot_bytes: int) -> Self:
        """By the means of each round, in the order of the fields."""
        step, cpu, update = zip(*rounds, strict=True)
        return cls(step, cpu, update, slot_bytes)


@dataclass(frozen=True, slots=True)
class ShardedRounds:
    """Steps of a case on both sides, in turns, behind a link."""

    case: DenseCase
    optimizer: str
    link: Link
    steps: int
    rounds: int

    def run(self, channels: Channels) -> dict[str, SideTimes]:
        """The times of one host, by side."""
        layout, config = laid_out(self.case, dense_optimizer=self.optimizer)
        sides = {WHOLE: _Whole(layout, config, channels), SEGMENTS: _Segments(layout, config, channels)}
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
        for number in range(self.rounds + 1):  # the first traces
            for name, side in sides.items():
                measured = self._timed(side, channels)
                if number:
                    found[name].append(measured)
        return {name: SideTimes.of(found[name], side.slot_bytes) for name, side in sides.items()}

    def _timed(self, side: _Side, channels: Channels) -> tuple[float, float, float]:
        all_gather(channels.steps, [np.zeros(1, np.int64)])
        side.update_cpu_secs = 0.0
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.steps):
            side.step()
        spent = time.perf_counter() - began, time.process_time() - cpu, side.update_cpu_secs
        secs, cpu_secs, update_secs = (one / self.steps for one in spent)
        return secs, cpu_secs, update_secs


class _Side:
    """One host's model and its events."""

    sums: StagedSums
    update_cpu_secs = 0.0
    slot_bytes = 0

    def __init__(self, layout: InputLayout, config: TrainConfig, channels: Channels) -> None:
        self.model = build_in_tensorflow(layout, config)
        rows, source = config.batch_rows, np.random.default_rng(channels.steps.rank)
        self._batch: Batch = replace(
            empty_batch(layout, rows),
            rows=rows,
            labels=(source.random(rows) < 0.3).astype(np.float32),
            weights=np.ones(rows, np.float32),
        )
        deep = source.standard_normal((rows, INPUTS), np.float32)
        self._looked_up = LookedUp(deep, np.zeros((rows, 0), np.float32))

    def step(self) -> None:
        """Train a step with the other hosts."""
        self.sums.finish(self.sums.begin(self._batch, self._looked_up))


class _Whole(_Side):
    def __init__(self, layout: InputLayout, config: TrainConfig, channels: Channels) -> None:
        super().__init__(layout, config, channels)
        side = self

        class Sums(StagedSums):
            def _update(self, total: DenseSum) -> None:
                began = time.process_time()
                super()._update(total)
                side.update_cpu_secs += time.process_time() - began

        self.sums = Sums(self.model, channels, GradientBuckets.of(self.model.sizes, channels.shares.hosts))
        self.slot_bytes = sum(4 * prod(one.shape) for slots in self.model.optimizer_slots for one in slots)


class _Segments(_Side):
    def __init__(self, layout: InputLayout, config: TrainConfig, channels: Channels) -> None:
        super().__init__(layout, config, channels)
        side = self

        class Sums(ShardedUpdates):
            def update(self, bucket: int, floats: Array) -> Array:
                began = time.thread_time()
                found = super().update(bucket, floats)
                side.update_cpu_secs += time.thread_time() - began
                return found

            def _update(self, total: DenseSum) -> None:
                began = time.process_time()
                super()._update(total)
                side.update_cpu_secs += time.process_time() - began

        self.sums = sums = Sums(self.model, channels)
        self.slot_bytes = sums.slot_bytes
