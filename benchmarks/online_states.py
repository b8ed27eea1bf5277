"""Online answers of joined columns: how long `features()` takes, and pushing.

    python -m benchmarks.online_states [--keys 10000] [--rows 1000] [--asked 3000] [--hot 1000000]

A log of clicks has ``--keys`` items and as many users, each with ``--rows`` clicks of the last 30 days. One event is asked for 20 joined columns: 14 over the
clicks of its item, 6 over those of its user, both drawn at random, so that no answer finds what another one has left. Percentiles are over events, in
milliseconds of the clock, and of the thread's CPU time, which other processes of the machine lengthen less. Beside them the same columns by the function
that computes them for a whole log, over the rows of the event's keys. Answers of both are compared, bit for bit. Then the same for one item with ``--hot`` clicks,
whose users have only clicks of this item.

Target: 1 ms at the 99th percentile, in process.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.support.harness import machine
from transforms.arrays import Array
from transforms.joins.column import joined_columns_of
from transforms.joins.definition import JoinDefinition
from transforms.joins.evaluation import joined_columns
from transforms.online.joined_table import JoinedTable
from transforms.online.states import OnlineStates

NOW = datetime(2026, 3, 1, tzinfo=UTC)
_DAYS = 30
_TARGET_MS = 1.0


def definitions() -> dict[str, JoinDefinition]:
    """The 20 joined columns."""
    clicks = hr.table("clicks", available_after="10m")
    item, user = clicks.by(hr.int64("item")), clicks.by(hr.int64("user"))
    paid, is_hit, country = hr.float64("paid"), hr.boolean("hit"), hr.text("country")
    columns = [column for window in ("1h", "6h", "1d", "7d") for column in (item.count(window=window), item.sum(paid, window=window), item.mean(paid, window=window))]  # fmt: skip
    columns += [item.ratio(is_hit, window="7d", prior=(1, 50)), item.max(paid)]
    columns += [user.count(window="7d"), user.sum(paid, window="7d"), user.latest(country), user.last(50, hr.int64("item")),
                user.decayed(half_life="1d"), user.ratio(is_hit, prior=(1, 50))]  # fmt: skip
    return joined_columns_of([one.node for one in columns])


def drawn(rows: int, keys: int, seed: int) -> pa.Table:
    """Clicks of 30 days before :data:`NOW`, in any order."""
    draw = np.random.default_rng(seed)
    at = int(NOW.timestamp() * 1e6) - draw.integers(1, _DAYS * 86_400 * 10**6, rows)
    return pa.table({
        "time": pa.array(at).cast(pa.timestamp("us")), "item": draw.integers(0, keys, rows), "user": draw.integers(0, keys, rows),
        "paid": draw.random(rows), "hit": draw.random(rows) < 0.3, "country": pa.DictionaryArray.from_arrays(draw.integers(0, 40, rows), [f"c{k}" for k in range(40)]).cast(pa.string()),
    })  # fmt: skip


class Percentiles(NamedTuple):
    """The median, the 99th percentile and the most, in ms: of the clock, and of the thread's CPU time."""

    clock: Array
    used: Array

    def __str__(self) -> str:
        return ", of CPU time ".join(" / ".join(f"{each:.3f}" for each in one) for one in self)


def percentiles(call: Callable[[int], object], calls: int) -> Percentiles:
    """Those of some calls."""
    clock, used = np.empty(calls), np.empty(calls)
    for k in range(calls):
        began, began_cpu = time.perf_counter(), time.thread_time()
        call(k)
        clock[k], used[k] = time.perf_counter() - began, time.thread_time() - began_cpu
    return Percentiles(*(np.percentile(one, [50, 99, 100]) * 1e3 for one in (clock, used)))


