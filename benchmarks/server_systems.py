"""Steps of hashed tables of Headrace beside the dynamic embeddings of TensorFlow Recommenders Addons (TFRA), in process and on a server.

    python -m benchmarks.server_systems [--case 26x1024 ...] [--rounds 7] [--steps 100]

A case is tables x events: one id an event of each table, by a power law of exponent 1.2 among 100,000 numbers below 2^62, rows of 16 columns with Adagrad, no dense part. Tables
in a process have one thread, and two; a server and its client have one each. TFRA's step is one call of a session, ours is a lookup and an update. Where rows are on a server, activations and
gradients pass through the client. All sides get the same ids and gradients, and the activations of the last step of a round must be equal. Sides alternate; a ratio is the
median over rounds, with the smallest and the largest. ``python -m benchmarks.support.tfra_environment`` (``make tfra``) installs TFRA in ``.tfra/``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.support import tfra_environment
from benchmarks.support.harness import machine
from benchmarks.support.system_case import SystemCase, SystemSide

CASES = ("26x1024", "8x128")
_OURS, _THEIRS = "benchmarks.support.side_of_hashed_tables", "benchmarks.support.side_of_tfra"
#: Sides by name: whether it is ours, and where its tables are; a number: in its process, with so many threads.
SIDES: Mapping[str, tuple[bool, str]] = {
    "TFRA, in process, 1 thread": (False, "1"),
    "headrace, in process, 1 thread": (True, "1"),
    "TFRA, in process, 2 threads": (False, "2"),
    "headrace, in process, 2 threads": (True, "2"),
    "TFRA, on a TensorFlow server": (False, "server"),
    "headrace, on a server": (True, "server"),
    "headrace, on a server with an undo log": (True, "folder"),
}
#: Which side each of ours is compared with.
_PEERS = {
    "headrace, in process, 1 thread": "TFRA, in process, 1 thread",
    "headrace, in process, 2 threads": "TFRA, in process, 2 threads",
    "headrace, on a server": "TFRA, on a TensorFlow server",
    "headrace, on a server with an undo log": "TFRA, on a TensorFlow server",
}
Rounds = Mapping[str, Sequence[Mapping[str, float]]]


def measure(case: SystemCase, rounds: int, steps: int) -> Rounds:
    """What each side took in each round. Raises :class:`SystemExit` for sides with other activations."""
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "case.npz"
        case.write(file)
        sides = [
            stack.enter_context(
                SystemSide(
                    name,
                    Path(sys.executable) if is_ours else tfra_environment.PYTHON,
                    _OURS if is_ours else _THEIRS,
                    [str(file), where],
                )
            )
            for name, (is_ours, where) in SIDES.items()
        ]
        for number in range(rounds):
            for side in sides if number % 2 else reversed(sides):
                found[side.name].append(side.measure(steps))
            _check_equal({name: own[-1] for name, own in found.items()})
    return found


def _check_equal(found: Mapping[str, Mapping[str, float]]) -> None:
    """Raise :class:`SystemExit` unless all sides have the same activations, but for the rounding of sums."""
    first = next(iter(found.values()))
    for name, one in found.items():
        if any(abs(one[kind] - first[kind]) > 1e-3 * abs(first["squares"]) for kind in ("sum", "squares")):
            raise SystemExit(f"activations must be equal, got {one} of {name}, and {first}")


def report(case: SystemCase, found: Rounds) -> None:
    """Print the sides of a case, and the ratios."""
    print(f"\n{case.name}: {case.tables} tables of {case.dim} columns, {case.events} events")
    for name, own in found.items():
        secs, cpu = (1e3 * statistics.median(one[kind] for one in own) for kind in ("secs", "cpu_secs"))
        print(f"  {name:<40} {1e3 / secs:7.1f} steps/s, {secs:7.2f} ms, {cpu:7.2f} ms of the processor")
    for name, peer in _PEERS.items():
        rate, cpu_ratio = (_ratio(found[peer], found[name], kind) for kind in ("secs", "cpu_secs"))
        print(f"  {name} by {peer}: {rate} of the steps a second, {cpu_ratio} of the steps a processor second")


def _ratio(theirs: Sequence[Mapping[str, float]], ours: Sequence[Mapping[str, float]], kind: str) -> str:
    ratios = [one[kind] / other[kind] for one, other in zip(theirs, ours, strict=True)]
    return f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    print(machine())
    if why := tfra_environment.install():
        raise SystemExit(f"TensorFlow Recommenders Addons cannot be had: {why}")
    for name in given.case:
        tables, events = map(int, name.split("x"))
        case = SystemCase(tables, events)
        report(case, measure(case, given.rounds, given.steps))


if __name__ == "__main__":
    main()
