"""One host that trains over one embedding worker and over several: steps a second.

    python -m benchmarks.several_workers [--workers N ...] [--staleness N] [--dense-ms N] [--work-ms N] [--delay-us N] [--rounds N] [--steps N]

Two servers and the embedding workers are processes; the host is this one, with the schedule of training and a dense part that waits for ``--dense-ms``. Batch n goes
to worker n modulo their number. Three cases have different limits:

- "slow workers": each lookup and each update takes a worker ``--work-ms`` more, one after the other, and without a processor. So workers are the limit,
  as with larger batches or slower processors, and each of them has a processor of its own, as on machines of their own.
- "far servers": each way between host and workers, and between workers and servers, takes ``--delay-us`` more.
- "as it is": host, workers and servers share the processors of this machine, which are then the limit.

"each": lookups of several workers are on their way at once. "summed": a lookup has ended before the next update is sent, for equal bits. Sides alternate
in rounds after one that is not counted; printed are the median rates, the ratios to one worker of the same kind of updates and of "summed", whether rounds
agree within a tenth, and how many batches each worker had. Activations of "summed" are compared bit for bit between the sides.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.support.delayed_network import DelayedNetwork, Network
from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from benchmarks.support.job_token import TOKEN
from benchmarks.support.mode_clients import FixedWeights
from benchmarks.support.server_processes import ServerProcess, ServerProcesses
from trainer.run.reading.batches import Batch
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.servers.client_updates import Greeting, Mode
from trainer.servers.embedding_worker import EmbeddingWorker
from trainer.servers.row_server import Reply, Session
from trainer.servers.run_servers import RunServers
from trainer.servers.server_status import read_status
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables.routes.servers.frames import Header, Kind
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.servers.server_link import Connect
from trainer.tables.routes.workers.engine import WorkerEngine
from trainer.wire.flight.addresses import Address
from trainer.wire.frames import Bytes

_SERVERS, _BATCHES = 2, 8
_DRAWN = DrawnSet((DrawnTable(100_000, 16, 4, 1.2),) * 8, 128, has_slots=True)
_AGREE = 0.1


class SlowWorker(EmbeddingWorker):
    """An embedding worker whose lookups and updates take so many seconds more, one after the other, in which they use no processor."""

    def __init__(self, connect: Callable[..., Sequence[Connect]], work_secs: float) -> None:
        super().__init__(connect)
        self._work_secs, self._processor = work_secs, threading.Lock()

    def handle(self, session: Session, header: Header, body: Bytes) -> Reply:
        """Answer a request."""
        if header.kind in (Kind.FETCH, Kind.UPDATE):
            with self._processor:
                time.sleep(self._work_secs)
        return super().handle(session, header, body)


def make_worker(servers: tuple[Address, ...], work_secs: float, folder: Path | None) -> EmbeddingWorker:
    """The embedding worker of a process."""

    def connect(greeting: Greeting, check: Callable[[], None], named: NamedServers | None) -> list[Connect]:
        return [connect_to(address, LinkOptions(greeting, check=check)) for address in servers]

    return SlowWorker(connect, work_secs)


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    work_secs: float = 0.0
    delay_secs: float = 0.0


class _Side:
    """A host over so many workers, with servers of its own."""

    def __init__(
        self, case: _Case, mode: Mode, workers: int, staleness: int, dense_secs: float, stack: ExitStack
    ) -> None:
        servers: Sequence[Address] = stack.enter_context(ServerProcesses(_SERVERS)).addresses
        near = tuple(servers)
        if case.delay_secs:
            servers = stack.enter_context(DelayedNetwork(servers, Network(case.delay_secs))).addresses
        made = [ServerProcess(partial(make_worker, tuple(servers), case.work_secs)) for _ in range(workers)]
        for one in made:
            stack.callback(one.close)
        self._workers = addresses = [one.address for one in made]
        if case.delay_secs:
            addresses = stack.enter_context(DelayedNetwork(addresses, Network(case.delay_secs))).addresses
        run = RunServers(near, TOKEN, mode=mode, workers=tuple(addresses), workers_token=TOKEN)
        held = max(staleness, 1) + 1
        engine = run.engine_over(run.connect(1), _DRAWN.features(), 1, held, workers=run.connect_workers(1, held))
        assert isinstance(engine, WorkerEngine)
        self._engine, self._staleness = engine, staleness
        stack.enter_context(closing(engine))
        self._weights = FixedWeights(engine, dense_secs)
        rows = _DRAWN.events
        nothing, ones = np.zeros((rows, 0), np.float32), np.ones(rows, np.float32)
        self._batches = [Batch(rows, ids, nothing, ones, ones, ()) for ids in _DRAWN.batches(_BATCHES, seed=0)]

    def rate(self, steps: int) -> float:
        """Steps a second."""
        with StepPipeline(self._weights, self._staleness) as pipeline:
            began = time.perf_counter()
            for step in range(steps):
                pipeline.train(self._batches[step % _BATCHES])
            pipeline.drain()
            self._engine.finish()
            return steps / (time.perf_counter() - began)

    def activations(self) -> list[bytes]:
        """The activations of all batches now."""
        return [self._engine.lookup(one.ids).tobytes() for one in self._batches]

    def batches_of_workers(self) -> list[int]:
        """The lookups of each worker."""
        return [read_status(one, token=TOKEN).fetches for one in self._workers]


def _measure(case: _Case, given: argparse.Namespace) -> None:
    with ExitStack() as stack:
        sides = {
            (mode, workers): _Side(case, mode, workers, given.staleness, given.dense_ms * 1e-3, stack)
            for mode in (Mode.SUMMED, Mode.EACH)
            for workers in given.workers
        }
        rates: dict[tuple[Mode, int], list[float]] = {name: [] for name in sides}
        for number in range(given.rounds + 1):
            for name, side in sides.items():
                rate = side.rate(given.steps)
                if number:
                    rates[name].append(rate)
        counts = {name: side.batches_of_workers() for name, side in sides.items()}
        summed = [side.activations() for (mode, _), side in sides.items() if mode is Mode.SUMMED]
        assert all(one == summed[0] for one in summed), "sides with summed updates have the same bits"
    for (mode, workers), found in rates.items():
        ratios = [
            [own / base for own, base in zip(found, rates[one, given.workers[0]], strict=True)]
            for one in (mode, Mode.SUMMED)
        ]
        medians = [statistics.median(one) for one in ratios]
        agree = max(ratios[0]) - min(ratios[0]) <= 2 * _AGREE * medians[0]
        print(f"{case.name:<13} {mode.value:<7} {workers:>3}   {statistics.median(found):8.1f} {medians[0]:7.2f}x {medians[1]:9.2f}x"
              f"   {counts[mode, workers]}{'' if agree else '  (rounds disagree)'}", flush=True)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--staleness", type=int, default=5)
    parser.add_argument("--dense-ms", type=float, default=1.0)
    parser.add_argument("--work-ms", type=float, default=40.0)
    parser.add_argument("--delay-us", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    cases = (
        _Case("slow workers", work_secs=given.work_ms * 1e-3),
        _Case("far servers", delay_secs=given.delay_us * 1e-6),
        _Case("as it is"),
    )
    print(f"{machine()}; one host, {_SERVERS} servers, staleness {given.staleness}, dense part {given.dense_ms:g} ms")
    print(f"slow workers: {given.work_ms:g} ms more a lookup and an update; far servers: {given.delay_us} us each way\n"
          "case          updates workers  steps/s   by one by summed, one   batches of each worker")  # fmt: skip
    for case in cases:
        _measure(case, given)


if __name__ == "__main__":
    main()
