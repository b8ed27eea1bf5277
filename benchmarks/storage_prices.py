"""The total cost of each admission policy over prices of storage.

    python -m benchmarks.storage_prices [--days 365] [--seed 5] [--picture docs/storage-prices.svg] [--small]

Two histories are replayed under every policy without a catalog (`benchmarks/support/replay.py`), at prices of storage that
span more than four orders of magnitude:

* the simulated year of model churn of `benchmarks/model_churn.py`;
* the demo: its first model is submitted and read, then all models of its file, then rows arrive late and are read, and the
  first model is trained once more, a day each; the data and what is stored of it stay for four weeks. A second replay
  trains every model daily on all data in these weeks.

Totals are CPU seconds with storage. The exit status is 1 if `adaptive` costs more than 1.1 times the cheaper of `all` and `none`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.model_churn import HOUR_BYTES, HOUR_ROWS, START, TABLE, prices_at
from benchmarks.support.churn import ChurnConfig, churn
from benchmarks.support.harness import machine
from benchmarks.support.line_chart import Curve, line_chart
from benchmarks.support.replay import Costs, Piece, Read, ReplayedDay, replay
from benchmarks.support.scale_models import COLUMNS, model
from headrace.demo.sample_log import SampleLogConfig
from headrace.demo.scripts import example_file
from headrace.model_file import load_models
from warehouse.costs.cost_model import CostModel
from warehouse.costs.value_bytes import raw_bytes_per_row
from warehouse.planning.forecast import DAY_SECS
from warehouse.tables.table import ColumnSchema

LIMIT = 1.1
POLICIES = ("all", "none", "adaptive")
#: Times the list price.
FACTORS = (0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.6, 1.0, 3.0, 10.0, 100.0)
SMALL_FACTORS = (0.001, 0.1, 10.0)
#: The demo's log, as `make demo` generates it.
DEMO_LOG = SampleLogConfig()
#: The days for which the demo's data and memos stay.
DEMO_DAYS = 28


@dataclass(frozen=True, slots=True)
class Row:
    """The totals at one price of storage, in CPU seconds, and the days of `adaptive` on which the hedge decided."""

    factor: float
    all_secs: float
    none_secs: float
    adaptive_secs: float
    hedged_days: int

    @property
    def ratio(self) -> float:
        return self.adaptive_secs / min(self.all_secs, self.none_secs)


def year_of_churn(config: ChurnConfig) -> list[ReplayedDay]:
    """The days of ``benchmarks/model_churn.py``."""
    live: list[str] = []
    days = []
    for number, day in enumerate(churn(config)):
        begin = START.timestamp() + number * DAY_SECS
        hours = range(config.hours_a_day)
        gone = number - config.kept_days
        days.append(
            ReplayedDay(
                arrived=tuple(Piece(f"{number}/{hour}", begin + 3600.0 * hour, HOUR_ROWS) for hour in hours),
                expired=tuple(f"{gone}/{hour}" for hour in hours) if gone >= 0 else (),
                reads=tuple(Read(name, begin, begin + DAY_SECS) for name in live),
                retired=day.retired,
                submitted=tuple(model(born.name, born.components, TABLE) for born in day.born),
                later_reads=tuple(Read(born.name) for born in day.born),
            )
        )
        live = [name for name in live if name not in day.retired] + [born.name for born in day.born]
    return days


def churn_costs(factor: float) -> Costs:
    """The costs of ``benchmarks/model_churn.py``: reading knows the log's bytes, making memos estimates them."""
    columns = [ColumnSchema(name, kind) for name, kind in COLUMNS]
    raw_bytes = raw_bytes_per_row(columns, HOUR_ROWS, HOUR_BYTES)
    prices = prices_at(factor)
    reading = CostModel(raw_bytes=raw_bytes, fragment_rows=HOUR_ROWS, prices=prices)
    return Costs(reading, CostModel(fragment_rows=HOUR_ROWS, prices=prices))


