"""Batches of 40 inputs from memos, column by column, beside the same batches from files.

    python -m benchmarks.batch_files [--rows 65536] [--fragments 2] [--small]

The log is made here: 13 numbers, 26 single ids of 100 to a million buckets, and a list of 4.5 ids on average; all inputs are memos, each fragment
has 65,536 rows. *Memos to batches* is what training in one process does with a fragment: it reads the memos, makes arrays of their columns, and stacks
batches. *Files to batches* reads the same batches from a file, with all its checks; both are compared bit for bit before anything is
measured. *Writing* is what the first pass adds to them, without the disk's flush at the end of an epoch. *Floor*: ids, offsets and
numbers of the same batches are copied from one array into another, without looking at them, which no reader avoids.

Figures are CPU nanoseconds per row of one thread. Sides alternate, and of each the least of some passes counts. The files are in the system's
page cache, as are the memos.

Target: three times the rows a second from files, in batches of 65,536 events. *Of reading alone*: the speed of one core from files to batches by that of
reading the memos and doing nothing with them; target 52 %, which ``benchmarks/reader_speed.py`` has for memos to batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.many_models import LOAD_ALL, worker_secs
from benchmarks.support.harness import machine
from benchmarks.support.memoized import Memoized
from trainer.model.heads import BINARY
from trainer.run.batch_files.batch_file import BatchFile
from trainer.run.batch_files.stretch import Stretches
from trainer.run.batch_files.stretch_files import StretchFiles
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import DecodedFragment, decode
from trainer.run.reading.stream import FragmentRef
from transforms.execution.memory import keep_freed_memory
from transforms.expressions.expression import float32, int64, ragged
from transforms.expressions.model import Model
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution, register_table, submit_model
from warehouse.files.batch_files.folder import BatchFolder

NUMBERS, SINGLE, LIST_IDS = 13, 26, 9
BUCKETS = (100, 1_000, 10_000, 100_000, 1_000_000)
BATCHES = (65_536, 4_096, 1_024)
PASSES, TARGET = 7, 3.0


def write_log(folder: Path, fragments: int, rows: int) -> None:
    """A day for each fragment."""
    draw = np.random.default_rng(1)
    for day in range(1, fragments + 1):
        columns = {"label": pa.array(draw.integers(0, 2, rows).astype(np.float32))}
        columns["time"] = pa.array(np.full(rows, np.datetime64(f"2026-03-{day:02d}T00:00:00", "us")))
        for i in range(NUMBERS):
            columns[f"n{i}"] = pa.array(draw.exponential(3.0, rows).astype(np.float32))
        for i in range(SINGLE):
            columns[f"c{i}"] = pa.array(np.minimum(draw.zipf(1.2, rows), 10_000_000))
        ends = np.r_[0, np.cumsum(draw.integers(0, LIST_IDS + 1, rows))].astype(np.int32)
        columns["l"] = pa.ListArray.from_arrays(pa.array(ends), pa.array(draw.integers(0, 500_000, int(ends[-1]))))
        place = folder / f"date=2026-03-{day:02d}"
        place.mkdir(parents=True)
        parquet.write_table(pa.table(columns), place / "part.parquet")


def wide_model() -> Model:
    """The model of 40 inputs."""
    made = Model("wide", client="ads", label="label", table="log")
    for i in range(NUMBERS):
        made.input(f"n{i}", float32(f"n{i}").log1p())
    for i in range(SINGLE):
        made.input(f"c{i}", int64(f"c{i}").hash_buckets(BUCKETS[i % len(BUCKETS)]))
    made.input("l", ragged("l", "int64").hash_buckets(100_000))
    return made


def memoize(folder: Path, fragments: int, rows: int) -> Memoized:
    """The log with memos of all inputs."""
    write_log(folder / "log", fragments, rows)
    home = folder / "home"
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, "log", str(folder / "log"))
        submit_model(warehouse, wide_model(), policy="all")
    worker_secs(home)
    with Warehouse.open(WarehouseConfig(str(home), rates=LOAD_ALL)) as warehouse:
        solution = read_solution(warehouse, "wide")
    (home / "solution.json").write_text(json.dumps(solution.to_document()))
    return Memoized(home, solution)


class Sides:
    """Both ways to the batches of all fragments, in batches of some rows."""

    def __init__(self, memoized: Memoized, batch_rows: int) -> None:
        self._memoized, self._batch_rows = memoized, batch_rows
        self._refs = [
            FragmentRef(part.key, position, fragment)
            for part in memoized.solution.partitions
            for position, fragment in enumerate(part.fragments)
        ]
        self._folder = BatchFolder(memoized.home, 1 << 40)
        stretches = Stretches(memoized.solution, memoized.layout, BINARY, batch_rows)
        self._stretch = stretches.of(self._refs)
        self._path = self._folder.path(memoized.solution.table, self._stretch.digest)

    def _decoded(self) -> Iterator[DecodedFragment]:
        memoized = self._memoized
        for ref in self._refs:
            table = read_fragment(memoized.storage, memoized.solution, ref.fragment, rows=True)
            yield decode(table, memoized.layout, ref.key)

    def from_memos(self) -> Iterator[Batch]:
        """What one process does without files."""
        return make_batches(self._decoded(), self._memoized.layout, batch_rows=self._batch_rows)

    def write(self) -> tuple[float, int]:
        """Write the file; returns the CPU seconds beside those of making the batches, and its bytes."""
        made = list(self.from_memos())
        self._path.unlink(missing_ok=True)
        watch = time.thread_time()
        with StretchFiles(self._folder, sys.exit) as files:
            for _ in files.batches(self._stretch, lambda: iter(made), lambda: iter(made)):
                pass
            secs = time.thread_time() - watch
        return secs, self._path.stat().st_size

    def from_file(self) -> Iterator[Batch]:
        """The batches in the file."""
        with BatchFile(self._path, self._stretch.digest) as file:
            yield from file.batches(self._stretch.layout)

    def read_alone(self) -> float:
        """CPU seconds to read the memos and to do nothing with them."""
        memoized, watch = self._memoized, time.thread_time()
        for ref in self._refs:
            read_fragment(memoized.storage, memoized.solution, ref.fragment, rows=True)
        return time.thread_time() - watch

    def check(self) -> None:
        """Exit unless both ways give the same bits."""
        for one, other in zip(self.from_memos(), self.from_file(), strict=True):
            pairs = zip(_arrays(one), _arrays(other), strict=True)
            if not all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs):
                sys.exit("a batch of a file differs from that of memos")

    def copy(self) -> float:
        """CPU seconds to copy the arrays of all batches."""
        secs = 0.0
        for batch in self.from_file():
            watch = time.thread_time()
            for array in _arrays(batch):
                np.copyto(np.empty_like(array), array)
            secs += time.thread_time() - watch
        return secs


def _arrays(batch: Batch) -> tuple[np.ndarray, ...]:
    return batch.ids.ids, batch.ids.offsets, batch.dense, batch.labels, batch.weights


def cpu_secs(make: Callable[[], Iterator[Batch]]) -> float:
    """CPU seconds of this thread for all batches."""
    watch = time.thread_time()
    for _ in make():
        pass
    return time.thread_time() - watch


def report(memoized: Memoized, batch_rows: int, passes: int) -> bool:
    """Print the figures of one size of batches; return whether the target is met."""
    sides, rows = Sides(memoized, batch_rows), memoized.solution.rows
    sides.write()  # compiles what is not compiled yet
    written, size = sides.write()
    sides.check()
    found: list[tuple[float, ...]] = []
    for _ in range(passes):
        alone = sides.read_alone()
        found.append((cpu_secs(sides.from_memos), cpu_secs(sides.from_file), sides.copy(), alone))
    memos, files, floor, alone = map(min, zip(*found, strict=True))

    def line(what: str, secs: float, note: str = "") -> None:
        print(
            f"  {what:<24} {secs / rows * 1e9:6.0f} ns/row  {rows / secs / 1e6:6.2f} M rows/s  {note}".rstrip(),
            flush=True,
        )

    print(f"batches of {batch_rows:,} events")
    target = f", target {TARGET:.0f}x" if batch_rows == BATCHES[0] else ""
    line("reading memos alone", alone)
    line("memos to batches", memos, f"{alone / memos:.0%} of reading alone")
    line("files to batches", files, f"{alone / files:.0%} of reading alone, {memos / files:.1f}x of memos{target}")
    line("floor: copying", floor)
    line("writing, once", written, f"{size / rows:.0f} bytes per row")
    return memos / files >= TARGET


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=65_536, help="of a fragment")
    parser.add_argument("--fragments", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    rows, passes = (1_000, 1) if options.small else (options.rows, PASSES)
    keep_freed_memory()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-batch-files-") as name:
        memoized = memoize(Path(name), options.fragments, rows)
        memo_bytes = sum(path.stat().st_size for path in (memoized.home / "memos").rglob("*.memo"))
        print(
            f"{memoized.solution.rows:,} rows in {options.fragments} fragments, {len(memoized.solution.inputs)} inputs, "
            f"{memo_bytes / memoized.solution.rows:.0f} bytes per row in memos"
        )
        met = [report(memoized, size, passes) for size in BATCHES]
    return 0 if options.small or met[0] else 1


if __name__ == "__main__":
    sys.exit(main())
