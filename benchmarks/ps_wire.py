"""Bytes and speed of messages to parameter servers with their rows and values encoded, against plain ones.

    python -m benchmarks.ps_wire [--bytes] [--speed] [--gigabits N ...] [--rounds N] [--steps N]

Four servers are processes. Batches are those of :mod:`benchmarks.wire_compression`: 4,096 events of 26 tables of 1 M rows, whose ids follow a
bounded power law. Bytes: all that a lookup and an update send and receive by TCP, headers of frames included, over those of the plain
messages, whose row numbers have 4 bytes. Speed: lookups and updates a second of one client with one thread, and CPU milliseconds of a
step of client and servers, with rows of 32 columns; an update is timed until all servers have made it. ``--gigabits``: of the client's network, which its four
connections divide evenly; 0 is the loopback alone, others pass a process that passes bytes on at that rate. Settings alternate in rounds, and a
ratio is the median over rounds.
Without an option both parts run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.support.delayed_network import DelayedNetwork, Network
from benchmarks.support.harness import machine
from benchmarks.support.server_processes import ServerProcesses, connects_to
from benchmarks.wire_compression import TARGET, make_batch
from trainer.servers.client_updates import Greeting
from trainer.tables import SGD, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.wire.settings import WireSettings
from trainer.wire.flight.addresses import Address

SERVERS = 4
#: The plain setting first: others are over it.
SETTINGS = (
    WireSettings(),
    WireSettings("unique"),
    WireSettings("plain", "fp16"),
    WireSettings("plain", "fp14"),
    WireSettings("unique", "fp16"),
    WireSettings("unique", "fp14"),
)
_TABLES, _ROWS, _EVENTS = 26, 1_000_000, 4096
_POWERS, _VALENCIES, _DIMS = (1.05, 1.2), (1, 20), (16, 32, 64)
_SPEED_POWER, _SPEED_VALENCY, _SPEED_DIM, _BATCHES = 1.05, 1, 32, 4


def features_of(dim: int) -> list[FeatureSpec]:
    """A feature for each table."""
    return [FeatureSpec(f"f{t}", TableSpec(f"t{t}", _ROWS, dim, SGD(0.01), "sum")) for t in range(_TABLES)]


def _label(wire: WireSettings) -> str:
    return f"{wire.ids}, {wire.values}"


def _gradients(dim: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1e-3, (_EVENTS, _TABLES * dim)).astype(np.float32)


def _link_bytes(engine: PsEngine) -> int:
    return sum(one.link.sent_bytes + one.link.received_bytes for one in engine.servers)


def _step_bytes(engine: PsEngine, batch: IdBatch, gradients: np.ndarray) -> int:
    before = _link_bytes(engine)
    engine.lookup(batch)
    engine.apply_gradients(batch, gradients)
    engine.finish()
    return _link_bytes(engine) - before


def measure_bytes() -> bool:
    """Print the bytes of each case; whether both compressions are within the target in all of them."""
    print("bytes of a lookup and an update, and their share of plain ones by ids and values")
    print("power bags dim     rows  plain MB  " + "  ".join(f"{_label(one):>15}" for one in SETTINGS[1:]))
    shares: dict[WireSettings, list[float]] = {one: [] for one in SETTINGS}
    with ServerProcesses(SERVERS) as servers:
        for number, (power, valency, dim) in enumerate(product(_POWERS, _VALENCIES, _DIMS)):
            batch, gradients = make_batch(power, valency), _gradients(dim)
            found = []
            for wire in SETTINGS:
                engine = PsEngine(
                    features_of(dim), seed=1, servers=servers.connects(Greeting(attempt=number)), wire=wire
                )
                found.append(_step_bytes(engine, batch, gradients))
                engine.close()
            rows = sum(len(np.unique(batch.ids[ends[0] : ends[-1]])) for ends in batch.offsets)
            for wire, count in zip(SETTINGS, found, strict=True):
                shares[wire].append(count / found[0])
            print(f"{power:5.2f} {valency:4} {dim:3} {rows:8,} {found[0] / 1e6:9.1f}  "
                  + "  ".join(f"{count / found[0]:15.3f}" for count in found[1:]), flush=True)  # fmt: skip
    for wire, own in shares.items():
        print(
            f"{_label(wire):>15}: {min(own):.3f}x to {max(own):.3f}x; at most {TARGET}x in {sum(one <= TARGET for one in own)} of {len(own)} cases"
        )
    return max(shares[SETTINGS[-1]]) <= TARGET


@dataclass(frozen=True, slots=True)
class _Secs:
    """Of a lookup and of an update by the clock, and of both by the CPU time of client and servers."""

    lookup: float
    update: float
    cpu: float


def _secs(
    engine: PsEngine, servers: ServerProcesses, batches: Sequence[IdBatch], gradients: np.ndarray, steps: int
) -> _Secs:
    used, lookup, update = time.process_time() + servers.cpu_secs, 0.0, 0.0
    for number in range(steps):
        batch = batches[number % len(batches)]
        began = time.perf_counter()
        engine.lookup(batch)
        looked_up = time.perf_counter()
        engine.apply_gradients(batch, gradients)
        engine.finish()
        lookup, update = lookup + looked_up - began, update + time.perf_counter() - looked_up
    return _Secs(lookup / steps, update / steps, (time.process_time() + servers.cpu_secs - used) / steps)


@contextmanager
def _reached(addresses: Sequence[Address], gigabits: float) -> Iterator[Sequence[Address]]:
    if not gigabits:
        yield addresses
        return
    with DelayedNetwork(addresses, Network(0.0, gigabits * 1e9 / 8 / len(addresses))) as network:
        yield network.addresses


def measure_speed(gigabits: float, rounds: int, steps: int) -> None:
    """Print the speed of each setting over one network."""
    batches = [make_batch(_SPEED_POWER, _SPEED_VALENCY, seed) for seed in range(_BATCHES)]
    gradients = _gradients(_SPEED_DIM)
    with ServerProcesses(SERVERS) as servers, _reached(servers.addresses, gigabits) as addresses:
        found: dict[WireSettings, list[_Secs]] = {one: [] for one in SETTINGS}
        engines = {
            wire: PsEngine(
                features_of(_SPEED_DIM), seed=1, threads=1, wire=wire, staleness=None,
                servers=connects_to(addresses, Greeting(client=k, clients=len(SETTINGS))),
            )
            for k, wire in enumerate(SETTINGS)
        }  # fmt: skip
        for number in range(rounds + 1):
            for wire, engine in engines.items():
                secs = _secs(engine, servers, batches, gradients, steps)
                if number:  # in the first round rows get their initial values
                    found[wire].append(secs)
        for engine in engines.values():
            engine.close()
    _report(gigabits, found)


def _report(gigabits: float, found: dict[WireSettings, list[_Secs]]) -> None:
    plain = found[SETTINGS[0]]
    for wire, own in found.items():
        lookups, updates, cpu = (
            statistics.median(getattr(one, name) for one in own) for name in ("lookup", "update", "cpu")
        )
        ratios = [
            statistics.median((a.lookup + a.update) / (b.lookup + b.update) for a, b in zip(plain, own, strict=True)),
            statistics.median(b.cpu / a.cpu for a, b in zip(plain, own, strict=True)),
        ]
        network = f"{gigabits:g} Gbit/s" if gigabits else "loopback"
        print(f"{network:>11}  {_label(wire):>15}  {1 / lookups:9.1f} {1 / updates:9.1f}  {ratios[0]:6.2f}x  {1e3 * cpu:8.1f} {ratios[1]:6.2f}x", flush=True)  # fmt: skip


def main() -> int:
    """Measure and print; the exit status is 1 if a case is above the target of bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--gigabits", type=float, nargs="+", default=[0.0, 10.0, 1.0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    both = not (given.bytes or given.speed)
    print(f"{machine()}; {SERVERS} servers, {_EVENTS:,} events of {_TABLES} tables of {_ROWS:,} rows")
    is_met = measure_bytes() if given.bytes or both else True
    if given.speed or both:
        print(f"power {_SPEED_POWER}, bags of {_SPEED_VALENCY}, {_SPEED_DIM} columns")
        print("    network      ids, values  lookups/s updates/s  steps    CPU ms    CPU")
        for gigabits in given.gigabits:
            measure_speed(gigabits, given.rounds, given.steps)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