def loaded(rows: pa.Table) -> OnlineStates:
    """The states of some clicks."""
    began, table = time.perf_counter(), JoinedTable("clicks", "time", definitions())
    states = OnlineStates([table], {"clicks": table.computed(rows)}, since_micros=int(NOW.timestamp() * 1e6) - 86_400 * 10**6)  # fmt: skip
    print(f"loaded in {time.perf_counter() - began:.1f} s; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB, with what drew the rows; "
          f"states of tiles {states.tile_bytes_of('clicks') / states.rows_of('clicks'):.1f} bytes per row and key")  # fmt: skip
    return states


def compare(states: OnlineStates, rows: pa.Table, events: list[dict[str, int]]) -> None:
    """Print how long answers take in both ways, after comparing 20 of them."""
    for event in events[:50]:
        states.features(event, NOW)
    online = percentiles(lambda k: states.features(events[k], NOW), len(events))
    found, compared = states.columns, events[:20]
    is_own = {name: rows[name].to_numpy() for name in ("item", "user")}
    own = [rows.filter(pa.array((is_own["item"] == one["item"]) | (is_own["user"] == one["user"]))) for one in compared]
    asked = [pa.table({"item": [one["item"]], "user": [one["user"]], "at": pa.array([NOW], pa.timestamp("us", "UTC"))}) for one in compared]  # fmt: skip
    for one, event, mine in zip(compared, asked, own, strict=True):
        expected = {name: values[0].as_py() for name, values in joined_columns(found, event, "at", mine, "time").items()}  # fmt: skip
        assert states.features(one, NOW) == expected, "online and offline answers differ"
    offline = percentiles(lambda k: joined_columns(found, asked[k % 20], "at", own[k % 20], "time"), 40)
    print(f"features() of {len(found)} columns, ms: median / 99th percentile / most {online}")
    print(f"the same by joined_columns, over the rows of the event's keys: {offline}")
    faster = [theirs[0] / ours[0] for ours, theirs in zip(online, offline, strict=True)]
    share = [one[1] / _TARGET_MS for one in online]
    print(f"by the median {faster[0]:.0f} times as fast, in CPU time {faster[1]:.0f}; the 99th percentile is {share[0]:.2f} of the target, in CPU time {share[1]:.2f}")  # fmt: skip


def main() -> None:
    """Print the percentiles of both ways, and of pushing."""
    parser = argparse.ArgumentParser(description="Online answers of joined columns.")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--asked", type=int, default=3_000)
    parser.add_argument("--hot", type=int, default=1_000_000)
    given = parser.parse_args()
    print(machine())
    print(f"{given.keys:,} items and as many users, {given.rows:,} rows each")
    rows = drawn(given.keys * given.rows, given.keys, seed=0)
    states = loaded(rows)
    draw = np.random.default_rng(1)
    events = [{"item": int(item), "user": int(user)} for item, user in draw.integers(0, given.keys, (given.asked, 2))]
    compare(states, rows, events)
    new = drawn(2_000, given.keys, seed=2).to_pylist()
    later = [{**one, "time": one["time"] + timedelta(days=_DAYS)} for one in new]
    print(f"push() of one row, held by two keys: {percentiles(lambda k: states.push('clicks', later[k]), len(later))}")
    print(f"features() after that: {percentiles(lambda k: states.features(events[k], NOW), given.asked)}")
    several = pa.Table.from_pylist(events[:1_000])
    states.features(several, NOW)
    began = time.perf_counter()
    states.features(several, NOW)
    print(f"1,000 events at once: {(time.perf_counter() - began) * 1e3:.1f} ms")

    print(f"one item with {given.hot:,} rows")
    rows = drawn(given.hot, given.keys, seed=3)
    rows = rows.set_column(rows.column_names.index("item"), "item", pa.array(np.zeros(len(rows), np.int64)))
    hot = loaded(rows)
    events = [{"item": 0, "user": one["user"]} for one in events]
    compare(hot, rows, events)
    pushed = [{**one, "item": 0} for one in later[:100]]
    print(f"push() of one row: {percentiles(lambda k: hot.push('clicks', pushed[k]), len(pushed))}")
    print(f"features() after that: {percentiles(lambda k: hot.features(events[k], NOW), given.asked)}")


if __name__ == "__main__":
    main()
