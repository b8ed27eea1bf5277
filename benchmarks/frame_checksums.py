"""What the checksums of frames cost a training step on parameter servers, and how fast XXH3 and CRC32C are.

    python -m benchmarks.frame_checksums [--rounds N] [--steps N] [--servers N]

Two sets of servers run in processes of their own: one that sums the bodies of frames, and one that does not; the client does as its servers do. Both
train the same batches, some steps in turns. A step here is a lookup and an update without a dense model, so its share is an upper bound of that of a
whole training step. The speeds of both algorithms are those of this machine's packages, over bodies of several lengths.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import xxhash

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from benchmarks.support.server_processes import ServerProcesses, row_server
from trainer.servers.row_server import RowServer
from trainer.tables.routes.servers.engine import PsEngine
from trainer.wire import frames
from trainer.wire.frames import Bytes

#: Of a training step.
TARGET_SHARE = 0.02
_TABLES = (DrawnTable(100_000, 16, 4, 1.1),) * 20
_EVENTS, _BATCHES = 1024, 8
_LENGTHS = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
_SUM = frames.checksum_of


def _no_sum(parts: Sequence[Bytes]) -> int:
    """The checksum of the side without checksums."""
    return 0


def _use(sums: Callable[[Sequence[Bytes]], int]) -> None:
    """Let frames of this process have the checksums of a side."""
    vars(frames)["checksum_of"] = sums


def unchecked_server(folder: Path | None) -> RowServer:
    """A server whose process does not sum the bodies of frames."""
    _use(_no_sum)
    return row_server(folder)


class _Side:
    """An engine on its servers."""

    def __init__(self, servers: ServerProcesses, sums: Callable[[Sequence[Bytes]], int], drawn: DrawnSet) -> None:
        self._sums, self._batches, self._steps = sums, drawn.batches(_BATCHES, seed=1), 0
        _use(sums)
        self._engine = PsEngine(drawn.features(), seed=1, servers=servers.connects(), threads=1)

    def train(self, steps: int) -> float:
        """Train some steps; returns the seconds of each of them."""
        _use(self._sums)
        began = time.perf_counter()
        for _ in range(steps):
            batch = self._batches[self._steps % _BATCHES]
            activations = self._engine.lookup(batch)
            self._engine.apply_gradients(batch, (0.01 * activations).astype(np.float32))
            self._steps += 1
        self._engine.finish()
        return (time.perf_counter() - began) / steps

    def bytes_of_step(self) -> int:
        """The bytes of a step in both directions, on average."""
        links = [one.link for one in self._engine.servers]
        return sum(one.sent_bytes + one.received_bytes for one in links) // max(self._steps, 1)

    def close(self) -> None:
        """End the connections."""
        _use(self._sums)
        self._engine.close()


def _secs_of(work: Callable[[Any], object], content: object, least_secs: float = 0.2) -> float:
    """The median seconds of a call."""
    found: list[float] = []
    until = time.perf_counter() + least_secs
    while time.perf_counter() < until or len(found) < 5:
        began = time.perf_counter()
        work(content)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _print_speeds() -> None:
    print("  bytes        XXH3, 64 bits        CRC32C of google-crc32c")
    for length in _LENGTHS:
        content = np.random.default_rng(0).integers(0, 256, length, np.uint8).tobytes()
        each = [_secs_of(work, content) for work in (xxhash.xxh3_64_intdigest, google_crc32c.value)]
        print(f"{length:12,}  " + "  ".join(f"{1e6 * secs:9.1f} µs {length / secs / 1e9:5.1f} GB/s" for secs in each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--servers", type=int, default=2)
    options = parser.parse_args()
    print(machine())
    _print_speeds()
    drawn = DrawnSet(_TABLES, _EVENTS, has_slots=True)
    with ServerProcesses(options.servers) as checked, ServerProcesses(options.servers, unchecked_server) as unchecked:
        sides = [_Side(checked, _SUM, drawn), _Side(unchecked, _no_sum, drawn)]
        for side in sides:
            side.train(_BATCHES)
        rounds = [[side.train(options.steps) for side in sides] for _ in range(options.rounds)]
        size = sides[0].bytes_of_step()
        for side in sides:
            side.close()
    with_sums, without = (statistics.median(one[k] for one in rounds) for k in range(2))
    share = statistics.median(one[0] / one[1] - 1.0 for one in rounds)
    sums_secs = 2 * _secs_of(_SUM, [bytes(size)])
    print(
        f"a step of {size:,} bytes: {1e3 * with_sums:.2f} ms with checksums, {1e3 * without:.2f} ms without, {share:+.1%} in the median of rounds"
    )
    print(
        f"checksums of both ends alone: {1e3 * sums_secs:.3f} ms, {sums_secs / without:.1%} of a step; target at most {TARGET_SHARE:.0%}"
    )


if __name__ == "__main__":
    main()
