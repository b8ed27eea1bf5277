"""The CPU time from memos to batches, beside reading the same memos alone and tf.data parsing the same features.

    python -m benchmarks.reader_speed [--globo FOLDER] [--hours 24] [--unit-rows 4096] [--batch-rows 1024] [--without-tf] [--small]

The memos are those of one model over Globo's log by the day, or over the sample log without it. Figures are CPU nanoseconds
per row of one thread. *Alone* is ``read_fragment``; the stages are those of a host with a reader in its process: reading, arrays of each
fragment's columns, units of them, and batches. The floor of batches is copying as many ids from one array into another and writing as many
offsets, without looking at them. The sides alternate, and of each the least of five passes counts. *By a
reader* is a reader process, which reads each fragment in each pass, and a host process: the CPU seconds of each whole process between the
first and the last unit, also with units of the size that jobs have by default. Its floor is the CPU time of the stages alone, and of
passing as many bytes over loopback with a checksum at both ends.

tf.data parses examples of the same rows from an uncompressed TFRecord file in batches, in a process of its own: inputs with one
value per event as FixedLenFeature, the others as RaggedFeature.

Targets: batches at 60 % of the speed of reading alone, and 20 times the speed of tf.data; shuffled batches in 1.5 times the time of
batches in order, and the way by a reader, both processes together, in 1.5 times the time of one process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.many_models import GLOBO
from benchmarks.support.harness import machine
from benchmarks.support.job_token import TOKEN
from benchmarks.support.loopback import loopback, process_cpu_secs
from benchmarks.support.memoized import Memoized, memoize, reader_process
from trainer.job.launch.training_job import UNIT_ROWS
from trainer.run.reading import kernels
from trainer.run.reading.batches import BatchAssembler
from trainer.run.reading.columns import read_columns, with_labels
from trainer.run.reading.packed_units import PackedUnit, UnitDecoder, UnitLayout, pack_unit
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.scheduling.buffer_control import BufferSettings
from trainer.wire.frames import checksum_of
from transforms.execution.memory import keep_freed_memory
from warehouse import read_fragment

PASSES = 5
TARGET_OF_READING, TARGET_OF_TF = 0.6, 20.0
TARGET_OF_SHUFFLED, TARGET_OF_READER = 1.5, 1.5
#: The units of a pass over a bare connection.
_CARRIED_UNITS = 50
STAGES = ("read", "arrays", "units", "batches")


class Stopwatch:
    """CPU seconds of this thread by stage."""

    def __init__(self) -> None:
        self.secs: dict[str, float] = {}
        self._last = time.thread_time()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to a stage."""
        now = time.thread_time()
        self.secs[stage] = self.secs.get(stage, 0.0) + now - self._last
        self._last = now


def alone(memoized: Memoized) -> float:
    """CPU seconds of reading all fragments."""
    storage, watch = memoized.storage, Stopwatch()
    for fragment in memoized.solution.fragments:
        read_fragment(storage, memoized.solution, fragment, rows=True)
    watch.lap("read")
    return watch.secs["read"]


def to_batches(memoized: Memoized, unit_rows: int, batch_rows: int) -> dict[str, float]:
    """CPU seconds by stage of a host with a reader in its process."""
    storage, layout = memoized.storage, memoized.layout
    assembler = BatchAssembler(layout, batch_rows)
    watch = Stopwatch()
    for fragment in memoized.solution.fragments:
        table = read_fragment(storage, memoized.solution, fragment, rows=True)
        watch.lap("read")
        columns = read_columns(table, layout, fragment.path)
        watch.lap("arrays")
        for first in range(0, columns.rows, unit_rows):
            unit = with_labels(columns.part(first, min(first + unit_rows, columns.rows)))
            watch.lap("units")
            assembler.add(unit)
            while assembler.ready:
                assembler.take()
            watch.lap("batches")
    return watch.secs


