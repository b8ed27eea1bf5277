"""The rows of histories as one sequence feature, against a feature of one id for each place.

    python -m benchmarks.sequence_lookups [--events N] [--lengths N ...] [--rounds N] [--steps N]

Both sides look up the same rows of one table of 16 columns and update them by the same gradients, with Adagrad; activations are compared bit for bit. Ids follow a power
law; histories have from one id to as many as places. A step is a lookup and an update, here and on two parameter servers of this machine. Sides alternate
in rounds; milliseconds are medians over rounds, CPU milliseconds those of this process and the servers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.server_processes import ServerProcesses, connects_to
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine

Array = np.ndarray[Any, np.dtype[Any]]
_ROWS, _DIM, _SKEW, _SERVERS = 100_000, 16, 1.2, 2


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Features, and the batch that they take; both sides have the same activations."""

    features: tuple[FeatureSpec, ...]
    batch: IdBatch


def _sides(events: int, length: int, seed: int = 0) -> dict[str, _Side]:
    draw = np.random.default_rng(seed)
    table = TableSpec("items", _ROWS, _DIM, Adagrad(0.01), "sum")
    counts = draw.integers(1, length + 1, events)
    ids = (draw.zipf(_SKEW, int(counts.sum())) % _ROWS).astype(np.int32)
    starts = np.r_[0, np.cumsum(counts)]
    one = _Side((FeatureSpec("history", table, length),), IdBatch(ids, starts[None]))
    places = [np.flatnonzero(counts > k) for k in range(length)]
    each = np.concatenate([ids[starts[own] + k] for k, own in enumerate(places)])
    sizes = np.stack([counts > k for k in range(length)]).astype(np.int64)
    offsets = np.zeros((length, events + 1), np.int64)
    offsets[:, 1:] = np.cumsum(sizes).reshape(sizes.shape)
    offsets[1:, 0] = offsets[:-1, -1]
    many = _Side(tuple(FeatureSpec(f"place{k}", table) for k in range(length)), IdBatch(each, offsets))
    return {"one sequence": one, "an input a place": many}


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of a step: milliseconds by the clock and of CPU, and kB on the wire."""

    wall: float
    cpu: float
    wire: float


def _measure(engine: Any, side: _Side, gradients: Array, steps: int, servers: ServerProcesses | None) -> _Cost:
    def used() -> float:
        return time.process_time() + (servers.cpu_secs if servers else 0.0)

    sent = engine.wire_bytes if servers else 0
    before, began = used(), time.perf_counter()
    for _ in range(steps):
        engine.lookup(side.batch)
        engine.apply_gradients(side.batch, gradients)
    if servers:
        engine.finish()
    wall, cpu = time.perf_counter() - began, used() - before
    sent = engine.wire_bytes - sent if servers else 0
    return _Cost(1e3 * wall / steps, 1e3 * cpu / steps, sent / 1e3 / steps)


def _compare(events: int, length: int, rounds: int, steps: int) -> None:
    sides = _sides(events, length)
    gradients = (np.random.default_rng(1).normal(size=(events, length * _DIM)) * 1e-3).astype(np.float32)
    here = {name: CpuEngine(side.features, seed=0) for name, side in sides.items()}
    first, second = (here[name].lookup(side.batch) for name, side in sides.items())
    assert first.tobytes() == second.tobytes(), "both sides look up the same rows"
    none: dict[str, ServerProcesses | None] = dict.fromkeys(sides)
    _print_costs("here", length, _alternate(sides, here, none, gradients, rounds, steps))
    with ServerProcesses(_SERVERS) as one, ServerProcesses(_SERVERS) as other:
        servers = dict(zip(sides, (one, other), strict=True))
        remote = {
            name: PsEngine(side.features, seed=0, servers=connects_to(servers[name].addresses), threads=1)
            for name, side in sides.items()
        }
        _print_costs("two servers", length, _alternate(sides, remote, servers, gradients, rounds, steps))
        for engine in remote.values():
            engine.close()


def _alternate(
    sides: Mapping[str, _Side],
    engines: Mapping[str, Any],
    servers: Mapping[str, ServerProcesses | None],
    gradients: Array,
    rounds: int,
    steps: int,
) -> dict[str, list[_Cost]]:
    """The costs of each side in rounds, after one that is not measured."""
    costs: dict[str, list[_Cost]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            found = _measure(engines[name], side, gradients, steps, servers[name])
            costs[name] += [found] if number else []
    return costs


def _print_costs(place: str, length: int, costs: Mapping[str, list[_Cost]]) -> None:
    base = next(iter(costs.values()))
    for name, own in costs.items():
        wall, cpu, wire = (statistics.median(getattr(one, field) for one in own) for field in ("wall", "cpu", "wire"))
        ratio = statistics.median(one.cpu / other.cpu for one, other in zip(own, base, strict=True))
        sent = f"  {wire:9.1f} kB on the wire" if wire else ""
        print(
            f"  {place:12} {length:4} places  {name:18} {wall:8.2f} ms, CPU {cpu:8.2f} ms, {ratio:5.2f}x{sent}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1024)
    parser.add_argument("--lengths", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    print(machine())
    print(f"a lookup and an update of the rows of {given.events:,} histories, {_DIM} columns")
    for length in given.lengths:
        _compare(given.events, length, given.rounds, given.steps)


if __name__ == "__main__":
    main()
