"""Lookups and updates of tables against those of another revision, and of pruned tables against direct ones, step by step in turns.

    python -m benchmarks.table_steps REVISION [--steps 60] [--pairs 5] [--case NAME ...]

Each side is a process with one thread (a simulated core has one of its own); after a step of one side the other one makes the same step, so that whatever else
the machine does falls on both. Figures are medians of the CPU time of a process. A ratio is the median over steps of ours by
theirs, and the median of that over ``--pairs`` of processes: two processes of the same code differ by up to a tenth, by the memory they get. ``direct`` tables have as many rows as the pruned ones keep, and the same ids, modulo these rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.against_revision import REPOSITORY, checkout
from benchmarks.support.harness import machine
from benchmarks.support.tree_side import TreeSide

CASES = ("cpu", "cores-1", "cores-4", "direct-16-10", "pruned-16-1", "pruned-16-10", "pruned-64-1", "pruned-64-10")
_SIDE = Path(__file__).parent / "support" / "side_of_table_steps.py"
#: Steps before those that count: rows get their memory, and code its place in the caches.
_FIRST_STEPS = 8


class Side(TreeSide):
    """A process that makes steps of a case on the packages of a tree."""

    def __init__(self, tree: Path, case: str) -> None:
        super().__init__(tree, _SIDE, [case])

    def step(self, number: int) -> tuple[float, float]:
        """The CPU seconds of a lookup and of its update."""
        lookup, update = map(float, self.ask(str(number)))
        return lookup, update


def take_turns(theirs: Side, ours: Side, steps: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The seconds of the steps of both; the side that begins alternates."""
    found: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for number in range(_FIRST_STEPS + steps):
        for which in (0, 1) if number % 2 else (1, 0):
            one = (theirs, ours)[which].step(number)
            if number >= _FIRST_STEPS:
                found[which].append(one)
    return found


def compare(name: str, theirs: tuple[Path, str], ours: tuple[Path, str], steps: int, pairs: int) -> None:
    """Print one line for lookups and one for updates."""
    found = []
    for _ in range(pairs):
        with Side(*theirs) as one, Side(*ours) as other:
            found.append(take_turns(one, other, steps))
    for k, what in enumerate(("lookup", "update")):
        ratios = [statistics.median(b[k] / a[k] for a, b in zip(*pair, strict=True)) for pair in found]
        sides = [1e3 * statistics.median(one[k] for pair in found for one in pair[which]) for which in (0, 1)]
        print(f"  {name:<14} {what}  {sides[0]:8.2f} ms  {sides[1]:8.2f} ms  {statistics.median(ratios):.3f}x "
              f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)  # fmt: skip


def for_sizes(values: Sequence[str]) -> list[str]:
    """The pruned cases, for which there is a direct one."""
    return [one for one in values if one.startswith("pruned-")]


def main() -> int:
    """Measure and print, without a verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REVISION")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    print(machine())
    with checkout(given.revision) as tree:
        print(f"\nCPU time of a step: {given.revision[:12]}, working tree, ratio")
        for case in given.case:
            compare(case, (tree, case), (REPOSITORY, case), given.steps, given.pairs)
    print("\nCPU time of a step: direct tables, pruned ones, ratio")
    for case in for_sizes(given.case):
        direct = case.replace("pruned", "direct")
        compare(case, (REPOSITORY, direct), (REPOSITORY, case), given.steps, given.pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
