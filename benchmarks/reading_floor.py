"""The least time that reading columns from Parquet can take on this machine, and the time of Headrace, Arrow and Polars.

    python -m benchmarks.reading_floor [--rows N] [--log ml1m_joined.tsv.gz]

The files and columns are those of kernels_and_reading.py. Figures are CPU nanoseconds per row, all columns together, in one
thread; the least of five passes. The floor has three parts that no reader avoids: copying the stored bytes out of the
system's page cache, decompressing them page by page into one reused buffer, and writing what plans read (text as codes
where the file has codes) once to memory. Decoding is not in it, so no reader reaches it.

*Arrow, codes* reads text as dictionaries, which is what Headrace did before it had its own decoder of text pages; *Arrow* and
*Polars* read plain text, which is what other libraries compute with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.harness import machine
from benchmarks.support.ours import RowGroups
from benchmarks.support.read_files import parse_options, write_files
from transforms.execution.memory import keep_freed_memory
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import Node

PASSES = 5
#: Parquet's default size of a data page.
_PAGE_BYTES = 1 << 20


def least_secs(work: Callable[[], object], passes: int = PASSES) -> float:
    """CPU seconds of this process, the least of all passes after one that is not counted."""
    work()
    secs = []
    for _ in range(passes):
        begun = time.process_time()
        work()
        secs.append(time.process_time() - begun)
    return min(secs)


class Stored:
    """The stored bytes of some columns of a Parquet file."""

    def __init__(self, source: Path, names: Sequence[str]) -> None:
        self._source = source
        metadata = pq.read_metadata(source)
        self.rows = metadata.num_rows
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        columns = (group.column(index) for group in groups for index in range(group.num_columns))
        self._chunks = [one for one in columns if one.path_in_schema.partition(".")[0] in names]
        self._buffer = np.empty(max(one.total_compressed_size for one in self._chunks), np.uint8)
        self._buffer[:] = 1

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return sum(one.total_compressed_size for one in self._chunks)

    def copy(self) -> None:
        """Read all bytes, chunk by chunk, into one buffer."""
        with self._source.open("rb", buffering=0) as file:
            for one in self._chunks:
                file.seek(_start(one))
                file.readinto(self._buffer[: one.total_compressed_size].data)

    def compressed_pages(self, folder: Path) -> list[tuple[pa.Codec, bytes, int]]:
        """Pages of the same decoded bytes, compressed as in the file: (codec, stored bytes, decoded bytes)."""
        plain = folder / f"plain-{self._source.name}"
        reader = pq.ParquetFile(self._source)
        dictionaries = sorted({one.path_in_schema for one in self._chunks if one.has_dictionary_page})
        with pq.ParquetWriter(plain, reader.schema_arrow, compression="none", use_dictionary=dictionaries) as writer:
            for number in range(reader.num_row_groups):
                writer.write_table(reader.read_row_group(number))
        content = plain.read_bytes()
        pages = []
        for one in Stored(plain, [one.path_in_schema.partition(".")[0] for one in self._chunks])._chunks:
            codec = pa.Codec(self._codec)
            for start in range(_start(one), _start(one) + one.total_compressed_size, _PAGE_BYTES):
                page = content[start : min(start + _PAGE_BYTES, _start(one) + one.total_compressed_size)]
                pages.append((codec, codec.compress(page, asbytes=True), len(page)))
        return pages

    @property
    def _codec(self) -> str:
        (codec,) = {str(one.compression).lower() for one in self._chunks}
        return codec


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)


def _decompress(pages: Sequence[tuple[pa.Codec, bytes, int]]) -> None:
    for codec, stored, size in pages:
        codec.decompress(stored, size, memory_pool=pa.system_memory_pool())


_POLARS = """
import sys, time
import polars as pl
source, passes, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
secs = []
for _ in range(passes + 1):
    begun = time.process_time()
    pl.read_parquet(source, columns=names)
    secs.append(time.process_time() - begun)
print(min(secs[1:]))
"""


def polars_secs(source: Path, names: Sequence[str]) -> float:
    """CPU seconds of Polars' reader with one thread, in a process of its own."""
    command = [sys.executable, "-c", _POLARS, str(source), str(PASSES), *names]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def report(work: str, source: Path, components: Mapping[str, Node], folder: Path) -> None:
    """Print the figures of one file."""
    groups = RowGroups(source, compile_plan(components))
    stored = Stored(source, groups.names)
    pages = stored.compressed_pages(folder)
    read = [groups.read(number) for number in range(groups.count)]
    read_bytes = sum(table.nbytes for table in read)
    output = np.empty(max(table.nbytes for table in read), np.uint8)
    sizes = [table.nbytes for table in read]
    text = [one.name for one in read[0].schema if pa.types.is_dictionary(one.type) or pa.types.is_string(one.type)]
    del read
    file = pq.ParquetFile(source)
    coded = pq.ParquetFile(source, read_dictionary=text)

    def each(one: Callable[[int], object]) -> Callable[[], object]:
        return lambda: [one(number) for number in range(groups.count)]

    def line(what: str, secs: float, note: str = "") -> None:
        print(f"  {what:<44} {secs / stored.rows * 1e9:8.1f}  {note}".rstrip())

    print(f"\n{work}: {stored.rows:,} rows, {len(groups.names)} columns, {stored.size_bytes / stored.rows:.0f} bytes stored and "
          f"{read_bytes / stored.rows:.0f} bytes read per row")  # fmt: skip
    print(f"  {'one thread, CPU':<44} {'ns/row':>8}")
    copying = least_secs(stored.copy)
    line("floor: copying the stored bytes", copying, f"{stored.size_bytes / copying / 1e9:.1f} GB/s")
    plain_bytes = sum(size for _, _, size in pages)
    decompressing = least_secs(lambda: _decompress(pages))
    line("floor: decompressing", decompressing, f"{plain_bytes / decompressing / 1e9:.1f} GB/s of {plain_bytes / stored.rows:.0f} bytes")  # fmt: skip
    writing = least_secs(lambda: [np.copyto(output[:size], 1) for size in sizes])
    line("floor: writing what is read", writing, f"{read_bytes / writing / 1e9:.1f} GB/s")
    floor = copying + decompressing + writing
    line("floor", floor)
    for what, secs in (
        ("Headrace", least_secs(each(groups.read))),
        ("Arrow, codes", least_secs(each(lambda n: coded.read_row_group(n, groups.names, use_threads=False)))),
        ("Arrow", least_secs(each(lambda n: file.read_row_group(n, groups.names, use_threads=False)))),
        ("Polars", polars_secs(source, groups.names)),
    ):
        line(what, secs, f"{secs / floor:.1f}x the floor")


def main() -> int:
    """Measure both files."""
    options = parse_options(__doc__)
    keep_freed_memory()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        for work, source, components in write_files(Path(name), options.rows, options.log):
            report(work, source, components, Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
