"""CPU and wall-clock seconds of commands that read the catalog alone, on a small home.

    python -m benchmarks.light_commands [--rounds R] [--against FOLDER]

The home has one table of a single file, one model of 27 inputs (``cold_start.py``), and its memos. A command is a process of its
own: seconds include the start of Python and all imports. ``--against`` measures another checkout in turns, on a home of its own.
Bytecode is written and used, as in an installation; the first round is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cold_start import ROOT, SUBMIT, Cost, Tree
from benchmarks.support.harness import machine

#: The words of each command.
COMMANDS = ("--help", "status", "table ls", "table show log", "model ls", "model explain search", "graphs ls", "tasks list",
            "queue", "runs ls", "jobs ls")  # fmt: skip
#: What no work on this project's own code changes.
FLOORS = {
    "python alone": "pass",
    "import typer": "import typer",
    "import sqlalchemy": "import sqlalchemy",
    "import numpy": "import numpy",
    "import pyarrow": "import pyarrow",
}


def _costs(tree: Tree, home: Path) -> dict[str, Cost]:
    found: dict[str, Cost] = {}
    for command in COMMANDS:
        words = command.split()
        where = () if command == "--help" else ("--home", str(home))
        found[command] = tree.run("-m", "headrace", *words, *where)
    return found


def _prepare(tree: Tree, log: Path) -> Path:
    """A home with one model, whose memos are computed."""
    home = tree.folder / "home"
    tree.run("-c", SUBMIT, str(log), str(home))
    tree.run("-m", "headrace", "work", "--until-idle", "--home", str(home))
    return home


def main() -> int:
    """Measure all commands and print them."""
    from benchmarks.support.search_log import generate_labelled

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, help="the folder of another checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        log = generate_labelled(Path(name), 1_000)
        trees = [Tree(root, Path(name) / str(number)) for number, root in enumerate([ROOT, options.against]) if root]
        homes = [_prepare(tree, log) for tree in trees]
        found: list[dict[str, list[Cost]]] = [{} for _ in trees]
        for number in range(options.rounds + 1):
            for tree, home, costs in zip(trees, homes, found, strict=True):
                for command, cost in _costs(tree, home).items():
                    if number:
                        costs.setdefault(command, []).append(cost)
        floors: dict[str, list[Cost]] = {
            what: [trees[0].run("-c", text) for _ in range(options.rounds)] for what, text in FLOORS.items()
        }
    print(machine())
    print(
        f"\n{'':<24} {'CPU s':>6} {'least':>6} {'wall s':>7}" + ("   against: CPU s, ratio" if options.against else "")
    )
    for what, taken in {**found[0], **floors}.items():
        line = f"{what:<24} {_median(taken, 'cpu'):6.2f} {min(one.cpu for one in taken):6.2f} {_median(taken, 'wall'):7.2f}"
        if options.against and what in found[0]:
            ratio = statistics.median(a.cpu / b.cpu for a, b in zip(taken, found[1][what], strict=True))
            line += f"   {_median(found[1][what], 'cpu'):6.2f} {ratio:6.2f}"
        print(line)
    return 0


def _median(costs: Sequence[Cost], name: str) -> float:
    return statistics.median(getattr(cost, name) for cost in costs)


if __name__ == "__main__":
    sys.exit(main())
