"""CPU and wall-clock seconds from starting a process to its first result: a transform, the help, a worker, a worker's child.

    python -m benchmarks.cold_start [--rounds R] [--against FOLDER]

Seconds are of whole processes with their children, imports included; those of a child are its own, from its fork to its first task
and without its end. The first transform is that of the search log's components
(transform_throughput.py) over 1,000 rows; the worker's task is the same. Kernels are cached in a separate folder, which is empty
for the first process. ``--against`` measures another checkout in turns. Bytecode is written and used, as in an installation.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.harness import machine

ROOT = Path(__file__).resolve().parent.parent

INPUTS = """
import sys
from transforms.expressions.expression import concat, text
query, title, category = (text(name) for name in ("query", "title", "category"))
inputs = {"overlap": concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000)}
inputs |= {f"c{i}": text(f"c{i}").fill_null("").hash_buckets(1_000_000) for i in range(1, 27)}
"""
FIRST_TRANSFORM = (
    INPUTS
    + """
import pyarrow.parquet as pq
from transforms.execution.plan import compile_plan
result = compile_plan({name: value.node for name, value in inputs.items()}).run(pq.read_table(sys.argv[1]))
assert not result.failures, result.failures
"""
)
SUBMIT = (
    INPUTS
    + """
from pathlib import Path
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model
model = Model("search", client="search", label="clicked", table="log")
for name, value in inputs.items():
    model.input(name, value)
with Warehouse.open(WarehouseConfig(sys.argv[2])) as warehouse:
    register_table(warehouse, "log", str(Path(sys.argv[1]).parent.parent))
    submit_model(warehouse, model)
"""
)
EMPTY = """
import sys
from warehouse import Warehouse, WarehouseConfig
Warehouse.open(WarehouseConfig(sys.argv[1])).close()
"""
CHILDREN = """
import sys, time
from pathlib import Path
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.processes import child_processes
from pipelines.worker.job_committer import group_by_fragment
from warehouse import Warehouse, WarehouseConfig
from warehouse.queue.lease import lease_tasks
with Warehouse.open(WarehouseConfig(sys.argv[1])) as warehouse:
    ((work, _),) = group_by_fragment(lease_tasks(warehouse, "benchmark", limit=1_000)).values()
    limits, request = IsolationLimits().on_this_machine(1), {"do": "memoize", "home": warehouse.storage.home}
    for number in range(2):
        begun = time.perf_counter()
        with child_processes().child(limits, fresh=True) as child:
            child.ask(request, work.to_json(), limits)
            nanoseconds = Path(f"/proc/{child.pid}/schedstat").read_text().split()[0]
            print(int(nanoseconds) / 1e9, time.perf_counter() - begun)
"""
#: A worker's parts that no work on this project's own code changes.
FLOORS = {
    "python alone": "pass",
    "import numpy, pyarrow": "import numpy, pyarrow",
    "import numba": "import numba",
    "import sqlalchemy": "import sqlalchemy",
    "import apache_beam, all that is installed": "import apache_beam",
}


@dataclass(frozen=True)
class Cost:
    """Seconds of a process and its children."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Tree:
    """A checkout, and the folder of its files of this run."""

    root: Path
    folder: Path

    def run(self, *arguments: str) -> Cost:
        """Run a new Python process on the packages of the checkout."""
        return self._output_and_cost(*arguments)[1]

    def _output_and_cost(self, *arguments: str) -> tuple[str, Cost]:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(self.root), "NUMBA_CACHE_DIR": str(self.folder / "kernels")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{arguments[:2]} of {self.root} failed:\n{done.stderr}")
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        return done.stdout, Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)

    def costs(self, log: Path) -> dict[str, Cost]:
        """The cost of each kind of process, with compiled kernels."""
        idle, busy, leased = self.folder / "idle", self.folder / "busy", self.folder / "leased"
        for home in (busy, leased):
            self.run("-c", SUBMIT, str(log), str(home))
        self.run("-c", EMPTY, str(idle))
        work = ("-m", "headrace", "work", "--until-idle", "--home")
        found = {
            "headrace --help": self.run("-m", "headrace", "--help"),
            "import headrace": self.run("-c", "import headrace"),
            "first transform": self.run("-c", FIRST_TRANSFORM, str(log)),
            "worker, until it asks an empty queue": self.run(*work, str(idle)),
            "worker, its first task done": self.run(*work, str(busy)),
        }
        if Path("/proc/self/schedstat").exists():
            second = self._output_and_cost("-c", CHILDREN, str(leased))[0].splitlines()[1]
            found["a further child, its first task done"] = Cost(*map(float, second.split()))
        for home in (busy, leased):
            shutil.rmtree(home)
        return found


def measure(trees: Sequence[Tree], log: Path, rounds: int) -> list[dict[str, list[Cost]]]:
    """The costs of each tree, one per round; the rounds alternate."""
    found: list[dict[str, list[Cost]]] = [{} for _ in trees]
    for number in range(rounds + 1):
        for tree, costs in zip(trees, found, strict=True):
            for what, cost in tree.costs(log).items():
                if number:  # the first round compiles, makes the catalog and writes bytecode
                    costs.setdefault(what, []).append(cost)
    return found


def main() -> int:
    """Measure all starts and print them."""
    from benchmarks.support.search_log import generate_labelled

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="the folder of another checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        log = generate_labelled(Path(name), 1_000)
        trees = [
            Tree(root, Path(name) / str(number))
            for number, root in enumerate([ROOT, options.against][: 1 + bool(options.against)])
        ]
        never = [tree.run("-c", FIRST_TRANSFORM, str(log)) for tree in trees]
        found = measure(trees, log, options.rounds)
        floors = {
            what: [trees[0].run("-c", program) for _ in range(options.rounds)] for what, program in FLOORS.items()
        }
    print(machine())
    print(f"\nfirst transform, kernels never compiled before: {', '.join(f'{cost.wall:.1f} s' for cost in never)}")
    print(
        f"\n{'':<45} {'CPU s':>7} {'wall s':>7}   {'against: CPU s, wall s, ratio of CPU' if options.against else ''}".rstrip()
    )
    for what, costs in {**found[0], **floors}.items():
        line = f"{what:<45} {_median(costs, 'cpu'):7.2f} {_median(costs, 'wall'):7.2f}"
        if options.against and what in found[0]:
            others = found[1][what]
            ratio = statistics.median(ours.cpu / theirs.cpu for ours, theirs in zip(costs, others, strict=True))
            line += f"   {_median(others, 'cpu'):7.2f} {_median(others, 'wall'):7.2f} {ratio:6.2f}"
        print(line)
    return 0


def _median(costs: Sequence[Cost], name: str) -> float:
    return statistics.median(getattr(cost, name) for cost in costs)


if __name__ == "__main__":
    sys.exit(main())
