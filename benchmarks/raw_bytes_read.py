"""Raw bytes read for 100 components over one partition, compared with one plain read and with 100 separate reads.

    python -m benchmarks.raw_bytes_read [--rows 300000] [--components 100] [--small]

A partition of the sample log, with on-time and late files, is registered and a model of 100 inputs is submitted. The work of
a worker's lease is done with a storage that records every byte range read from a raw file, so a column chunk that is read
twice counts twice. The operating system's count (``/proc/self/io``) of the same work on the plain storage is printed too. The
plain read is pyarrow's, of the union of the columns.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.fleets import search_fleet
from benchmarks.support.harness import machine
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import FragmentWork
from pipelines.worker.job_committer import group_by_fragment
from transforms.expressions.model import Model
from transforms.graphs.graph import component_from_document, raw_columns
from warehouse import Warehouse, WarehouseConfig, lease_tasks, register_table, submit_model
from warehouse.storage.storage import Storage

TARGET = 1.0
#: The tolerance of the operating system's count, which includes Python's own reads.
_NOISE_BYTES = 65_536


class CountingStorage(Storage):
    """A storage that records the byte ranges read from raw files, which are outside its home."""

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.ranges: Counter[tuple[str, int, int]] = Counter()

    def open_input(self, path: str) -> Any:
        """Open a file for random reads; reads of a raw file are recorded."""
        if not path.startswith("/") or path.startswith(self.root):
            return super().open_input(path)
        return pa.PythonFile(_Noted(path, self.ranges), mode="r")

    @property
    def read_bytes_in_all(self) -> int:
        """All bytes read, with repetitions."""
        return sum(size * times for (_, _, size), times in self.ranges.items())

    @property
    def bytes_again(self) -> int:
        """Bytes read again."""
        total = 0
        for path in {path for path, _, _ in self.ranges}:
            end = 0
            for start, size in sorted((start, size) for name, start, size in self.ranges if name == path):
                total += max(0, start + size - max(end, start))
                end = max(end, start + size)
        return self.read_bytes_in_all - total


class _Noted(io.RawIOBase):
    """A local file whose reads are recorded."""

    def __init__(self, path: str, ranges: Counter[tuple[str, int, int]]) -> None:
        self._path, self._ranges = path, ranges
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by close)

    def read(self, size: int = -1) -> bytes:
        start = self._file.tell()
        found = self._file.read(size)
        self._ranges[self._path, start, len(found)] += 1
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@dataclass(frozen=True)
class Figures:
    """Bytes read from the raw files of one partition, by reader.

    ``chunks``: stored bytes of the union's column chunks. ``plain_again`` and ``together_again``: bytes read again, since
    Arrow reads the last 64 KB of a file for its footer.
    """

    components: int
    columns: int
    rows: int
    file_bytes: int
    chunks: int
    plain: int
    plain_again: int
    together: int
    together_again: int
    separate: int
    system_plain: int
    system_together: int

    @property
    def ratio(self) -> float:
        return self.together / self.plain


def measure(folder: Path, rows: int, components: int) -> Figures:
    """Measure the three readers over one hour of the log under ``folder``."""
    config = SampleLogConfig(hours=1, mean_rows_per_hour=rows, late_share=0.05)
    for late in (False, True):
        write_sample_log(folder / "log", config, late=late)
    with Warehouse.open(WarehouseConfig(str(folder / "home"))) as warehouse:
        register_table(warehouse, "search_log", str(folder / "log"))
        submit_model(warehouse, _model(components))
        tasks = lease_tasks(warehouse, "bench", limit=10**6)
        works = [work for work, _ in group_by_fragment(tasks).values()]
        assert sum(len(work.components) for work in works) == len(tasks)
        home = warehouse.storage.home
    union = sorted({column for work in works for column in _columns(work)})
    plain = CountingStorage(home)
    _plain_read(plain, works, union)
    together = CountingStorage(home)
    _memoize(together, works)
    separate = CountingStorage(home)
    _memoize(separate, [_only(work, index) for work in works for index in range(len(work.components))])
    paths = sorted({work.fragment.path for work in works})
    return Figures(
        components=components,
        columns=len(union),
        rows=sum(work.fragment.rows for work in works),
        file_bytes=sum(Path(path).stat().st_size for path in paths),
        chunks=sum(_chunk_bytes(path, union) for path in paths),
        plain=plain.read_bytes_in_all,
        plain_again=plain.bytes_again,
        together=together.read_bytes_in_all,
        together_again=together.bytes_again,
        separate=separate.read_bytes_in_all,
        system_plain=_system_bytes(lambda: _plain_read(Storage(home), works, union)),
        system_together=_system_bytes(lambda: _memoize(Storage(home), works)),
    )


def _model(components: int) -> Model:
    """A model of the fleet with ``components`` inputs."""
    fleet = search_fleet()
    made = Model("wide", client="bench", label="clicked", table="search_log")
    for name, expression in islice(fleet.shared.items(), components):
        made.input(name, expression)
    for number in range(components - len(made.inputs)):
        made.input(f"idea_{number}", fleet.ideas[number % len(fleet.ideas)](number))
    return made


def _columns(work: FragmentWork) -> set[str]:
    roots = (component_from_document(dict(wanted.component)) for wanted in work.components)
    return {column.name for root in roots for column in raw_columns(root)}


def _only(work: FragmentWork, index: int) -> FragmentWork:
    """The work of one component."""
    output = work.output.replace(".memo", f"-{index}.memo")
    return FragmentWork(work.fragment, (work.components[index],), output)


def _memoize(storage: Storage, works: Sequence[FragmentWork]) -> None:
    plans = PlanCache()
    for work in works:
        failed = [outcome for outcome in memoize_fragment(storage, work, plans).outcomes if outcome.failure]
        assert not failed, failed


def _plain_read(storage: Storage, works: Sequence[FragmentWork], union: Sequence[str]) -> None:
    for path in sorted({work.fragment.path for work in works}):
        with storage.open_input(path) as source:
            pq.ParquetFile(source, pre_buffer=True).read(columns=list(union))


def _chunk_bytes(path: str, names: Sequence[str]) -> int:
    metadata = pq.read_metadata(path)
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)


def _system_bytes(work: Callable[[], object]) -> int:
    """Bytes that this process read while ``work`` ran, as the system counts them, from cache or disk."""
    before = _counters()["rchar"]
    work()
    return _counters()["rchar"] - before


def _counters() -> Mapping[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def show(it: Figures) -> bool:
    """Print all sides; return whether the target is met."""
    print(f"{it.components} components of {it.columns} columns over one partition: {it.rows:,} rows, "
          f"{it.file_bytes:,} bytes of Parquet, {it.chunks:,} of them chunks of those columns")  # fmt: skip
    print(f"{'read by':<44} {'bytes':>14} {'x plain':>9}")
    for what, count in (
        ("pyarrow, the columns' union, once", it.plain),
        ("    of it bytes that it had read before", it.plain_again),
        ("the worker's job, all components together", it.together),
        ("    of it bytes that it had read before", it.together_again),
        (f"{it.components} components, each by itself", it.separate),
    ):
        print(f"{what:<44} {count:14,} {count / it.plain:9.3f}")
    print(f"the system's count: together / plain {it.system_together / it.system_plain:.3f} "
          f"({it.system_together:,} / {it.system_plain:,})")  # fmt: skip
    met = (
        it.ratio <= TARGET
        and it.together_again <= it.plain_again
        and it.system_together <= it.system_plain + _NOISE_BYTES
    )
    print(f"raw bytes read for {it.components} components: {it.ratio:.3f}x, target {TARGET:g}x: "
          f"{'ok' if met else 'missed'}")  # fmt: skip
    return met


def main() -> int:
    """Measure; the exit status is 1 if a byte is read twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="headrace-bytes-") as folder:
        return 0 if show(measure(Path(folder), 2_000 if options.small else options.rows, options.components)) else 1


if __name__ == "__main__":
    sys.exit(main())
