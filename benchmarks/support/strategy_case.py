"""A small DLRM, its events, and processes that train it, for ``benchmarks.ps_strategy``."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class StrategyCase:
    """The model and its events.

    Attributes:
        tables, rows, dim: of the embedding tables, with one id an event each.
        top_mlp: hidden sizes of the MLP over the pairs' products.
        batch_rows: events of a step.
        batches: that are trained again and again.
        servers: parameter servers.
        rate, accumulator: of Adagrad, for tables and for the dense part.
        stddev: of the initial rows.
    """

    tables: int = 26
    rows: int = 100_000
    dim: int = 16
    top_mlp: tuple[int, ...] = (64, 32)
    batch_rows: int = 1024
    batches: int = 64
    servers: int = 2
    rate: float = 0.05
    accumulator: float = 0.1
    stddev: float = 0.25

    def events(self) -> tuple[Array, Array]:
        """Ids, int64 [batches, batch_rows, tables], by a power law, and labels, float32 [batches, batch_rows], which depend on pairs of them."""
        draw = np.random.default_rng(7)
        ids = (draw.zipf(1.2, (self.batches, self.batch_rows, self.tables)) - 1) % self.rows
        vectors = draw.standard_normal((self.tables, self.rows))[np.arange(self.tables), ids]
        logits = 2.0 * (vectors[..., 0::2] * vectors[..., 1::2]).sum(axis=-1) / np.sqrt(self.tables / 2) - 1.0
        labels = draw.random(logits.shape) < 1.0 / (1.0 + np.exp(-logits))
        return ids.astype(np.int64), labels.astype(np.float32)


@dataclass(frozen=True, slots=True)
class TrainedSteps:
    """The wall seconds of some steps, and the mean loss of their events before each step."""

    secs: float
    loss: float


#: Trains so many steps more.
TrainSteps: TypeAlias = Callable[[int], TrainedSteps]
#: Builds a side in its process; a function of a module, which the process imports.
BuildSide: TypeAlias = Callable[[StrategyCase, Sequence[Any]], TrainSteps]


def _serve(pipe: Connection, build: BuildSide, case: StrategyCase, arguments: Sequence[Any]) -> None:
    train = build(case, arguments)
    while steps := pipe.recv():
        pipe.send(train(steps))


class SideProcess:
    """One side in a process of its own."""

    def __init__(self, build: BuildSide, case: StrategyCase, arguments: Sequence[Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, build, case, arguments), daemon=True)
        self._process.start()
        other.close()

    def train(self, steps: int) -> TrainedSteps:
        """Train so many steps more. Raises :class:`EOFError` if the process ended."""
        self._pipe.send(steps)
        found: TrainedSteps = self._pipe.recv()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
