"""Time of the cheapest plan, the decision of a submission, over merged DAGs of four shapes.

    python -m benchmarks.minimum_cut [--nodes 10000] [--rounds 1]

Headrace's solver and networkx build the same network from the same DAG, and their plans must be equal. Ratios are taken
within a round. A chain is at most 5,000 nodes deep. Both are warmed up on a small DAG first; the time of compiling kernels is
printed separately.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.support.harness import Side, machine, measure
from tests.warehouse.planning.dags import SHAPES, by_networkx, random_dag
from warehouse.planning.cheapest import CheapestPlan, cheapest_plan
from warehouse.planning.minimum_cut import Solver, by_push_relabel

_SIDES = {"ours": by_push_relabel, "networkx": by_networkx}
_DEEPEST = 5_000


def sides(shape: str, nodes: int, reuse: float) -> tuple[list[Side], dict[str, CheapestPlan]]:
    """Both solvers over one DAG, and the dictionary of their plans."""
    dag, wanted = random_dag(shape, nodes, 1)
    small, small_wanted = random_dag(shape, 1_000, 1)
    plans: dict[str, CheapestPlan] = {}

    def side(name: str, solver: Solver) -> Side:
        def run() -> None:
            plans[name] = cheapest_plan(dag, wanted, reuse, solver)

        return Side(name, run, lambda: cheapest_plan(small, small_wanted, reuse, solver))

    return [side(name, solver) for name, solver in _SIDES.items()], plans


def main() -> None:
    """Print one line per shape, with one request and with several."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(machine())
    small, wanted = random_dag("random", 1_000, 1)
    begun = time.perf_counter()
    cheapest_plan(small, wanted, 8.0)
    print(f"first plan of this process, compiling or loading what was compiled: {time.perf_counter() - begun:.2f} s")
    print(f"{'shape':10} {'nodes':>6} {'requests':>8} {'ours s':>8} {'networkx s':>10} {'ratio':>7}")
    for shape in SHAPES:
        nodes = min(options.nodes, _DEEPEST) if shape == "chain" else options.nodes
        for reuse in (1.0, 8.0):
            contenders, plans = sides(shape, nodes, reuse)
            ours, theirs = measure(contenders, options.rounds, report=lambda line: None)
            assert plans["ours"] == plans["networkx"], f"{shape}: the solvers disagree"
            ratio = statistics.median(b / a for a, b in zip(ours.secs, theirs.secs, strict=True))
            figures = f"{ours.median_secs:8.3f} {theirs.median_secs:10.2f} {ratio:7.1f}"
            print(f"{shape:10} {nodes:6} {reuse:8.0f} {figures}", flush=True)


if __name__ == "__main__":
    main()
