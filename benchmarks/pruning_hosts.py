"""What hosts gain by one cut-off for the rows of all of them, in place of one for each host.

    python -m benchmarks.pruning_hosts [--data FOLDER] [--log ranked|tail|movielens|globo|criteo] [--limit N] [--hosts 4] [--budget 0.5] [--seeds 3]

DLRM is trained in time order on simulated hosts, with the same seeds on all sides (see ``pruning_quality.py``). Rows are placed in three ways: by remainders, as without
a plan; in blocks of equally many rows, of which the first has the popular rows of a vocabulary that is sorted by frequency (``--log ranked``, made up); and as whole
tables. Hosts divide the places of a group by their rows, or share them. Each side is printed by one process: normalised entropy over the life of the training and of the
newest fifth, the rows that are kept, and how many of these the one process keeps, too.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pruning_quality import Outcome, PlanOf, Side, Trial, open_trial
from benchmarks.support.pruning_logs import LOGS
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.tables.spec import TableSpec

Array = np.ndarray[Any, np.dtype[Any]]

PLACES = ("divided", "shared")


def in_blocks(tables: Sequence[TableSpec], hosts: int) -> PartitionPlan:
    """Blocks of equally many rows of each table, the first ones on the first host."""
    return PartitionPlan(hosts, tuple(_planned(one, tuple(range(hosts)), tuple(
        one.vocabulary_size * (k + 1) // hosts for k in range(hosts))) for one in tables))  # fmt: skip


def as_wholes(tables: Sequence[TableSpec], hosts: int) -> PartitionPlan:
    """Whole tables, the largest first, each on the host that has the fewest rows so far."""
    rows, host_of = [0] * hosts, {}
    for one in sorted(tables, key=lambda table: -table.vocabulary_size):
        host_of[one.name] = int(np.argmin(rows))
        rows[host_of[one.name]] += one.vocabulary_size
    return PartitionPlan(hosts, tuple(_planned(one, (host_of[one.name],)) for one in tables))


def _planned(table: TableSpec, cores: tuple[int, ...], row_ends: tuple[int, ...] = ()) -> TablePlan:
    return TablePlan(table.name, table.vocabulary_size, table.dim, (Slice(0, table.dim, cores, row_ends),))


def common_share(kept: Mapping[str, Array], of_one: Mapping[str, Array]) -> float:
    """The share of the rows of one process that are kept, too."""
    common = sum(len(np.intersect1d(rows, of_one[name])) for name, rows in kept.items())
    return common / max(sum(map(len, of_one.values())), 1)


def measure(trial: Trial, budget: float, seeds: int, hosts: int) -> None:
    """Print the sides of each way to place rows."""
    one = [trial.run_placed(Side("one process", {}), budget, seed, 1) for seed in range(seeds)]
    _print("one process", one, one)
    placements: dict[str, PlanOf | None] = {
        "by remainders": None,
        "in blocks": lambda tables: in_blocks(tables, hosts),
        "as whole tables": lambda tables: as_wholes(tables, hosts),
    }
    for name, plan_of in placements.items():
        for places in PLACES:
            side = Side(f"{name}, {places}", {"places": places})
            _print(side.name, [trial.run_placed(side, budget, seed, hosts, plan_of) for seed in range(seeds)], one)


def _print(name: str, runs: Sequence[tuple[Outcome, Mapping[str, Array]]], one: Sequence[tuple[Outcome, Mapping[str, Array]]]) -> None:  # fmt: skip
    texts = []
    for metric in ("lifetime", "next_days"):
        relative = [
            100 * (getattr(a, metric) / getattr(b, metric) - 1) for (a, _), (b, _) in zip(runs, one, strict=True)
        ]
        spread = statistics.stdev(relative) if len(relative) > 1 else 0.0
        texts.append(f"{metric.replace('_', ' ')} {statistics.mean(relative):+.3f} % +- {spread:.3f}")
    common = statistics.mean(common_share(kept, of_one) for (_, kept), (_, of_one) in zip(runs, one, strict=True))
    print(
        f"  {name:<26} {runs[0][0].rows:>7,} rows, {common:.1%} of those of one process; {'; '.join(texts)}", flush=True
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison of one log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="of the logs; none for those that are made up")
    parser.add_argument("--log", choices=LOGS, default="ranked")
    parser.add_argument("--limit", type=int, help="hours of Globo's log, users of MovieLens, events of a made-up log")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--budget", type=float, default=0.5, help="the share of the rows that occur")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=256)
    options = parser.parse_args(arguments)
    with open_trial(options.log, options.data, options.limit, options.batch_rows) as trial:
        print(f"{options.hosts} hosts, cut to {options.budget:g}")
        measure(trial, options.budget, options.seeds, options.hosts)


if __name__ == "__main__":
    main()
