"""Training processes on the same parameter servers, with a dense part that takes a fixed time, in any mode of their updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet
from benchmarks.support.piped_processes import PipedProcesses
from benchmarks.support.server_processes import connects_to
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import DenseStep, LookedUp, TableGradients
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.servers.client_updates import Greeting, Mode
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.served_engine import ServedEngine
from trainer.wire.flight.addresses import Address

Array = np.ndarray[Any, np.dtype[Any]]

_BATCHES = 8


@dataclass(frozen=True, slots=True)
class TrainingMode:
    """How several clients train.

    Attributes:
        name: for people.
        mode: how servers take their updates.
        ahead: steps by which lookups are ahead of the dense part.
        bound: updates of other clients that a fetch may miss; None: any number.
    """

    name: str
    mode: Mode
    ahead: int
    bound: int | None


@dataclass(frozen=True, slots=True)
class ClientCase:
    """What each client trains: tables, and the seconds of a dense part that leaves the processor free, as that of an accelerator does."""

    drawn: DrawnSet
    dense_secs: float
    clients: int


class FixedWeights:
    """Tables on servers, and a dense part that waits; see :class:`~trainer.run.weights.step_pipeline.TableSteps`."""

    def __init__(self, engine: ServedEngine, dense_secs: float) -> None:
        self._engine, self._dense_secs = engine, dense_secs

    def train(self, batch: Batch) -> Array:
        """A whole step."""
        step = self.differentiate(batch, self.begin_look_up(batch)())
        self.update_tables(batch, step.gradients)
        return step.logits

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """Begin a lookup."""
        end, nothing = self._engine.begin_lookup(batch.ids), np.zeros((batch.rows, 0), np.float32)
        return lambda: LookedUp(end(), nothing)

    def send(self, batch: Batch, looked_up: LookedUp) -> None:
        """The dense part is a wait of this process."""

    def differentiate(self, batch: Batch, looked_up: LookedUp) -> DenseStep:
        """Gradients that depend on the activations."""
        time.sleep(self._dense_secs)
        gradients = TableGradients(0.01 * looked_up.deep, looked_up.linear)
        return DenseStep(np.zeros(batch.rows, np.float32), gradients)

    def apply_dense(self, batch: Batch, step: DenseStep) -> TableGradients:
        """The gradients of the tables: there are no other hosts."""
        return step.gradients

    def update_tables(self, batch: Batch, gradients: TableGradients) -> None:
        """The updates of the rows of a batch."""
        self._engine.apply_gradients(batch.ids, gradients.deep)


def _client(case: ClientCase, mode: TrainingMode, addresses: Sequence[Address], client: int, pipe: Connection) -> None:
    greeting = Greeting(client=client, clients=case.clients, mode=mode.mode)
    engine = PsEngine(case.drawn.features(), seed=1, servers=connects_to(addresses, greeting), staleness=mode.bound,
                      held=mode.ahead + 2, threads=1, overlaps=mode.mode is Mode.EACH)  # fmt: skip
    rows = case.drawn.events
    nothing, ones = np.zeros((rows, 0), np.float32), np.ones(rows, np.float32)
    batches = [Batch(rows, ids, nothing, ones, ones, ()) for ids in case.drawn.batches(_BATCHES, seed=client)]
    with StepPipeline(FixedWeights(engine, case.dense_secs), mode.ahead) as steps:
        while count := pipe.recv():
            began = time.perf_counter()
            for number in range(count):
                steps.train(batches[number % _BATCHES])
            steps.drain()
            engine.finish()
            pipe.send(time.perf_counter() - began)
    engine.close()


class ModeClients(PipedProcesses):
    """The clients of one mode, as a context; the servers are theirs alone."""

    def __init__(self, case: ClientCase, mode: TrainingMode, addresses: Sequence[Address]) -> None:
        super().__init__(partial(_client, case, mode, addresses), case.clients, {})

    def train(self, steps: int) -> float:
        """Train so many steps more on each client; the seconds of the slowest one. Raises :class:`EOFError` if a client ended."""
        self.send(steps)
        return max(self.receive())
