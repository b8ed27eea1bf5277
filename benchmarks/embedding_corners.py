"""The ``cpu`` engine at the corners of what tables may be: memory and time of narrow and wide rows, few and many, short and long bags.

    python -m benchmarks.embedding_corners [--dims 1 8 64 380] [--rows 64 1000000 300000000] [--valencies 1 30 1000] [--threads 2]

Each case is one table with row-wise Adagrad in a process of its own. Ids are uniform, the worst for caches and for memory: the system commits
a page for the first row that is touched in it. Batches have as many events as make about 131,072 ids, and at most 2,097,152 values.
Printed are: the memory that the table adds to the process by its distinct touched rows; nanoseconds per id of a lookup, and of the update
alone; and the least bytes that a lookup, and a lookup with its update, must move (each distinct row once, activations, ids) by
the bandwidth of a copy with one thread. After each case the touched rows are read back one by one and compared with the sums of bags.
A table that the system reserves no memory for is printed with the engine's error.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embedding_kernels import copy_bandwidth
from benchmarks.support.harness import machine
from trainer.errors import ConfigError
from trainer.tables import CpuEngine, FeatureSpec, IdBatch, RowWiseAdagrad, TableSpec
from trainer.tables.kernels.table_bytes import row_bytes

Array = np.ndarray[Any, np.dtype[Any]]

_ROOT = Path(__file__).resolve().parents[1]
_IDS, _VALUES, _BATCHES, _REPEATS = 1 << 17, 1 << 21, 3, 3


@dataclass(frozen=True, slots=True)
class Corner:
    """One table and its bags."""

    dim: int
    rows: int
    valency: int

    @property
    def events(self) -> int:
        """The events of a batch."""
        return max(1, min(_IDS // self.valency, _VALUES // self.dim))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a case took; ``*_bytes`` are the least that must move."""

    touched_rows: int
    resident_bytes: int
    lookup_secs: float
    both_secs: float
    lookup_bytes: int
    both_bytes: int


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _batch(corner: Corner, seed: int) -> IdBatch:
    ids = np.random.default_rng(seed).integers(0, corner.rows, corner.events * corner.valency).astype(np.int32)
    offsets = np.arange(corner.events + 1, dtype=np.int64)[None] * corner.valency
    return IdBatch(ids, offsets, None, (corner.rows,))


def _engine(corner: Corner, threads: int) -> CpuEngine:
    table = TableSpec("t", corner.rows, corner.dim, RowWiseAdagrad(0.01, 0.1), "sum")
    return CpuEngine([FeatureSpec("f", table)], seed=0, threads=threads)


def _secs(work: Callable[[IdBatch], object], corner: Corner) -> float:
    found = []
    for _ in range(_REPEATS):
        for seed in range(_BATCHES):
            batch = _batch(corner, seed)  # one that the engine has not checked
            began = time.perf_counter()
            work(batch)
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def _check(engine: CpuEngine, corner: Corner) -> None:
    """Compare a lookup with the sums of its rows, the first and the last row of the table among them."""
    batch = _batch(corner, 0)
    batch.ids[0], batch.ids[-1] = 0, corner.rows - 1
    events = min(corner.events, 64)
    ids = np.concatenate([batch.ids[: events * corner.valency], batch.ids[-corner.valency :]])
    offsets = np.arange(events + 2, dtype=np.int64)[None] * corner.valency
    found = engine.lookup(IdBatch(ids, offsets, None, (corner.rows,)))
    rows = engine.weights_of("t", ids.astype(np.int64)).astype(np.float64)
    expected = rows.reshape(events + 1, corner.valency, corner.dim).sum(axis=1)
    scale = float(np.abs(rows).max()) * corner.valency
    assert np.allclose(found, expected, rtol=0, atol=1e-5 * scale), corner


def measure(corner: Corner, threads: int) -> Figures:
    """Run a case in this process."""
    small = Corner(corner.dim, 64, corner.valency)
    gradients = np.random.default_rng(1).standard_normal((corner.events, corner.dim), np.float32)
    warm = _engine(small, threads)
    warm.lookup(_batch(small, 0))
    warm.apply_gradients(_batch(small, 0), gradients)  # loads the compiled loops, and their buffers
    engine, before = _engine(corner, threads), _resident_bytes()

    def both(batch: IdBatch) -> None:
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)

    for seed in range(_BATCHES):
        both(_batch(corner, seed))
    resident = _resident_bytes() - before
    lookup_secs, both_secs = _secs(engine.lookup, corner), _secs(both, corner)
    _check(engine, corner)
    distinct = [len(np.unique(_batch(corner, seed).ids)) for seed in range(_BATCHES)]
    touched = len(np.unique(np.concatenate([_batch(corner, seed).ids for seed in range(_BATCHES)])))
    rows_bytes = int(statistics.mean(distinct)) * corner.dim * 4
    once = rows_bytes + corner.events * (corner.dim + corner.valency) * 4
    return Figures(touched, max(resident, 0), lookup_secs, both_secs, once, 2 * once + rows_bytes)


def report(corner: Corner, threads: int, bandwidth: float) -> None:
    """Run a case in a process of its own, and print its line."""
    place = f"  {corner.dim:>4}{corner.rows:>13,}{corner.valency:>6}{corner.events:>9,}"
    command = [sys.executable, "-m", "benchmarks.embedding_corners", "--case", json.dumps(asdict(corner)), "--threads", str(threads)]  # fmt: skip
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    document = json.loads(done.stdout.splitlines()[-1])
    if "refused" in document:
        print(f"{place}  refused: {document['refused']}", flush=True)
        return
    found = Figures(**document)
    ids = corner.events * corner.valency
    of_row = row_bytes(TableSpec("t", corner.rows, corner.dim, RowWiseAdagrad(0.01)))
    print(f"{place}{found.touched_rows:>11,}{of_row:>8,}{found.resident_bytes / found.touched_rows:>11,.0f}"
          f"{found.lookup_secs / ids * 1e9:>9.1f}{(found.both_secs - found.lookup_secs) / ids * 1e9:>9.1f}"
          f"{found.lookup_bytes / found.lookup_secs / bandwidth:>8.0%}{found.both_bytes / found.both_secs / bandwidth:>8.0%}", flush=True)  # fmt: skip


def main() -> None:
    """Print a line for each corner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[1, 8, 64, 380])
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 1_000_000, 300_000_000])
    parser.add_argument("--valencies", type=int, nargs="+", default=[1, 30, 1000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        try:
            print(json.dumps(asdict(measure(Corner(**json.loads(given.case)), given.threads))))
        except ConfigError as error:
            print(json.dumps({"refused": " ".join(str(error).split())}))
        return
    print(f"{machine()}, {given.threads} threads")
    bandwidth = copy_bandwidth()
    print(f"a copy moves {bandwidth / 1e9:.1f} GB/s\n"
          "   dim         rows   ids   events    touched  B/row  B/touched  ns look  ns upd.  % look  % both")  # fmt: skip
    for dim in given.dims:
        for rows in given.rows:
            for valency in given.valencies:
                report(Corner(dim, rows, valency), given.threads, bandwidth)


if __name__ == "__main__":
    main()