def least_for_batches(memoized: Memoized, batch_rows: int) -> float:
    """CPU seconds to copy as many ids, from one array, and to write as many offsets as the batches of all rows have."""
    layout, fragment = memoized.layout, next(iter(memoized.solution.fragments))
    columns = read_columns(
        read_fragment(memoized.storage, memoized.solution, fragment, rows=True), layout, fragment.path
    )
    ids_per_row = int(columns.ids.table[:, kernels.COUNT].sum()) / max(columns.rows, 1)
    count, inputs = int(ids_per_row * batch_rows), len(layout.embedded)
    source = np.arange(max(1, min(columns.rows // batch_rows, 100)) * count)
    ends = np.arange(inputs * (batch_rows + 1))
    watch = Stopwatch()
    for batch in range(memoized.solution.rows // batch_rows):
        ids, offsets = np.empty(count, np.int64), np.empty(len(ends), np.int64)
        first = batch * count % len(source)
        np.copyto(ids, source[first : first + count])
        np.add(ends, batch, out=offsets)
    watch.lap("copy")
    return watch.secs["copy"]


def packed(memoized: Memoized, unit_rows: int, batch_rows: int, window: int) -> tuple[dict[str, float], float]:
    """CPU seconds of packing, decoding and stacking packed units, and their bytes per row."""
    layout = memoized.layout
    unit_layout, decode = UnitLayout.of(layout), UnitDecoder(layout)
    plain = BatchAssembler(layout, batch_rows)
    shuffled = BatchAssembler(layout, batch_rows, ShuffleWindow(window))
    reader, total, watch = memoized.reader(), 0, Stopwatch()
    for request in memoized.requests(unit_rows):
        columns = reader.read(request)
        watch.lap("")
        content = pack_unit(columns, unit_layout)
        watch.lap("pack")
        total += content.nbytes
        unit = decode(request, PackedUnit.of(content))
        watch.lap("decode")
        for stage, assembler in (("batches", plain), (f"batches, shuffled in windows of {window:,}", shuffled)):
            assembler.add(unit)
            while assembler.ready:
                assembler.take()
            watch.lap(stage)
    del watch.secs[""]
    return watch.secs, total / memoized.solution.rows


def least(run: Callable[[], dict[str, float]], passes: int) -> dict[str, float]:
    """Of each stage the pass with the least sum."""
    return min((run() for _ in range(passes)), key=lambda secs: sum(secs.values()))


def by_reader(memoized: Memoized, unit_rows: int, batch_rows: int, passes: int) -> tuple[float, float, float]:
    """(CPU seconds of the reader, of the host, wall seconds) over all units, of the pass with the least sum of both."""
    layout, requests, found = memoized.layout, memoized.requests(unit_rows), list[tuple[float, float, float]]()
    with reader_process(memoized.home, kept_bytes=0) as (process, address):
        for _ in range(1 + passes):  # the first pass compiles and connects
            assembler = BatchAssembler(layout, batch_rows)
            settings = BufferSettings(limit_bytes=64 << 20)
            buffer = UnitBuffer(requests, partial(RemoteFetcher, token=TOKEN), UnitDecoder(layout), settings=settings)
            before, own, wall = process_cpu_secs(process.pid), time.process_time(), time.perf_counter()
            buffer.set_readers([address])
            for request, unit in buffer:
                assembler.add(unit, request.number)
                while assembler.ready:
                    assembler.take()
            taken = process_cpu_secs(process.pid) - before, time.process_time() - own, time.perf_counter() - wall
            found.append(taken)
            buffer.close()
    return min(found[1:], key=lambda secs: secs[0] + secs[1])


def carried(unit_bytes: int, passes: int) -> float:
    """The least CPU seconds in which both ends of a bare connection over loopback pass a unit on, and check what they have sent and received."""
    content, found = np.random.default_rng(1).integers(0, 256, unit_bytes, np.uint8), []
    with loopback(1, unit_bytes) as exchange:
        exchange()
        for _ in range(passes):
            before, own = process_cpu_secs(exchange.pid), time.process_time()
            for _ in range(_CARRIED_UNITS):
                exchange()
                for _ in range(2):
                    checksum_of([content.data])
            found.append(process_cpu_secs(exchange.pid) - before + time.process_time() - own)
    return min(found) / _CARRIED_UNITS


def tf_data_secs(memoized: Memoized, rows: int, batch_rows: int, folder: Path) -> float:
    """CPU seconds per row of tf.data, in a process of its own."""
    target = folder / "examples.tfrecord"
    command = [sys.executable, "-m", "benchmarks.support.tf_examples", str(memoized.home), str(target), str(rows), str(batch_rows)]  # fmt: skip
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


#: Prints what a figure is, CPU seconds of all rows, and a note.
Line = Callable[[str, float, str], None]


def report_by_reader(
    memoized: Memoized, sizes: tuple[int, int], passes: int, alone_secs: dict[str, float], line: Line
) -> None:
    """Print the way by a reader beside the stages in one process, and its floor; ``sizes``: the rows of units and of batches."""
    rows, whole, sizes_of = memoized.solution.rows, sum(alone_secs.values()), list[float]()

    def stages() -> dict[str, float]:
        secs, size = packed(memoized, *sizes, 16 * sizes[1])
        sizes_of.append(size)
        return {stage: secs[stage] for stage in ("pack", "decode", "batches")}

    reader, host, wall = by_reader(memoized, *sizes, passes)
    unit_rows = min(sizes[0], rows)
    floor = sum(least(stages, passes).values()) + alone_secs["read"] + alone_secs["arrays"]
    floor += carried(int(sizes_of[0] * unit_rows), passes) * rows / unit_rows
    line(f"by a reader, units of {sizes[0]:,}: its process", reader, "")
    line("  the host process", host, f"{rows / wall:,.0f} rows/s")
    line(
        "  both",
        reader + host,
        f"{(reader + host) / whole:.1f}x of memos to batches in one process, target {TARGET_OF_READER}x",
    )
    line("  floor: the stages, loopback, checksums", floor, f"{floor / whole:.1f}x")


def report(memoized: Memoized, options: argparse.Namespace, folder: Path) -> bool:
    """Print all figures; return whether the targets are met."""
    rows = memoized.solution.rows
    sizes, passes = (options.unit_rows, options.batch_rows), 2 if options.small else PASSES

    def line(what: str, secs: float, note: str = "") -> None:
        print(f"  {what:<44} {secs / rows * 1e9:8.0f}  {note}".rstrip(), flush=True)

    print(f"{rows:,} rows in {len(list(memoized.solution.fragments))} fragments, {len(memoized.solution.inputs)} inputs, "
          f"units of {sizes[0]:,} and batches of {sizes[1]:,} rows")  # fmt: skip
    print(f"  {'one thread, CPU':<44} {'ns/row':>8}")
    alone(memoized), to_batches(memoized, *sizes)
    reading, stages, floors = [], [], []
    for _ in range(passes):
        reading.append(alone(memoized))
        floors.append(least_for_batches(memoized, sizes[1]))
        stages.append(to_batches(memoized, *sizes))
    base, best = min(reading), min(stages, key=lambda secs: sum(secs.values()))
    line("reading the memos alone", base)
    for stage in STAGES:
        line(f"  {stage}", best[stage])
    line("  floor of batches: their ids and offsets", min(floors))
    whole = sum(best.values())
    share = base / whole
    line("memos to batches", whole, f"{share:.0%} of the speed of reading alone, target {TARGET_OF_READING:.0%}")
    window = 16 * sizes[1]
    sizes_of: list[float] = []

    def packed_once() -> dict[str, float]:
        secs, size = packed(memoized, *sizes, window)
        sizes_of.append(size)
        return secs

    packed_once()
    found = least(packed_once, passes)
    memo_bytes = sum(path.stat().st_size for path in (memoized.home / "memos").rglob("*.memo")) / rows
    for stage, secs in found.items():
        note = f"{sizes_of[0]:.0f} bytes, in memos {memo_bytes:.0f}" if stage == "pack" else ""
        if "shuffled" in stage:
            note = f"{secs / found['batches']:.1f}x of batches in order, target {TARGET_OF_SHUFFLED}x"
        line(f"packed: {stage}", secs, note)
    for unit_rows in dict.fromkeys((sizes[0], UNIT_ROWS)):
        report_by_reader(memoized, (unit_rows, sizes[1]), passes, best, line)
    met = share >= TARGET_OF_READING
    if not options.without_tf:
        tf_secs = tf_data_secs(memoized, min(rows, options.tf_rows), sizes[1], folder) * rows
        faster = tf_secs / whole
        line("tf.data, parsing examples", tf_secs, f"{faster:.1f}x of memos to batches, target {TARGET_OF_TF:.0f}x")
        met &= faster >= TARGET_OF_TF
    return met


def main() -> int:
    """Measure; the exit status is 1 if a target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--globo", type=Path, default=GLOBO, help="the folder of clicks_hour_*.csv.gz")
    parser.add_argument("--hours", type=int, default=24, help="of Globo's log")
    parser.add_argument("--unit-rows", type=int, default=4096)
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--tf-rows", type=int, default=50_000, help="examples that tf.data parses")
    parser.add_argument("--without-tf", action="store_true")
    parser.add_argument("--small", action="store_true", help="few rows of the sample log, to test the script")
    options = parser.parse_args()
    print(machine())
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="headrace-reader-") as name:
        folder = Path(name)
        source = options.globo if options.globo.is_dir() and not options.small else None
        memoized = memoize(folder, source, options.hours, 2_000 if options.small else 300_000)
        options.tf_rows = 500 if options.small else options.tf_rows
        met = report(memoized, options, folder)
    return 0 if met or options.small else 1


if __name__ == "__main__":
    sys.exit(main())
