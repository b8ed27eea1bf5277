"""A parameter server that is killed while it serves training: how long training waits, and whether anything is lost.

    python -m benchmarks.ps_restart [--kills N] [--keeper-kills N] [--secs-between N] [--servers N]

Servers are those of ``headrace ps serve``, as a run on one machine starts them. This process looks rows up and updates them, step after step; at
random moments a random server's process that answers is killed by SIGKILL, then in a second part the keeper, with which the whole server ends.
The time that training waits is the longest step in which a server was killed or away. An undisturbed twin trains the same batches on other servers, and
weights and slots of both are compared bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.local_servers import LocalServers
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables.routes.servers.engine import PsEngine

Array = np.ndarray[Any, np.dtype[Any]]

TARGET_SECS = 1.0
_TABLES = (DrawnTable(100_000, 16, 4, 1.1),) * 20
_EVENTS, _BATCHES = 512, 16
_FIRST_STEPS, _SETTLE_SECS = 20, 3.0
#: A server that is started again loads its code first.
_KEEPER_PAUSE = 8.0


class _Training:
    """Steps on servers, each with the time when it ended."""

    def __init__(self, servers: LocalServers) -> None:
        drawn = DrawnSet(_TABLES, _EVENTS, has_slots=True)
        options = LinkOptions(Greeting(servers.token), patience_secs=60.0)
        connects = [connect_to(one, options) for one in servers.addresses]
        self._engine = PsEngine(drawn.features(), seed=1, servers=connects, threads=1)
        self._batches = drawn.batches(_BATCHES, seed=1)
        self.ended: list[float] = []

    def step(self) -> None:
        """Look a batch up, and update its rows by gradients that depend on them."""
        batch = self._batches[len(self.ended) % _BATCHES]
        activations = self._engine.lookup(batch)
        self._engine.apply_gradients(batch, (0.01 * activations + 0.001).astype(np.float32))
        self.ended.append(time.monotonic())

    def state(self) -> dict[str, tuple[Array, Array, Array]]:
        """Rows, weights and slots of each table."""
        return {name: (one.rows, one.weights, one.slots) for name, one in self._engine.state().items()}

    def close(self) -> None:
        """End the connections."""
        self._engine.close()


def _command(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "headrace", "ps", "serve", *options]


def _child(keeper: int) -> int | None:
    """The process that answers; None while there is none."""
    found = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return int(found[0]) if found else None


def _kill(servers: LocalServers, draw: random.Random, *, keeper: bool) -> float:
    """Kill a random server; returns when."""
    while True:
        pids = list(servers.processes.values())
        target = draw.choice(pids) if pids else None
        target = target if keeper or target is None else _child(target)
        if target is not None:
            moment = time.monotonic()
            os.kill(target, signal.SIGKILL)
            return moment
        time.sleep(0.01)


def _disturb(training: _Training, kills: int, kill: Callable[[], float], secs_between: float, draw: random.Random) -> list[float]:  # fmt: skip
    """Train while servers are killed; returns the moments of the kills."""
    moments: list[float] = []

    def kill_all() -> None:
        for _ in range(kills):
            time.sleep(secs_between * (0.5 + draw.random()))
            moments.append(kill())
        time.sleep(_SETTLE_SECS)

    killing = threading.Thread(target=kill_all)
    killing.start()
    while killing.is_alive():
        training.step()
    killing.join()
    return moments


def _waits(ended: Sequence[float], moments: Sequence[float]) -> list[float]:
    """The seconds of the longest step that ended within a while after each kill."""
    ends = np.array(ended)
    found = []
    for moment in moments:
        first = int(np.searchsorted(ends, moment))
        later = [one for one in moments if one > moment]
        stop = int(np.searchsorted(ends, later[0])) if later else len(ends)
        found.append(float(np.diff(ends[first - 1 : stop + 1]).max()))
    return found


def _report(name: str, waits: Sequence[float], usual: float) -> None:
    if not waits:
        return
    worst = max(waits)
    print(f"{name}: {len(waits)} kills, training waited {1e3 * statistics.median(waits):.0f} ms in the median, at most {1e3 * worst:.0f} ms; "
          f"an undisturbed step {1e3 * usual:.0f} ms (target under {TARGET_SECS:g} s: {'met' if worst < TARGET_SECS else 'missed'})", flush=True)  # fmt: skip


def _measure(kills: int, keeper_kills: int, secs_between: float, count: int, folder: Path) -> None:
    draw, files = random.Random(1), JobFiles(folder)
    files.make_token()
    with LocalServers(count, _command, token_file=files.token, logs=folder / "logs") as servers:
        training = _Training(servers)
        for _ in range(_FIRST_STEPS):
            training.step()
        parts = {}
        for name, number, is_keeper in (
            ("the process that answers", kills, False),
            ("keeper and all", keeper_kills, True),
        ):
            pause = secs_between * (_KEEPER_PAUSE if is_keeper else 1.0)
            moments = _disturb(training, number, lambda is_keeper=is_keeper: _kill(servers, draw, keeper=is_keeper), pause, draw)  # fmt: skip
            parts[name] = _waits(training.ended, moments)
        state, steps = training.state(), len(training.ended)
        training.close()
    with LocalServers(count, _command, token_file=files.token, logs=folder / "twin") as servers:
        twin = _Training(servers)
        for _ in range(steps):
            twin.step()
        expected = twin.state()
        usual = float(np.median(np.diff(twin.ended[_FIRST_STEPS:])))
        longest = float(np.diff(twin.ended[_FIRST_STEPS:]).max())
        twin.close()
    for name, waits in parts.items():
        _report(name, waits, usual)
    print(f"the twin's longest step {1e3 * longest:.0f} ms")
    is_equal = state.keys() == expected.keys() and all(
        all(np.array_equal(a, b) for a, b in zip(state[name], expected[name], strict=True)) for name in state
    )
    print(
        f"{steps} steps; weights and slots of {sum(len(one[0]) for one in state.values()):,} rows equal those of the undisturbed twin: {is_equal}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--keeper-kills", type=int, default=3)
    parser.add_argument("--secs-between", type=float, default=1.0)
    parser.add_argument("--servers", type=int, default=2)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        _measure(given.kills, given.keeper_kills, given.secs_between, given.servers, Path(folder))


if __name__ == "__main__":
    main()
