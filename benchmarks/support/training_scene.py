"""A warehouse with memos and the options of a training run: for benchmarks of training jobs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.many_models import GLOBO

#: All options that Headrace would choose from the data, so that no candidate is tried.
OPTIONS: Mapping[str, Any] = {
    "batch_rows": 1024, "dim": 16, "deep": True, "linear": True, "dense_learning_rate": 0.003,
    "embedding_learning_rate": 0.03, "linear_learning_rate": 0.1, "initial_bias": 0.0, "dense_scaling": {}, "passes": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TrainingScene:
    """A memoized model and a file with options.

    Attributes:
        home: of the warehouse.
        model: its name.
        options: the file.
        end: the partitions before it are trained; empty for all.
        rows: the events of these partitions.
    """

    home: Path
    model: str
    options: Path
    end: str
    rows: int

    def command(self, run_dir: Path, *more: str) -> list[str]:
        """The arguments of ``headrace`` to train in a run directory."""
        end = ("--end", self.end) if self.end else ()
        return ["train", self.model, "--home", str(self.home), "--config", str(self.options),
                "--run-dir", str(run_dir), *end, *more]  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose the data."""
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--hours", type=int, default=24, help="of Globo's log")
    parser.add_argument("--home", type=Path, help="a warehouse with memos, instead of a log")
    parser.add_argument("--model", default="globo_0", help="its model")
    parser.add_argument("--end", default="", help="train its partitions before this time")
    parser.add_argument("--quick", action="store_true", help="few rows of a made log, to test the script")


def make_scene(folder: Path, given: argparse.Namespace, **options: Any) -> TrainingScene:
    """Globo's log by the day, else the sample log, or the warehouse of ``--home``; all inputs are memos."""
    from benchmarks.many_models import LOAD_ALL
    from benchmarks.support.memoized import memoize
    from headrace.terminal.quantities import moment_of
    from tests.trainer.job.launch.jobs import make_warehouse
    from warehouse import Warehouse, WarehouseConfig, read_solution

    file = folder / "options.json"
    file.write_text(json.dumps({**OPTIONS, **options}))
    if given.home is not None:
        with Warehouse.open(WarehouseConfig(str(given.home), rates=LOAD_ALL)) as warehouse:
            rows = read_solution(warehouse, given.model, end=moment_of("--end", given.end)).rows
        return TrainingScene(given.home, given.model, file, given.end, rows)
    if given.quick:
        with make_warehouse(folder, hours=3, rows=10_000):
            return TrainingScene(folder / "home", "ctr", file, "", 30_000)
    memoized = memoize(folder, given.globo if given.globo.is_dir() else None, given.hours, 300_000)
    return TrainingScene(memoized.home, memoized.solution.model, file, "", memoized.solution.rows)
