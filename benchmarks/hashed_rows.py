"""Hashed tables: memory of a stored row over its bytes, and their speed beside a dense store by row number, in one run.

    python -m benchmarks.hashed_rows [--rows 20000000] [--batch 16384] [--rounds 30] [--data FOLDER]

A table of 16 columns with Adagrad is filled with rows of random 62-bit ids, in batches. Its memory is what the process has more than before,
and the bytes of its arrays, over the bytes of the weights and slots of the rows: 128 each.

Then batches of distinct ids that have rows are read and updated by the store, by a dense store by row number that holds as many rows, and by one with
an undo log, alternately on one thread, in its CPU time. A last side updates batches of which a tenth are new ids, so that as many rows are evicted. The index is rebuilt from
its records, and a process attaches to a store in shared memory whose update was cut off.

With the folder of Globo's clicks, its articles are updated in the order of the clicks, in tables of a share of all articles: how many
updates found a row, by capacity, admission and expiry. A batch is 1,024 clicks.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hybrid_placement import globo_lookups
from benchmarks.support.harness import machine
from trainer.tables import Adagrad, TableSpec
from trainer.tables.kernels.memory import PrivateMemory, SharedMemory
from trainer.tables.kernels.undo_log import UndoLog
from trainer.tables.stores.dense.dense_store import DenseStore
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.store import HashedStore

Array = np.ndarray[Any, np.dtype[Any]]

TARGET_RATIO = 1.25
DIM = 16
ROW_BYTES = 2 * 4 * DIM
_FILL_ROWS, _CLICKS = 16_384, 1024
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Side:
    """A store, and how it updates and reads a batch; ``ids`` are those that it has rows of."""

    name: str
    store: Any
    ids: Array


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--batch", type=int, default=16_384)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--data", type=Path, help="the folder of clicks_hour_*.csv.gz")
    given = options.parse_args()
    print(machine())
    _compile()
    store, ids = measure_memory(given.rows)
    measure_speed(store, ids, given.batch, given.rounds)
    measure_rebuild(store, given.rows)
    del store
    gc.collect()
    measure_attach(min(given.rows, 1_000_000), given.batch)
    if given.data:
        measure_hits(globo_lookups(given.data)["articles"])


def _compile() -> None:
    """Call everything once on few rows."""
    store = hashed(1000)
    _fill(store, drawn_ids(1000))
    store.end_load()
    with suppress(ZeroDivisionError), store.undo_log.transaction():
        _fill(store, drawn_ids(500))
        raise ZeroDivisionError


def hashed(rows: int, memory: Any = None, **options: int) -> HashedStore:
    """A store of one table."""
    spec = TableSpec("ids", _UNBOUNDED, DIM, Adagrad(0.1))
    return HashedStore([spec], {"ids": TableLimits(rows, **options)}, seed=0, threads=1, memory=memory)


def drawn_ids(rows: int) -> Array:
    """Distinct random ids of 62 bits."""
    steps = np.random.default_rng(0).integers(1, _UNBOUNDED // (rows + 1), rows)
    ids: Array = np.random.default_rng(1).permutation(np.cumsum(steps))
    return ids


def _update(store: Any, ids: Array, gradients: Array) -> None:
    store.update_rows([(ids, np.array([len(ids)]))], [gradients[: len(ids) * DIM]])


def _fill(store: Any, ids: Array) -> None:
    gradients = np.random.default_rng(2).normal(size=_FILL_ROWS * DIM).astype(np.float32)
    for first in range(0, len(ids), _FILL_ROWS):
        _update(store, ids[first : first + _FILL_ROWS], gradients)


def _resident_bytes() -> int:
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def measure_memory(rows: int) -> tuple[HashedStore, Array]:
    """A full store, and the ids of its rows."""
    ids = drawn_ids(rows)
    gc.collect()
    before, began = _resident_bytes(), time.perf_counter()
    store = hashed(rows)
    _fill(store, ids)
    secs = time.perf_counter() - began
    gc.collect()
    counted, resident, values = _array_bytes(store), _resident_bytes() - before, rows * ROW_BYTES
    print(f"\n{rows:,} rows of {ROW_BYTES} bytes: {values / 1e9:.2f} GB of values, filled in {secs:.1f} s")
    for name, found in (("arrays", counted), ("resident", resident)):
        ratio = found / values
        print(f"{name}: {found / 1e9:.2f} GB, {found / rows:.1f} bytes per row, {ratio:.3f} of the values "
              f"(target at most {TARGET_RATIO}: {'met' if ratio <= TARGET_RATIO else 'missed'}); "
              f"at 100,000,000 rows {found / rows * 1e8 / 1e9:.1f} GB")  # fmt: skip
    return store, ids


def _array_bytes(store: HashedStore) -> int:
    """The bytes of all arrays of a store's memory; the system commits them as they are used."""
    return sum(int(one.nbytes) for one in store._rows.values) + store._index.nbytes + store.undo_log.nbytes


def _by_row_number(rows: int, *, is_logged: bool) -> DenseStore:
    memory = PrivateMemory()
    table = TableSpec("ids", rows, DIM, Adagrad(0.1))
    return DenseStore([table], seed=0, threads=1, memory=memory, undo_log=UndoLog(memory) if is_logged else None)


