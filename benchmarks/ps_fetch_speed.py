"""Fetched bytes a second of one parameter server's core, against a bare Arrow Flight exchange of the same bytes.

    python -m benchmarks.ps_fetch_speed [--rounds N] [--megabytes N]

Each side has one server process, and a client in this process that has two messages on the way. Headrace's server gathers the asked rows from
a table; Flight's server reads none: it answers the messages with 16 prepared batches, one after the other. Rows are drawn at random, distinct in a
message, from a table that fits in the caches (2 MB) and from one that does not (1 GB), in 16 messages. Messages of both sides have the same
numbers of rows and answers of the same length. Sides alternate in rounds of at least ``--megabytes`` of answers. Printed are bytes of answers a second of wall clock and of
the server's CPU time, and the median ratio of a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.support.flight_exchange import PREPARED, FlightProcess
from benchmarks.support.harness import machine
from benchmarks.support.server_processes import ServerProcess, connects_to
from trainer.tables import SGD, TableSpec
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.routes.servers.remote_tables import RemoteTables
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.table_documents import held_tables

TARGET = 0.7
_AHEAD = 2
_SMALL_BYTES, _LARGE_BYTES = 2 << 20, 1 << 30
_MESSAGE_ROWS, _COLUMNS = (1_000, 10_000, 100_000), (16, 64)
#: Distinct messages, as many as Flight has answers.
_DRAWN = PREPARED


@dataclass(frozen=True, slots=True)
class _Speed:
    """Bytes of answers a second: of the wall clock, and of the server's CPU time."""

    wall: float
    core: float


class Fetches:
    """The messages of one case to a parameter server."""

    def __init__(self, server: ServerProcess, table_rows: int, columns: int, message_rows: int) -> None:
        name = f"t{table_rows}x{columns}"
        table = TableSpec(name, table_rows, columns, SGD(0.01), "sum")
        held = held_tables([(table, TableOrigin(name, 1, 0, 0))], 1)
        self._remote = RemoteTables(connects_to([server.address])[0], held)
        draw = np.random.default_rng(5)
        self._messages = [
            RowNumbers(_distinct(draw, table_rows, message_rows), np.array([message_rows])) for _ in range(_DRAWN)
        ]
        self._rooms = [np.empty(message_rows * columns, np.float32) for _ in range(_AHEAD)]

    def run(self, messages: int) -> None:
        """Send messages, and take their answers."""
        remote, link = self._remote, self._remote.link
        for number in range(messages):
            if link.waiting == _AHEAD:
                link.receive()
            remote.begin_fetch(self._messages[number % _DRAWN], [self._rooms[number % _AHEAD]], -1)
        remote.finish()

    def close(self) -> None:
        """End the connection."""
        self._remote.close()


def _distinct(draw: np.random.Generator, table_rows: int, count: int) -> np.ndarray:
    rows = np.unique(draw.integers(0, table_rows, int(1.2 * count) + 16))
    while len(rows) < count:
        rows = np.unique(np.concatenate([rows, draw.integers(0, table_rows, count)]))
    return draw.permutation(rows)[:count].astype(np.int32)


def _speed(run: Callable[[int], None], cpu_secs: Callable[[], float], messages: int, answer_bytes: int) -> _Speed:
    before, began = cpu_secs(), time.perf_counter()
    run(messages)
    wall, used = time.perf_counter() - began, cpu_secs() - before
    return _Speed(messages * answer_bytes / wall, messages * answer_bytes / used)


def _measure(
    size_bytes: int, columns: int, message_rows: int, rounds: int, round_bytes: int, flight: FlightProcess
) -> float:
    answer_bytes = 4 * columns * message_rows
    messages = max(round_bytes // answer_bytes, _DRAWN)
    table_rows = size_bytes // (4 * columns)
    server = ServerProcess()
    fetches = Fetches(server, table_rows, columns, message_rows)
    ours, theirs = [], []
    for number in range(rounds + 1):
        a = _speed(fetches.run, lambda: server.cpu_secs, messages, answer_bytes)
        exchange = lambda count: flight.exchange(message_rows, columns * message_rows, count, _AHEAD)  # noqa: E731
        b = _speed(exchange, lambda: flight.cpu_secs, messages, answer_bytes)
        if number:  # in the first round rows get their initial values
            ours.append(a)
            theirs.append(b)
    fetches.close()
    server.close()
    return _report(size_bytes, columns, message_rows, ours, theirs)


def _report(size_bytes: int, columns: int, message_rows: int, ours: list[_Speed], theirs: list[_Speed]) -> float:
    core = statistics.median(a.core / b.core for a, b in zip(ours, theirs, strict=True))
    wall = statistics.median(a.wall / b.wall for a, b in zip(ours, theirs, strict=True))

    def gigabytes(found: list[_Speed], name: str) -> float:
        return statistics.median(getattr(one, name) for one in found) / 1e9

    print(f"{size_bytes >> 20:>9,} {columns:>8} {message_rows:>9,}   {gigabytes(ours, 'core'):6.2f} {gigabytes(theirs, 'core'):6.2f} {core:7.2f}   "
          f"{gigabytes(ours, 'wall'):6.2f} {gigabytes(theirs, 'wall'):6.2f} {wall:7.2f}", flush=True)  # fmt: skip
    return core


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    print(machine())
    print("GB/s of answers: Headrace, Flight, ratio       a core of the server            wall clock")
    print(" table MB  columns  rows of a message")
    flight = FlightProcess()
    ratios = [
        _measure(size_bytes, columns, rows, options.rounds, options.megabytes * 10**6, flight)
        for size_bytes in (_SMALL_BYTES, _LARGE_BYTES)
        for columns in _COLUMNS
        for rows in _MESSAGE_ROWS
        if size_bytes // (4 * columns) >= rows
    ]
    flight.close()
    least = min(ratios)
    print(f"a core of the server: {least:.2f} to {max(ratios):.2f} of Flight's bytes (target at least {TARGET}: "
          f"{'met' if least >= TARGET else 'missed'})")  # fmt: skip


if __name__ == "__main__":
    main()
