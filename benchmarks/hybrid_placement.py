"""Hit rates of the accelerator's share of rows as popularity drifts: hybrid placement beside other policies.

    python -m benchmarks.hybrid_placement [--globo FOLDER] [--share 0.1] [--batch 1024] [--rounds 3]

The lookups are those of Globo's articles, and of its users, in the order of the clicks; without the folder, those of a synthetic log
of articles that live for some time. A table has a row for each id of the whole log, and frames for a share of them. A lookup is a hit if
its row was in a frame before its batch.

The clairvoyant puts in the frames, before each interval, the rows that the interval will look up most. Its interval is a batch, as ours,
and in a second line about an hour of the log. Belady's policy decides at each lookup, and brings in no row before it is looked up.
Static are the most frequent rows of the first tenth of the lookups, counted on the others. LRU and LFU bring in every row that they
miss, also within a batch.

Then an engine with hot rows trains batches, and a cpu engine the same ones, alternately: batches of the first log, whose rows have 64 columns, and
batches of 26 tables of 100,000 rows with bags of up to 20 ids. A step is a lookup and an update, without a dense part. Bookkeeping is what
it takes to count lookups, to find rows in frames, to decide and to move rows.

At last one whose cold tier is on two servers trains them, and an engine whose rows are all on these: the bytes that both send and
receive in a step, and the time of a step.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.many_models import GLOBO
from benchmarks.support import cache_policies as policies
from benchmarks.support.harness import machine
from benchmarks.support.long_tailed_bags import DIM, features, make_batches
from benchmarks.support.server_processes import ServerProcesses
from trainer.planning.hot_rows import HotRows
from trainer.servers.client_updates import Greeting
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.bag_tables import BagTables
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.server_tier import ServerTier
from trainer.tables.spec import tables_of
from trainer.tables.stores.tiered.cold_tier import ColdTier
from trainer.tables.stores.tiered.tiered_store import TieredStore

Array = np.ndarray[Any, np.dtype[Any]]

#: The log that the target is of, and the most points below the clairvoyant.
HEADLINE, TARGET_POINTS = "articles", 3.0
_HOURS = 192
_STEPS, _TABLE_STEPS = 600, 80
_SERVERS = 2


def globo_lookups(folder: Path) -> dict[str, Array]:
    """The articles and the users of all clicks in the order of their times, each numbered from 0."""
    names = ["click_timestamp", "click_article_id", "user_id"]
    types = csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.int64()))
    tables = []
    for file in sorted(folder.glob("clicks_hour_*.csv.gz")):
        with gzip.open(file) as opened:
            tables.append(csv.read_csv(opened, convert_options=types))
    clicks = pa.concat_tables(tables)
    order = np.argsort(clicks["click_timestamp"].to_numpy(), kind="stable")
    return {
        kind: np.unique(clicks[name].to_numpy()[order], return_inverse=True)[1].astype(np.int64)
        for kind, name in (("articles", "click_article_id"), ("users", "user_id"))
    }


def drifting_lookups(lookups: int, seed: int = 0) -> dict[str, Array]:
    """A synthetic log: an article appears every 60 lookups in the mean, is looked up by a power law, and fades by a half-life of its own."""
    source = np.random.default_rng(seed)
    count = lookups // 60 + 200
    born = np.sort(source.random(count)) * lookups * 1.02 - lookups * 0.02
    popularity, life = source.pareto(1.1, count) + 0.05, source.lognormal(np.log(lookups / 60), 0.8, count)
    found = []
    for first in range(0, lookups, 1000):
        age = first - born
        weight = np.where(age >= 0, popularity * 0.5 ** (np.maximum(age, 0) / life), 0.0)
        ends = np.cumsum(weight)
        found.append(np.searchsorted(ends, source.random(min(1000, lookups - first)) * ends[-1]))
    ids = np.unique(np.concatenate(found), return_inverse=True)[1].astype(np.int64)
    return {"articles (synthetic)": ids}


def compare(ids: Array, share: float, batch: int) -> dict[str, policies.Outcome]:
    """All policies on one log, ours first."""
    rows = int(ids.max()) + 1
    frames, batches = max(round(share * rows), 1), policies.batches_of(ids, batch)
    return {
        "hybrid placement": policies.placement(batches, HotRows(rows, frames)),
        "… with free moves": policies.placement(batches, HotRows(rows, frames, move_lookups=0.0)),
        "clairvoyant, each batch": policies.clairvoyant(ids, batch, frames),
        "clairvoyant, each hour": policies.clairvoyant(ids, max(len(ids) // _HOURS, 1), frames),
        "Belady, each lookup": policies.belady(ids, frames),
        "LRU": policies.least_recently_used(ids, frames),
        "LFU": policies.least_frequently_used(ids, frames),
        "static": policies.static(ids, len(ids) // 10, frames),
    }


def report(name: str, ids: Array, share: float, batch: int) -> dict[str, policies.Outcome]:
    """Print the table of one log."""
    rows, found = int(ids.max()) + 1, compare(ids, share, batch)
    print(
        f"\n{name}: {len(ids):,} lookups of {rows:,} rows, {max(round(share * rows), 1):,} frames, batches of {batch:,}"
    )
    print(f"{'policy':<24} {'hit rate':>9} {'of distinct rows':>17} {'rows moved in':>14}")
    for policy, one in found.items():
        distinct = "" if one.distinct == 0 else f"{one.distinct_hit_rate:.2%}"
        moves = "" if one.moves is None else f"{one.moves:,}"
        print(f"{policy:<24} {one.hit_rate:>9.2%} {distinct:>17} {moves:>14}".rstrip())
    points = 100 * (found["clairvoyant, each batch"].hit_rate - found["hybrid placement"].hit_rate)
    verdict = ""
    if name == HEADLINE:
        verdict = f"; the target of {TARGET_POINTS:.0f} is {'met' if points <= TARGET_POINTS else 'missed'}"
    print(f"ours is {points:.2f} points below the clairvoyant of each batch{verdict}", flush=True)
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """Batches to train."""

    name: str
    features: Sequence[FeatureSpec]
    batches: Sequence[IdBatch]
    hot_rows: Mapping[str, int]


def log_scene(name: str, ids: Array, share: float, batch: int) -> Scene:
    """The first batches of a log."""
    rows = int(ids.max()) + 1
    table = TableSpec(name, rows, DIM, Adagrad(0.05), "sum")
    offsets = np.arange(batch + 1, dtype=np.int64)[None]
    count = min(_STEPS, len(ids) // batch)
    batches = [IdBatch(ids[k * batch : (k + 1) * batch], offsets) for k in range(count)]
    return Scene(f"{name}, {batch:,} lookups", [FeatureSpec(name, table)], batches, {name: round(share * rows)})


def table_scene(share: float, events: int = 4096) -> Scene:
    """Batches of many tables, whose popularity is that of a power law."""
    specs = features()
    hot_rows = {one.table.name: round(share * one.table.vocabulary_size) for one in specs}
    batches = make_batches(8, events, longest=20) * (_TABLE_STEPS // 8)
    return Scene(f"{len(specs)} tables, {events:,} events", specs, batches, hot_rows)


def tiered(scene: Scene, cold: ColdTier | None = None) -> tuple[ShardedTables, TieredStore]:
    """The tables of a scene, some of whose rows are hot, and the store that has them."""
    store = TieredStore(tables_of(scene.features), seed=0, hot_rows=scene.hot_rows, cold=cold)
    return ShardedTables(scene.features, seed=0, exchange=OneHost(), store=store), store


def train(engine: BagTables[Any], batches: Sequence[IdBatch], gradients: Array) -> float:
    """The seconds of all steps."""
    began = time.perf_counter()
    for batch in batches:
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)
    return time.perf_counter() - began


def measure_bookkeeping(scene: Scene, rounds: int) -> None:
    """Print the seconds of a step and of its bookkeeping; the first fifth of the steps of each round fills the frames."""
    warm = len(scene.batches) // 5
    shares, steps, ratios, moved = [], [], [], []
    for _ in range(rounds):
        tiers, store = tiered(scene)
        whole = CpuEngine(scene.features, seed=0)
        gradients = np.random.default_rng(0).standard_normal((scene.batches[0].rows, tiers.width), np.float32)
        for engine in (tiers, whole):
            train(engine, scene.batches[:warm], gradients)
        before = store.counts
        secs = train(tiers, scene.batches[warm:], gradients)
        after, count = store.counts, len(scene.batches) - warm
        bookkeeping = after.decision_secs + after.move_secs - before.decision_secs - before.move_secs
        shares.append(bookkeeping / secs)
        steps.append(secs / count)
        ratios.append(secs / train(whole, scene.batches[warm:], gradients))
        moved.append((after.moved_bytes - before.moved_bytes) / count)
    lookups = after.hits + after.misses - before.hits - before.misses
    print(
        f"{scene.name}: step {1000 * statistics.median(steps):.2f} ms, of which bookkeeping {statistics.median(shares):.1%} "
        f"({min(shares):.1%} to {max(shares):.1%}); {statistics.median(ratios):.2f}x the step of the cpu engine; "
        f"hit rate {(after.hits - before.hits) / lookups:.1%}, {moved[-1] / 1e3:.1f} kB moved a step",
        flush=True,
    )


def measure_servers(scene: Scene, rounds: int) -> None:
    """Print the bytes and the seconds of a step with and without hot rows here; the first fifth of the steps of each round fills the frames."""
    warm = len(scene.batches) // 5
    steps, ratios, shares = [], [], []
    with ServerProcesses(_SERVERS) as servers:
        for number in range(rounds):
            greetings = [Greeting(attempt=2 * number + side) for side in range(2)]
            tables = tables_of(scene.features)
            tier = ServerTier(tables, seed=0, servers=servers.connects(greetings[0]))
            tiers, _ = tiered(scene, tier)
            found = [_served_steps(tiers, tier, scene.batches, warm)]
            tier.close()
            alone = PsEngine(scene.features, seed=1, servers=servers.connects(greetings[1]))
            found.append(_served_steps(alone, alone, scene.batches, warm))
            alone.close()
            steps.append(found[0][0])
            ratios.append(found[0][0] / found[1][0])
            shares.append((found[0][1], found[1][1]))
    bytes_, others = shares[-1]
    print(
        f"{scene.name}, rows on {_SERVERS} servers: {bytes_ / 1e3:.0f} kB a step, {bytes_ / others:.2f}x those without hot rows here; "
        f"step {1000 * statistics.median(steps):.2f} ms, {statistics.median(ratios):.2f}x ({min(ratios):.2f}x to {max(ratios):.2f}x)",
        flush=True,
    )


def _served_steps(
    engine: BagTables[Any], on_servers: PsEngine, batches: Sequence[IdBatch], warm: int
) -> tuple[float, float]:
    """The seconds and the bytes on the wire of a step after the first ``warm`` ones."""
    gradients = np.random.default_rng(0).standard_normal((batches[0].rows, engine.width), np.float32)
    train(engine, batches[:warm], gradients)
    on_servers.finish()
    before, count = _wire_bytes(on_servers), len(batches) - warm
    began = time.perf_counter()
    train(engine, batches[warm:], gradients)
    on_servers.finish()
    return (time.perf_counter() - began) / count, (_wire_bytes(on_servers) - before) / count


def _wire_bytes(engine: PsEngine) -> int:
    return sum(one.link.sent_bytes + one.link.received_bytes for one in engine.servers)


def lookups_of(folder: Path, synthetic: int) -> dict[str, Array]:
    """Globo's lookups, or those of the synthetic log."""
    if any(folder.glob("clicks_hour_*.csv.gz")):
        return globo_lookups(folder)
    print(f"Globo's log is not at {folder}: a synthetic log takes its place")
    return drifting_lookups(synthetic)


def main() -> None:
    """Print the hit rates of each log, then the cost of bookkeeping."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--share", type=float, default=0.1, help="of the rows that have frames")
    parser.add_argument("--batch", type=int, default=1024, help="lookups of a batch")
    parser.add_argument("--synthetic", type=int, default=1_000_000, help="lookups of the synthetic log")
    parser.add_argument("--rounds", type=int, default=3, help="of training")
    options = parser.parse_args()
    print(machine())
    logs = lookups_of(options.globo, options.synthetic)
    for name, ids in logs.items():
        report(name, ids, options.share, options.batch)
    print()
    name, ids = next(iter(logs.items()))
    for scene in (log_scene(name, ids, options.share, options.batch), table_scene(options.share)):
        measure_bookkeeping(scene, options.rounds)
        measure_servers(scene, options.rounds)


if __name__ == "__main__":
    main()