def demo_days(*, trained_daily: bool) -> list[ReplayedDay]:
    """The demo's submissions and reads, a day each, and four weeks in all."""
    models = {one.name: one for one in load_models(example_file("search_ads.py"))}
    first = models["search_ctr"]
    others = tuple(one for one in models.values() if one is not first)
    rows, late_rows = DEMO_LOG.mean_rows_per_hour, round(DEMO_LOG.mean_rows_per_hour * DEMO_LOG.late_share)
    hours = [(hour, START.timestamp() + 3600.0 * (hour - DEMO_LOG.hours)) for hour in range(DEMO_LOG.hours)]
    arrived = tuple(Piece(f"hour {hour}", at, rows) for hour, at in hours)
    late = tuple(Piece(f"late {hour}", at, late_rows) for hour, at in hours)
    every = tuple(Read(name) for name in models)
    days = [
        ReplayedDay(arrived=arrived, submitted=(first,), later_reads=(Read(first.name),)),
        ReplayedDay(submitted=others, later_reads=tuple(Read(one.name) for one in others)),
        ReplayedDay(arrived=late, reads=every),
        ReplayedDay(reads=(Read(first.name),)),
    ]
    return days + [ReplayedDay(reads=every if trained_daily else ()) for _ in range(DEMO_DAYS - len(days))]


def demo_costs(factor: float) -> Costs:
    """The cost model's estimates for the demo's columns."""
    costs = CostModel(fragment_rows=DEMO_LOG.mean_rows_per_hour, prices=prices_at(factor))
    return Costs(costs, costs)


def totals(days: Sequence[ReplayedDay], costs: Callable[[float], Costs], factor: float) -> Row:
    """Replay the days under every policy at one price."""
    shared = costs(factor)
    found = {policy: replay(policy, days, shared, START.timestamp()).total for policy in POLICIES}
    return Row(factor, found["all"].secs, found["none"].secs, found["adaptive"].secs, found["adaptive"].hedged_days)


def year_totals(config: ChurnConfig, factor: float) -> Row:
    """The year at one price."""
    return totals(year_of_churn(config), churn_costs, factor)


def show(title: str, rows: Sequence[Row]) -> bool:
    """Print the totals; return whether `adaptive` meets the target at every price."""
    print(f"\n{title}")
    print(f"{'storage price':>13} {'all':>14} {'none':>12} {'adaptive':>12} {'/ best':>7} {'hedged days':>12}")
    for row in rows:
        print(f"{row.factor:12g}x {row.all_secs:14,.0f} {row.none_secs:12,.0f} {row.adaptive_secs:12,.0f} {row.ratio:7.3f} "
              f"{row.hedged_days:12,}")  # fmt: skip
    worst = max(row.ratio for row in rows)
    print(
        f"adaptive / cheaper of all and none: at most {worst:.3f}, target at most {LIMIT}: {'ok' if worst <= LIMIT else 'missed'}"
    )
    return worst <= LIMIT


def picture(rows: Sequence[Row]) -> str:
    """The totals of the year by price, as SVG."""
    x = [math.log10(row.factor) for row in rows]
    curves = [
        Curve("all", "#b3541e", [math.log10(row.all_secs) for row in rows]),
        Curve("none", "#5b6f8f", [math.log10(row.none_secs) for row in rows]),
        Curve("adaptive", "#1a7f4b", [math.log10(row.adaptive_secs) for row in rows]),
    ]
    return line_chart(
        "A year of model churn", "price of storage, times the list price", "CPU seconds with storage", x, curves
    )


def main() -> int:
    """Replay and print; the exit status is 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="write the year's totals as SVG")
    parser.add_argument("--small", action="store_true", help="few models for a month, at few prices")
    options = parser.parse_args()
    config, factors = ChurnConfig(seed=options.seed, days=options.days), FACTORS
    if options.small:
        config, factors = ChurnConfig(seed=options.seed, days=30, live=6, inputs=10, hours_a_day=1), SMALL_FACTORS
    print(machine())
    met = [
        show(f"the demo, {name}", [totals(demo_days(trained_daily=daily), demo_costs, factor) for factor in factors])
        for name, daily in (("its own submissions and reads", False), ("every model trained daily", True))
    ]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(year_totals, [config] * len(factors), factors))
    met.append(
        show(f"a year of model churn: {config.days} days, {config.live} live models of {config.inputs} inputs", rows)
    )
    if options.picture:
        options.picture.write_text(picture(rows), encoding="utf-8")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
