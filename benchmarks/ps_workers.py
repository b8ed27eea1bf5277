"""A dense worker with and without an embedding worker: the bytes that its network carries, and its steps a second.

    python -m benchmarks.ps_workers [--bags N ...] [--delays-us N ...] [--events N] [--rounds N] [--steps N] [--dense-ms N] [--bytes]

Two servers and the embedding worker are processes; the dense worker is this one. All bags of a run have the same number of ids, drawn from a power
law. Bytes are those that the dense worker sends and receives for a lookup and an update, headers included. A step is a lookup, a dense part that waits for
``--dense-ms``, and an update; "ahead": lookups run two steps ahead of updates in a thread of their own, as with a staleness of 2. A delay is one
way, on each hop: between the dense worker and the servers, or the dense worker and the embedding worker and from there to the servers, at 1.25 GB/s. Sides
alternate in rounds, and figures are medians. Activations of both sides are compared bit for bit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.support.delayed_network import DelayedNetwork, Network
from benchmarks.support.harness import machine
from benchmarks.support.job_token import TOKEN
from benchmarks.support.server_processes import ServerProcess, ServerProcesses, connects_to
from trainer.servers.client_updates import Greeting
from trainer.servers.embedding_worker import EmbeddingWorker
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, connect_through, connect_to
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.named_servers import NamedServers
from trainer.tables.routes.workers.engine import WorkerEngine, direct_engine
from trainer.tables.routes.workers.table_documents import WorkerTables
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.addresses import Address

Array = np.ndarray[Any, np.dtype[Any]]
Engine: TypeAlias = PsEngine | WorkerEngine

SERVERS, TABLES, ROWS, DIM, SKEW = 2, 8, 100_000, 32, 1.2
_BATCHES, _AHEAD = 4, 2
_FEATURES = [FeatureSpec(f"f{t}", TableSpec(f"t{t}", ROWS, DIM, Adagrad(0.01), "sum")) for t in range(TABLES)]


def make_worker(servers: tuple[Address, ...], folder: Path | None) -> EmbeddingWorker:
    """The embedding worker of a process."""

    def connect(greeting: Greeting, check: Callable[[], None], named: NamedServers | None) -> list[Any]:
        return [connect_to(address, LinkOptions(greeting, check=check)) for address in servers]

    return EmbeddingWorker(connect)


def _batches(bag: int, events: int) -> list[IdBatch]:
    draw, found = np.random.default_rng(bag), []
    for _ in range(_BATCHES):
        ids = ((draw.zipf(SKEW, TABLES * events * bag) - 1) % ROWS).astype(np.int32)
        offsets = np.arange(0, TABLES * events * bag + 1, bag, dtype=np.int64)
        places = np.arange(TABLES)[:, None] * events + np.arange(events + 1)
        found.append(IdBatch(ids, offsets[places], None, (ROWS,) * TABLES))
    return found


def _traffic(engine: Engine) -> tuple[int, int]:
    links = list(engine.links) if isinstance(engine, WorkerEngine) else [one.link for one in engine.servers]
    return sum(one.sent_bytes for one in links), sum(one.received_bytes for one in links)


def _traffic_of_step(engine: Engine, batches: Sequence[IdBatch], gradients: Array) -> tuple[float, float]:
    engine.finish()
    before = _traffic(engine)
    for batch in batches:
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)
    after = _traffic(engine)
    engine.finish()
    sent, received = ((after[k] - before[k]) / len(batches) for k in range(2))
    return sent, received


def _steps_per_sec(
    engine: Engine, batches: Sequence[IdBatch], gradients: Array, steps: int, dense_secs: float, ahead: int
) -> float:
    engine.finish()
    began = time.perf_counter()

    def work(step: int) -> None:
        if step > ahead:
            engine.apply_gradients(batches[(step - ahead - 1) % len(batches)], gradients)
        engine.lookup(batches[step % len(batches)])

    with ThreadPoolExecutor(1) as pool:
        waiting = []
        for step in range(steps):
            waiting.append(pool.submit(work, step))
            if step >= ahead:
                waiting[step - ahead].result()
                time.sleep(dense_secs)
        waiting[-1].result()
    engine.finish()
    return steps / (time.perf_counter() - began)


def _measure(bag: int, delay_us: int, ids: str, given: argparse.Namespace) -> None:
    batches = _batches(bag, given.events)
    gradients = np.random.default_rng(1).normal(size=(given.events, TABLES * DIM)).astype(np.float32)
    network = Network(delay_us * 1e-6)
    with ExitStack() as stack:
        one, other = (stack.enter_context(ServerProcesses(SERVERS)) for _ in range(2))
        reach = partial(DelayedNetwork, network=network)
        without_at = stack.enter_context(reach(one.addresses)).addresses
        hop = stack.enter_context(reach(other.addresses)).addresses
        worker = ServerProcess(partial(make_worker, tuple(hop)))
        stack.callback(worker.close)
        (worker_at,) = stack.enter_context(reach([worker.address])).addresses
        wire = WireSettings(ids)
        without = PsEngine(_FEATURES, seed=1, servers=connects_to(without_at), threads=1, held=_AHEAD + 2, wire=wire)
        loads = [
            connect_to(address, LinkOptions(Greeting(TOKEN, role=SessionRole.LOADS))) for address in other.addresses
        ]
        through = connect_through(worker_at, LinkOptions(Greeting(TOKEN)))
        tables = WorkerTables(tuple(_FEATURES), 1, held=_AHEAD + 2, wire=wire)
        with_worker = WorkerEngine(tables, direct_engine(tables, loads), [through], threads=1)
        engines: tuple[Engine, Engine] = without, with_worker
        for batch in batches:
            assert len({engine.lookup(batch).tobytes() for engine in engines}) == 1
            for engine in engines:
                engine.apply_gradients(batch, gradients)
        traffic = [_traffic_of_step(engine, batches, gradients) for engine in engines]
        speeds = []
        for ahead in () if given.bytes else (0, _AHEAD):
            rounds = [
                [
                    _steps_per_sec(engine, batches, gradients, given.steps, given.dense_ms * 1e-3, ahead)
                    for engine in engines
                ]
                for _ in range(given.rounds)
            ]
            speeds.append([statistics.median(one[k] for one in rounds) for k in range(2)])
        for engine in engines:
            engine.close()
    sizes = "  ".join(f"{sent / 1e6:6.2f} {received / 1e6:6.2f}" for sent, received in traffic)
    total = sum(traffic[1]) / sum(traffic[0])
    rates = "   ".join(f"{plain:7.1f} {pooled:7.1f}" for plain, pooled in speeds)
    print(f"{bag:>3} {ids:>7} {delay_us:>6}   {sizes}   {total:5.2f}x   {rates}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bags", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--delays-us", type=int, nargs="+", default=[0, 1000])
    parser.add_argument("--ids", nargs="+", default=["plain", "unique"])
    parser.add_argument("--events", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dense-ms", type=float, default=10.0)
    parser.add_argument("--bytes", action="store_true", help="bytes alone")
    given = parser.parse_args()
    print(f"{machine()}; {SERVERS} servers, {TABLES} tables of {ROWS:,} x {DIM}, {given.events} events, Zipf {SKEW}")
    print("           delay   MB sent, received a step             steps a second          steps a second, ahead")
    print("ids    on wire us  without        with worker    ratio   without   with worker   without   with worker")
    for bag in given.bags:
        for ids in given.ids:
            for delay_us in given.delays_us:
                _measure(bag, delay_us, ids, given)


if __name__ == "__main__":
    main()
