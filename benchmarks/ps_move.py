"""Tables that are moved to more and to fewer parameter servers while training goes on: how long training waits, beside a checkpoint.

    python -m benchmarks.ps_move [--gib N] [--servers N N]

Servers are those of ``headrace ps serve``. This process looks rows up and updates them, step after step, while all rows are moved from the first
number of servers to the second one, and back: servers take their rows from one another. Then the same rows take the way of a planned end: training waits while they are written as a
checkpoint, read and loaded into other servers. Weights and slots are compared bit for bit with those before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from trainer.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.run.weights.saved_tables import parted_tables, saved_states
from trainer.servers.client_updates import Greeting
from trainer.servers.loads.copy_orders import CopySources
from trainer.servers.moves.engine_move import EngineMove
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables.engine import TableState
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.named_servers import NamedServers

Array = np.ndarray[Any, np.dtype[Any]]

_TABLES, _DIM, _EVENTS, _BATCHES = 20, 16, 512, 16
#: Weights and slots of Adagrad of a row.
_ROW_BYTES = 8 * _DIM
_FIRST_STEPS = 30
_LOADED_ROWS = 1 << 17


class _Training:
    """Steps of an engine, each with its seconds."""

    def __init__(self, drawn: DrawnSet, servers: LocalServers) -> None:
        self._drawn, self._batches = drawn, drawn.batches(_BATCHES, seed=1)
        self.engine, self.steps, self.secs = self.on(servers), 0, list[float]()
        self.servers = servers

    @property
    def sources(self) -> CopySources:
        """The servers, as others take rows from them."""
        return CopySources(NamedServers(self.servers.addresses, self.servers.token), 1)

    def on(self, servers: LocalServers) -> PsEngine:
        """An engine of the tables on servers."""
        options = LinkOptions(Greeting(servers.token, attempt=1))
        connects = [connect_to(one, options) for one in servers.addresses]
        return PsEngine(self._drawn.features(), seed=1, servers=connects, threads=1)

    def step(self) -> None:
        """Look a batch up, and update its rows by gradients that depend on them."""
        began = time.monotonic()
        batch = self._batches[self.steps % _BATCHES]
        activations = self.engine.lookup(batch)
        self.engine.apply_gradients(batch, (0.01 * activations + 0.001).astype(np.float32))
        self.steps += 1
        self.secs.append(time.monotonic() - began)

    def fill(self) -> None:
        """Change all rows, as long training does."""
        rng = np.random.default_rng(2)
        for one in self.engine.servers:
            one.begin_load()
        for t, table in enumerate(self.engine.parts.tables):
            for first in range(0, table.vocabulary_size, _LOADED_ROWS):
                rows = np.arange(first, min(first + _LOADED_ROWS, table.vocabulary_size))
                weights, slots = rng.random((2, len(rows), _DIM), np.float32)
                state = TableState(rows, weights, slots)
                for p in self.engine.parts.of_table(t):
                    for server, one in enumerate(self.engine.servers):
                        one.load_rows(p, self.engine.parts.parts[p].own_state(server, state))
        for one in self.engine.servers:
            one.end_load()

    def sums(self) -> list[int]:
        """Of the bits of the weights and slots of each table, in the order of rows."""
        found = self.engine.state()
        return [
            hash((one.rows.tobytes(), one.weights.tobytes(), one.slots.tobytes()))
            for one in (found[name] for name in self._drawn.names())
        ]


def _command(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "headrace", "ps", "serve", *options]


def _move(training: _Training, target: LocalServers) -> None:
    """Move all tables while training goes on, and print what it took."""
    before = statistics.median(training.secs[-_FIRST_STEPS:])
    first = len(training.secs)
    with ThreadPoolExecutor(1) as executor:
        sources, target_engine = training.sources, training.on(target)
        before_bytes = target_engine.wire_bytes
        move = EngineMove(training.engine, lambda check: target_engine, executor, sources)
        while (found := move.advance()) is None:
            training.step()
    training.engine.close()
    training.servers, control_bytes = target, found.wire_bytes - before_bytes
    old, training.engine = len(training.engine.servers), found
    during, of = training.secs[first:], move.figures
    print(f"moved from {old} to {len(target.addresses)} servers in {of.secs:.1f} s: {of.copied_rows:,} rows in {of.passes} passes beside {len(during)} steps, "
          f"{of.pause_rows:,} rows in a pause of {1e3 * of.pause_secs:.0f} ms; a step {1e3 * before:.0f} ms before, {1e3 * statistics.median(during):.0f} ms "
          f"meanwhile, at most {1e3 * max(during):.0f} ms; {of.copied_rows * _ROW_BYTES / 1e9:.2f} GB of values from server to server, "
          f"{control_bytes / 1e6:.2f} MB of orders and row numbers through training", flush=True)  # fmt: skip


def _through_checkpoint(training: _Training, target: LocalServers, folder: Path) -> None:
    """Move all tables through a checkpoint, while training waits."""
    began = time.monotonic()
    parts = parted_tables(lambda name: ("embedding", name), training.engine, 256 << 20)
    path = write_checkpoint(folder, 1, {}, {}, parts, keep=1)
    written = time.monotonic()
    arrays = read_checkpoint(path).arrays
    read = time.monotonic()
    other = training.on(target)
    other.load_state(saved_states(arrays, "embedding"))
    ended = time.monotonic()
    training.engine.close()
    training.engine = other
    print(f"through a checkpoint in {ended - began:.1f} s, all of them a pause: written in {written - began:.1f} s, read in {read - written:.1f} s, "
          f"loaded in {ended - read:.1f} s, without the start of a process", flush=True)  # fmt: skip


def _measure(gib: float, counts: tuple[int, int], folder: Path) -> None:
    rows = int(gib * (1 << 30) / _TABLES / _ROW_BYTES)
    drawn = DrawnSet((DrawnTable(rows, _DIM, 4, 1.1),) * _TABLES, _EVENTS, has_slots=True)
    print(f"{_TABLES} tables of {rows:,} rows of {_DIM} weights and {_DIM} slots, {gib:g} GiB; {_EVENTS} events a step")
    first, second = counts
    files = JobFiles(folder)
    files.make_token()
    servers = LocalServers(first, _command, token_file=files.token, logs=folder / "logs").__enter__()
    training = _Training(drawn, servers)
    training.fill()
    for _ in range(_FIRST_STEPS):
        training.step()
    moves: Iterator[tuple[int, Callable[[_Training, LocalServers], None]]] = iter((
        (second, _move),
        (first, _move),
        (second, lambda one, target: _through_checkpoint(one, target, folder / "run")),
    ))  # fmt: skip
    for count, move in moves:
        target = LocalServers(count, _command, token_file=files.token, logs=folder / "logs").__enter__()
        try:
            training.engine.finish()
            move(training, target)
        finally:
            servers.end()
            servers = target
        for _ in range(_FIRST_STEPS):
            training.step()
    found, steps = training.sums(), training.steps
    training.engine.close()
    servers.end()
    with LocalServers(first, _command, token_file=files.token, logs=folder / "logs") as twin_servers:
        twin = _Training(drawn, twin_servers)
        twin.fill()
        for _ in range(steps):
            twin.step()
        print(f"{steps} steps; weights and slots equal those of an undisturbed twin: {twin.sums() == found}")
        twin.engine.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--servers", type=int, nargs=2, default=(4, 6))
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        _measure(given.gib, tuple(given.servers), Path(folder))


if __name__ == "__main__":
    main()
