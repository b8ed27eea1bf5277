"""What a second model costs, half of whose windows are new: a worker's time beside that for the first model.

    python -m benchmarks.second_model_joins [--rows N] [--events N] [--days D] [--keys K] [--seed N]

A table of rows and one of events over so many days, one file a day. The first model joins the count, the sum and the maximum of ten windows, the second one those of five of
these and of five others; what both join is computed once. Both are computed by a worker into the warehouse, reading and writing included.

Target, as in the issue: at most 30 % of the first.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import headrace as hr
from benchmarks.late_joined_rows import refreshed_secs, write_days
from benchmarks.support.harness import machine
from warehouse import Warehouse, WarehouseConfig, register_table, submit_model


def model_of(name: str, windows_hours: list[int]) -> hr.Model:
    """A model over windows of these hours."""
    rows = hr.table("rows").by(hr.int64("key"))
    model = hr.Model(name, client="client", label="label", table="events")
    for hours in windows_hours:
        window = f"{hours}h"
        model.input(f"count_{hours}", rows.count(window=window).log1p())
        model.input(f"sum_{hours}", rows.sum(hr.float64("value"), window=window).log1p())
        model.input(f"max_{hours}", rows.max(hr.float64("value"), window=window) * 2.0)
    return model


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{options.rows:,} rows and {options.events:,} events over {options.days} days, {options.keys:,} keys; {machine()}"
    )
    first, second = (
        [24 * day for day in range(1, 11)],
        [24 * day for day in range(1, 6)] + [24 * day + 12 for day in range(5)],
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, count in (("rows", options.rows), ("events", options.events)):
            write_days(root / name, options.days, count, options.keys, options.seed + (name == "events"))
        with Warehouse.open(WarehouseConfig(str(root / "home"))) as warehouse:
            for name in ("rows", "events"):
                register_table(warehouse, name, str(root / name), time_column="time")
            submit_model(warehouse, model_of("warm", [1]))
            refreshed_secs(warehouse)
            spent = {}
            for name, windows in (("first", first), ("second", second)):
                submit_model(warehouse, model_of(name, windows))
                spent[name], _ = refreshed_secs(warehouse)
                print(f"{name + ' model':<14}{spent[name]:8.2f} s")
    print(f"the second model costs {spent['second'] / spent['first']:.0%} of the first")


if __name__ == "__main__":
    main()
