"""Ten core figures beside the physical limit of the machine: copies, files, loopback, system calls.

    python -m benchmarks.floors [--rounds N] [--small]

Limits are measured here, in the same process and the same rounds: a copy of memory, a file read from the page cache, a file written and
synced, bytes and round trips over loopback, a system call. A figure's limit is what its least work costs at them: each byte read or
written once, each message sent once, no computing. Both sides are the best of all rounds, by wall clock, with one thread; the ratio says
how many times the limit the figure takes. Best rounds, since a limit is one only where nothing else runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ps_fetch_speed import Fetches
from benchmarks.reading_floor import Stored
from benchmarks.support.embedding_cases import Case
from benchmarks.support.harness import machine
from benchmarks.support.loopback import loopback
from benchmarks.support.ours import RowGroups
from benchmarks.support.server_processes import ServerProcesses
from benchmarks.support.side_of_engine import EngineRunner
from trainer.checkpoints.checkpoint import write_checkpoint
from transforms.columns.arrow_types import arrow_type
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import text
from transforms.types import Dense, DType
from warehouse import Warehouse, WarehouseConfig
from warehouse.catalog import schema
from warehouse.catalog.catalog import insert_absent
from warehouse.files.memo_file import read_memo_file, write_memo_file
from warehouse.storage.storage import Storage

_PAGE_BYTES = 4096
_COLUMNS, _MESSAGE_ROWS, _ROW_COLUMNS = 20, 10_000, 64
#: Bytes of a request or an answer beside rows: the header of a frame.
_FRAME_BYTES = 64


@dataclass(frozen=True)
class Figure:
    """A figure, and what its limit consists of.

    Attributes:
        name: What is done.
        limit: The limit in words.
        reach: Does it.
        floor: Does what no implementation avoids.
        times: The number of repetitions in both.
    """

    name: str
    limit: str
    reach: Callable[[], object]
    floor: Callable[[], object]
    times: int = 1


def best_secs(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Wall-clock seconds of the fastest round of each work, in turns, after a round that is not counted."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, secs in zip(works, found, strict=True):
            begun = time.perf_counter()
            work()
            if number:
                secs.append(time.perf_counter() - begun)
    return [min(secs) for secs in found]


class Machine:
    """Buffers and files for the limits."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._from, self._to = np.ones(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)
        self.folder = folder

    def copy(self, size_bytes: int) -> None:
        """Copy so many bytes of memory, in turns of the buffers."""
        while size_bytes > 0:
            part = min(size_bytes, len(self._from))
            np.copyto(self._to[:part], self._from[:part])
            size_bytes -= part

    def fill(self, size_bytes: int) -> None:
        """Write so many bytes of memory."""
        while size_bytes > 0:
            part = min(size_bytes, len(self._to))
            self._to[:part] = 1
            size_bytes -= part

    def read(self, path: Path) -> None:
        """Read a file from the page cache."""
        with path.open("rb", buffering=0) as file:
            while file.readinto(self._to.data):
                pass

    def write(self, size_bytes: int, *, synced: bool = True) -> None:
        """Write a new file of so many bytes, and sync it."""
        with (self.folder / "written").open("wb", buffering=0) as file:
            while size_bytes > 0:
                size_bytes -= file.write(self._from[: min(size_bytes, len(self._from))].data)
            if synced:
                os.fsync(file.fileno())

    def append(self, pages: int) -> None:
        """Write pages to a file, without a sync."""
        with (self.folder / "appended").open("ab", buffering=0) as file:
            for _ in range(pages):
                file.write(self._from[:_PAGE_BYTES].data)


