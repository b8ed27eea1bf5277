"""Synchronous, hybrid and asynchronous training on parameter servers: speed at a network delay of 1 ms, and quality.

    python -m benchmarks.ps_modes [--speed] [--quality --data FOLDER] [--delay-us N] [--dense-ms N ...] [--clients N] [--rounds N] [--seeds N]

Speed: clients are processes that look up and update the same tables on two servers, over a network that delays each way. Their dense part takes a
fixed time and leaves the processor free, as that of an accelerator does. "sync": the updates of all clients are applied together, and the next lookup
waits for them. "hybrid": lookups are up to 5 steps ahead, updates are applied as they arrive, and servers make a fetch wait that would miss more than 5
of another client. "async": the same without that bound. Modes alternate in rounds; printed are steps a second, the median ratios to sync, and
how many updates of other clients the fetches have missed, as servers count them.

Quality: DLRM trains each log with the same options and seeds, and each lookup misses the updates of exactly 0, 5 and 64 steps; the last is more than
fetches missed in "async" above. AUC is that of the newest partitions. ``--data`` holds the public logs. Without an option only speed is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.support.delayed_network import DelayedNetwork, Network
from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from benchmarks.support.job_token import TOKEN
from benchmarks.support.mode_clients import ClientCase, ModeClients, TrainingMode
from benchmarks.support.mode_quality import describe, measure_quality
from benchmarks.support.quality_logs import public_logs
from benchmarks.support.server_processes import ServerProcesses
from trainer.servers.client_updates import Mode
from trainer.servers.server_status import read_status

SPEED_TARGET, QUALITY_TARGET = 2.6, 0.001
_SERVERS, _BOUND, _UNBOUNDED = 2, 5, 64
_MODES = (
    TrainingMode("sync", Mode.SUMMED, 0, 0),
    TrainingMode("hybrid", Mode.EACH, _BOUND, _BOUND),
    TrainingMode("async", Mode.EACH, _BOUND, None),
)
_DRAWN = DrawnSet((DrawnTable(100_000, 16, 1, 1.2),) * 8, 128, has_slots=True)
_LOGS = ("globo", "movielens")


@dataclass(frozen=True, slots=True)
class _Measured:
    """Steps a second of each round, and the staleness of all fetches."""

    rates: list[float]
    missed: Counter[int]


def _measure(case: ClientCase, delay_us: int, rounds: int, steps: int) -> dict[str, _Measured]:
    with ExitStack() as stack:
        servers = {mode.name: stack.enter_context(ServerProcesses(_SERVERS)) for mode in _MODES}
        clients = {}
        for mode in _MODES:
            network = DelayedNetwork(servers[mode.name].addresses, Network(delay_us * 1e-6))
            at = stack.enter_context(network).addresses
            clients[mode.name] = stack.enter_context(ModeClients(case, mode, at))
        rates: dict[str, list[float]] = {mode.name: [] for mode in _MODES}
        for number in range(rounds + 1):
            for name, client in clients.items():
                secs = client.train(steps)
                if number:  # the first round reads rows that were never read before
                    rates[name].append(steps / secs)
        found = {}
        for name, one in servers.items():
            missed: Counter[int] = Counter()
            for address in one.addresses:
                missed.update(read_status(address, token=TOKEN).staleness)
            found[name] = _Measured(rates[name], missed)
    return found


def _report(dense_secs: float, found: dict[str, _Measured]) -> float:
    ratios = {}
    for name, one in found.items():
        ratios[name] = statistics.median(a / b for a, b in zip(one.rates, found["sync"].rates, strict=True))
        total = max(one.missed.total(), 1)
        mean = sum(missed * count for missed, count in one.missed.items()) / total
        print(f"{1e3 * dense_secs:>8.0f} ms  {name:<7} {statistics.median(one.rates):8.1f} {ratios[name]:8.2f}x   "
              f"missed updates of others: mean {mean:.2f}, most {max(one.missed, default=0)}", flush=True)  # fmt: skip
    return ratios["hybrid"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/")
    parser.add_argument("--delay-us", type=int, default=1000)
    parser.add_argument("--dense-ms", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print(machine())
    if given.speed or not given.quality:
        print(
            f"{given.clients} clients, {_SERVERS} servers, {given.delay_us} us each way\n dense part  mode      steps/s   by sync"
        )
        cases = [ClientCase(_DRAWN, dense_ms / 1e3, given.clients) for dense_ms in given.dense_ms]
        best = max(
            _report(case.dense_secs, _measure(case, given.delay_us, given.rounds, given.steps)) for case in cases
        )
        print(f"hybrid trains at most {best:.2f}x the steps of sync (target at least {SPEED_TARGET}: "
              f"{'met' if best >= SPEED_TARGET else 'missed'})")  # fmt: skip
    if given.quality:
        for log in (one for one in public_logs(given.data) if one.name in _LOGS):
            print(describe(log.name, measure_quality(log, given.seeds, (0, _BOUND, _UNBOUNDED)), QUALITY_TARGET))


if __name__ == "__main__":
    main()