def measure_speed(store: HashedStore, ids: Array, batch: int, rounds: int) -> None:
    """Nanoseconds for a row, by side, and the ratios to the first side within rounds."""
    rows = len(ids)
    numbers = np.random.default_rng(1).permutation(rows)
    sides = []
    for name, is_logged in (("dense store by row number", False), ("the same with an undo log", True)):
        engine = _by_row_number(rows, is_logged=is_logged)
        _fill(engine, numbers)
        engine.read_rows(numbers[:1], np.ones(1, np.int64))  # compiles
        sides.append(Side(name, engine, numbers))
    sides.append(Side("hashed tables", store, ids))
    store.read_rows(ids[:1], np.ones(1, np.int64))
    gradients = np.random.default_rng(3).normal(size=batch * DIM).astype(np.float32)
    counts = np.array([batch])
    print(f"\nbatches of {batch:,} distinct ids of {rows:,}, nanoseconds of CPU time for an id, one thread")
    works: dict[str, Callable[[Side, Array], object]] = {
        "read": lambda side, own: side.store.read_rows(own, counts),
        "update": lambda side, own: _update(side.store, own, gradients),
    }
    for what, work in works.items():
        secs: dict[str, list[float]] = {side.name: [] for side in sides}
        for number in range(rounds):
            at = np.random.default_rng(number).choice(rows, batch, replace=False)
            for side in sides:
                secs[side.name].append(_timed(work, side, np.sort(side.ids[at])))
        _print_sides(what, secs, batch)
    secs = {"hashed tables, a tenth of new ids": []}
    for number in range(rounds):
        at = np.random.default_rng(number).choice(rows, batch, replace=False)
        own = ids[at].copy()
        own[: batch // 10] = np.random.default_rng(rounds + number).integers(0, _UNBOUNDED, batch // 10)
        secs["hashed tables, a tenth of new ids"].append(_timed(works["update"], sides[-1], np.unique(own)))
    _print_sides("update", secs, batch)


def _timed(work: Callable[[Side, Array], object], side: Side, ids: Array) -> float:
    """Seconds of this thread, which does all the work: other processes of the machine count less."""
    began = time.thread_time()
    work(side, ids)
    return time.thread_time() - began


def _print_sides(what: str, secs: dict[str, list[float]], batch: int) -> None:
    first = next(iter(secs.values()))
    for name, own in secs.items():
        ratio = statistics.median(one / other for one, other in zip(own, first, strict=True))
        print(f"{what}: {name}: {statistics.median(own) / batch * 1e9:.0f} ns, {ratio:.2f}x")


def measure_rebuild(store: HashedStore, rows: int) -> None:
    """The index rebuilt, of this store and of one with a million rows."""
    small = hashed(1_000_000)
    _fill(small, drawn_ids(1_000_000))
    print()
    for name, one in ((1_000_000, small), (rows, store)):
        began, worked = time.perf_counter(), time.thread_time()
        one.end_load()
        secs, own = time.perf_counter() - began, time.thread_time() - worked
        print(f"index of {name:,} rows rebuilt in {secs:.2f} s, {own:.2f} s of CPU time")


def measure_attach(rows: int, batch: int) -> None:
    """Seconds from the memory of a killed process, with an update that was cut off, to the first answer."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as shared:
        ids = drawn_ids(rows)
        store = hashed(rows, SharedMemory(Path(shared)))
        _fill(store, ids)
        left_open = store.undo_log.transaction()
        left_open.__enter__()
        _fill(store, ids[:batch] + 1)
        began = time.perf_counter()
        again = hashed(rows, SharedMemory(Path(shared)))
        again.read_rows(ids[:batch], np.array([batch]))
        print(f"attached to {rows:,} rows, {again.undo_log.found.value}, in {time.perf_counter() - began:.3f} s")


def measure_hits(articles: Array) -> None:
    """The share of updates that found a row, by the options of a table."""
    distinct = len(np.unique(articles))
    print(f"\nGlobo: {len(articles):,} clicks on {distinct:,} articles in order, batches of {_CLICKS} clicks")
    print(
        f"{'capacity':>9}  {'admit after':>11}  {'expire after':>12}  {'hits':>6}  {'stored':>7}  {'admitted':>9}  {'evicted':>8}  {'expired':>8}"
    )
    for share in (1.0, 0.1, 0.03):
        for admit_after in (1, 2, 4):
            for expire_after in (0, 200):
                places = int(distinct * share)
                store = hashed(
                    places, admit_after=admit_after, expire_after_steps=expire_after, candidates=distinct // 4
                )
                hits = _hits(store, articles)
                found = store.hashed_counts["ids"]
                print(f"{places:>9,}  {admit_after:>11}  {expire_after or 'never':>12}  {hits:6.1%}  {found.stored:>7,}  "
                      f"{found.admitted:>9,}  {found.evicted:>8,}  {found.expired:>8,}")  # fmt: skip


def _hits(store: HashedStore, articles: Array) -> float:
    """Clicks whose article had a row before their batch."""
    hits, gradients = 0, np.ones(_CLICKS * DIM, np.float32)
    for first in range(0, len(articles), _CLICKS):
        ids = articles[first : first + _CLICKS]
        hits += int((store._index.find(ids, np.array([0, len(ids)])) >= 0).sum())
        _update(store, ids, gradients)
    return hits / len(articles)


if __name__ == "__main__":
    main()
