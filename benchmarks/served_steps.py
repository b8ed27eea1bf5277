"""The CPU time of a lookup and an update of tables on two servers, client and servers together, by that of its kernels and bare sockets.

    python -m benchmarks.served_steps [--against REVISION] [--rounds 5] [--steps 200] [--case 8x128 ...]

A case is tables x events; tables have 100,000 rows of 16 columns with Adagrad, one id an event by a power law of exponent 1.2. There is no dense part. The floor
has each compiled loop that a step needs called once, on prepared arrays of the same batches in turn, and the bytes of its messages sent between as many processes over sockets
without frames, checksums or timeouts; where servers have their rows in a folder, it has the loop of the undo log, too. With ``--against`` a second client
with servers of its own runs the packages of another revision, in turns with ours, which has a floor of ours. Times are CPU milliseconds a step, user and system,
medians over rounds; a ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from benchmarks.against_revision import REPOSITORY, checkout
from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from benchmarks.support.kernels_of_step import StepKernels, secs_of_calls, secs_of_sockets
from benchmarks.support.side_of_served_steps import BATCHES, DIM, ROWS, SERVERS, SHARED, SKEW
from benchmarks.support.tree_side import TreeSide

#: How many times the floor a step may take, by case.
TARGETS = {"8x128": 3.0, "26x1024": 1.8}
_SIDE = Path(__file__).parent / "support" / "side_of_served_steps.py"


class Side(TreeSide):
    """A process that makes steps on the packages of a tree, and its servers."""

    def __init__(self, tree: Path, case: str, memory: str) -> None:
        super().__init__(tree, _SIDE, [*case.split("x"), memory])

    def steps(self, count: int) -> tuple[float, float, int]:
        """Of a step: the CPU seconds of the client and of the servers, and its bytes."""
        client, servers, size = self.ask(str(count))
        return float(client), float(servers), int(size)


def floor_secs(case: str, *, has_folder: bool, steps: int) -> tuple[float, float, float, float]:
    """CPU seconds of a step: kernels of the client, of the servers, of the undo log, and bare sockets."""
    tables, events = map(int, case.split("x"))
    drawn = DrawnSet((DrawnTable(ROWS, DIM, 1, SKEW),) * tables, events, has_slots=True)
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        kernels = StepKernels(
            drawn.features(), drawn.batches(BATCHES, seed=1), SERVERS, Path(folder) if has_folder else None
        )
        client, servers = secs_of_calls(kernels.client, BATCHES), secs_of_calls(kernels.servers, BATCHES)
        undo = secs_of_calls(kernels.undo, BATCHES) if has_folder else 0.0
        return client, servers, undo, secs_of_sockets(kernels.messages, steps)


def _measure(case: str, memory: str, other: Path | None, rounds: int, steps: int) -> None:
    trees = [REPOSITORY, *(() if other is None else (other,))]
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(tree, case, memory)) for tree in trees]
        found: list[list[tuple[float, float, int]]] = [[] for _ in sides]
        floors: list[tuple[float, float, float, float]] = []
        for number in range(rounds + 1):
            for k in range(len(sides)) if number % 2 else reversed(range(len(sides))):
                found[k].append(sides[k].steps(steps))
            floors.append(floor_secs(case, has_folder=memory == "folder", steps=steps))
    _report(case, memory, [one[1:] for one in found], floors[1:])


def _report(
    case: str, memory: str, found: Sequence[Sequence[tuple[float, float, int]]], floors: Sequence[tuple[float, ...]]
) -> None:
    parts = [1e3 * statistics.median(one[k] for one in floors) for k in range(4)]
    whole = [sum(one) for one in floors]
    print(f"{case}, rows in {'a folder' if memory == 'folder' else 'memory of the process'}: floor {1e3 * statistics.median(whole):.2f} ms "
          f"(kernels of the client {parts[0]:.2f}, of the servers {parts[1]:.2f}, undo log {parts[2]:.2f}, sockets {parts[3]:.2f})")  # fmt: skip
    for name, own in zip(("working tree", "other revision"), found, strict=False):
        client, servers = (1e3 * statistics.median(one[k] for one in own) for k in range(2))
        ratios = [(one[0] + one[1]) / secs for one, secs in zip(own, whole, strict=True)]
        ratio = statistics.median(ratios)
        verdict = ""
        if case in TARGETS and name == "working tree":
            verdict = f", target at most {TARGETS[case]}x: {'met' if ratio <= TARGETS[case] else 'missed'}"
        print(f"  {name:<14} {client + servers:6.2f} ms (client {client:.2f}, servers {servers:.2f}), {own[0][2]:,} bytes: "
              f"{ratio:.2f}x the floor ({min(ratios):.2f} to {max(ratios):.2f}){verdict}", flush=True)  # fmt: skip
    if len(found) > 1:
        of = [(one[0] + one[1]) / (two[0] + two[1]) for one, two in zip(*found, strict=True)]
        print(f"  working tree by other revision {statistics.median(of):.2f}x ({min(of):.2f} to {max(of):.2f})", flush=True)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--case", nargs="+", default=list(TARGETS))
    parser.add_argument("--memory", nargs="+", choices=("folder", "process"), default=["folder", "process"])
    given = parser.parse_args()
    print(machine())
    with ExitStack() as stack:
        other = None if given.against is None else stack.enter_context(checkout(given.against))
        for case in given.case:
            for memory in given.memory:
                _measure(case, memory, other, given.rounds, given.steps)


if __name__ == "__main__":
    main()