def _transforms(hardware: Machine, rows: int) -> list[Figure]:
    words = np.random.default_rng(1).integers(0, 1 << 40, rows)
    table = pa.table({"query": pa.array([f"word {value}" for value in words.tolist()])})
    plan = compile_plan({"id": text("query").hash_buckets(1_000_000).node})
    moved = table.nbytes + 8 * rows
    return [Figure(f"hash {rows:,} texts", "their bytes read, ids written", lambda: plan.run(table), lambda: hardware.copy(moved // 2))]  # fmt: skip


def _files(hardware: Machine, rows: int) -> list[Figure]:
    draw = np.random.default_rng(2)
    columns = {
        f"c{i}": pa.array(draw.integers(0, 1_000_000, rows), arrow_type(Dense(DType.INT64))) for i in range(_COLUMNS)
    }
    raw = hardware.folder / "raw.parquet"
    names = {f"t{i}": pa.array([f"item {value}" for value in draw.zipf(1.3, rows) % 100_000]) for i in range(4)}
    pq.write_table(pa.table(names), raw)
    groups = RowGroups(raw, compile_plan({name: text(name).hash_buckets(1_000).node for name in names}))
    stored = Stored(raw, groups.names)
    decoded_bytes = sum(groups.read(number).nbytes for number in range(groups.count))
    storage = Storage(str(hardware.folder))
    written = write_memo_file(storage, "memos/a.memo", columns)
    value_bytes = sum(column.nbytes for column in columns.values())
    path = hardware.folder / written.path

    def read_parquet() -> None:
        for number in range(groups.count):
            groups.read(number)

    def least_parquet() -> None:
        stored.copy()
        hardware.fill(decoded_bytes)

    def read_memos() -> None:
        read_memo_file(storage, written.path, list(columns), written.checksum)

    def least_memos() -> None:
        hardware.read(path)
        hardware.fill(value_bytes)

    def write_memos() -> None:
        write_memo_file(storage, "memos/b.memo", columns)

    def least_written() -> None:
        hardware.fill(written.size_bytes)
        hardware.write(written.size_bytes)

    return [
        Figure(f"read 4 text columns of Parquet, {rows:,} rows", "stored bytes read, codes written", read_parquet, least_parquet),
        Figure(f"write a memo file, {_COLUMNS} columns", "stored bytes written and synced", write_memos, least_written),
        Figure(f"read a memo file, {_COLUMNS} columns", "stored bytes read, values written", read_memos, least_memos),
    ]  # fmt: skip


def _tables(hardware: Machine, table_rows: int, events: int) -> list[Figure]:
    case = Case("floor", ((table_rows, _ROW_COLUMNS),) * 26, tuple((table, 1) for table in range(26)), events, 1.2)
    engine = EngineRunner(case, 1)
    lookup_bytes, both_bytes = case.moved_bytes()
    return [
        Figure(f"lookup, 26 tables, {events:,} events", "rows read, activations written", engine.lookup, lambda: hardware.copy(lookup_bytes // 2)),
        Figure("the same and an update by Adagrad", "rows read twice, written once", engine.both, lambda: hardware.copy(both_bytes // 2)),
    ]  # fmt: skip


def _servers(
    servers: ServerProcesses, exchanges: tuple[Callable[[], object], Callable[[], object]], rows: int
) -> list[Figure]:
    large, small = (
        Fetches(server, rows, _ROW_COLUMNS, count)
        for server, count in zip(servers.servers, (_MESSAGE_ROWS, 1), strict=True)
    )
    return [
        Figure(f"fetch {_MESSAGE_ROWS:,} rows from a server", "a bare exchange of as many bytes", lambda: large.run(1), exchanges[0]),
        Figure("fetch one row from a server", "a bare round trip", lambda: small.run(1), exchanges[1], times=100),
    ]  # fmt: skip


def _commits(hardware: Machine, warehouse: Warehouse, size_bytes: int) -> list[Figure]:
    arrays = {"table": np.random.default_rng(3).standard_normal(size_bytes // 8)}
    number = iter(range(1 << 60))

    def checkpoint() -> None:
        write_checkpoint(hardware.folder / "run", next(number) + 1, {}, arrays, keep=1)

    def transaction() -> None:
        row = {"name": f"client-{next(number)}", "served": 0, "leased_tasks": 0}
        warehouse.catalog.run(lambda connection: insert_absent(connection, schema.clients, [row]))

    return [
        Figure(f"checkpoint of {size_bytes >> 20} MiB", "its bytes written and synced", checkpoint, lambda: hardware.write(size_bytes)),
        Figure("one row in the catalog (SQLite)", "two pages written", transaction, lambda: hardware.append(2), times=100),
    ]  # fmt: skip


def _limits(
    hardware: Machine, exchanges: tuple[Callable[[], object], Callable[[], object]], size_bytes: int, rounds: int
) -> None:
    hardware.write(size_bytes)
    path = hardware.folder / "written"

    def calls() -> None:
        for _ in range(1_000):
            os.getppid()

    copy, read, write, call = best_secs(
        rounds,
        lambda: hardware.copy(size_bytes),
        lambda: hardware.read(path),
        lambda: hardware.write(size_bytes),
        calls,
    )
    large, small = best_secs(50 * rounds, *exchanges)
    print(f"copy {size_bytes / copy / 1e9:.1f} GB/s, file read {size_bytes / read / 1e9:.1f} GB/s, written and synced {size_bytes / write / 1e9:.2f} GB/s, "
          f"loopback {4 * _MESSAGE_ROWS * _ROW_COLUMNS / large / 1e9:.1f} GB/s, round trip {small * 1e6:.0f} us, system call from Python {call * 1e6:.0f} ns")  # fmt: skip


def _report(figures: list[Figure], rounds: int) -> None:
    print(f"\n{'':<46} {'reached':>11} {'limit':>11} {'ratio':>6}   the limit")
    for one in figures:
        reached, least = best_secs(rounds, _repeated(one.reach, one.times), _repeated(one.floor, one.times))
        shown = f"{_text(reached / one.times):>11} {_text(least / one.times):>11} {reached / least:5.1f}x"
        print(f"{one.name:<46} {shown}   {one.limit}", flush=True)


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat


def _text(secs: float) -> str:
    return f"{secs * 1e3:,.2f} ms" if secs >= 1e-3 else f"{secs * 1e6:,.1f} us"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args(arguments)
    rows, table_rows, size_bytes = (2_000, 20_000, 1 << 20) if options.small else (1_000_000, 100_000, 256 << 20)
    keep_freed_memory()
    print(machine())
    request_bytes, answer_bytes = 4 * _MESSAGE_ROWS, 4 * _MESSAGE_ROWS * _ROW_COLUMNS
    with (
        tempfile.TemporaryDirectory() as name,
        Warehouse.open(WarehouseConfig(f"{name}/home")) as warehouse,
        loopback(request_bytes, answer_bytes) as large,
        loopback(_FRAME_BYTES, _FRAME_BYTES + 4 * _ROW_COLUMNS) as small,
        ServerProcesses(2) as servers,
    ):
        hardware = Machine(Path(name), 64 << 20)
        _limits(hardware, (large, small), size_bytes, options.rounds)
        figures: list[Any] = [*_transforms(hardware, rows), *_files(hardware, rows), *_tables(hardware, table_rows, 4_096),
                              *_servers(servers, (large, small), table_rows), *_commits(hardware, warehouse, size_bytes)]  # fmt: skip
        _report(figures, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
