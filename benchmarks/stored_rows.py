"""A run whose parameter servers store a row for each of a billion ids: training, its commit by shards, and going on from it.

    python -m benchmarks.stored_rows [--rows 1073741824] [--servers 2] [--ids-per-event 4096] [--folder FOLDER] [--quick]

A made Parquet log has lists of ids, each id of the table once, scattered, so that after training every row was updated and is stored. The commands
are those of a user: ``table add``, ``model submit``, ``train --servers`` (a wide model: one weight and one slot a row), once to the end of the
first half of the log and once to its end, so that the second training begins with rows that the servers load from their shards. ``ckpt verify``
reads every byte of the last commit. The memory is the peak of the servers' processes together, and of the trainer, a page that several have once.

A billion rows take 16 bytes of memory and about as much of disk each, and the log 8 more: ``--rows`` is cut to what fits on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.support.harness import machine
from benchmarks.support.training_scene import OPTIONS
from trainer.checkpoints.open_run import open_run
from trainer.serving.deltas.commit_weights import newest_commit

_START = datetime(2026, 3, 1)
_LOOK_SECS = 5.0
_MOST_FILE_EVENTS = 2048
#: Of the log, and of the shards of two commits.
_DISK_BYTES_PER_ROW = 8 + 2 * 16
#: Odd, so it has no factor of a power of two, and its products visit each id once.
_SCATTER = 0x9E3779B1


def write_log(folder: Path, rows: int, ids_per_event: int) -> None:
    """Files of two hours whose events together have each id below ``rows`` once; ``rows`` is a power of two."""
    rng = np.random.default_rng(1)
    events = rows // ids_per_event
    of_file = min(_MOST_FILE_EVENTS, events // 2)
    for first in range(0, events, of_file):
        count = min(of_file, events - first)
        ids = np.arange(first * ids_per_event, (first + count) * ids_per_event, dtype=np.int64)
        ids = (ids * _SCATTER) & (rows - 1)
        offsets = np.arange(0, len(ids) + 1, ids_per_event, dtype=np.int32)
        hour = _START + timedelta(hours=2 * first // events)
        columns = {
            "time": pa.array(np.full(count, np.datetime64(hour, "us"))),
            "label": pa.array(rng.integers(0, 2, count).astype(np.float32)),
            "ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids)),
        }
        place = folder / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        place.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), place / f"part-{first:08}.parquet", compression="none", use_dictionary=False)  # fmt: skip


class Memory:
    """The peak memory of the descendants of this process, by what they are, while it is open. The kernel walks all pages at each look, so they are rare."""

    def __init__(self) -> None:
        self.peak_bytes = {"trainer": 0, "servers": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_SECS):
            now = dict.fromkeys(self.peak_bytes, 0)
            for folder in _descendants(os.getpid()):
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    found = (
                        dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
                        if b"headrace" in words
                        else {}
                    )
                except (OSError, ValueError):
                    continue
                if found:
                    now["servers" if b"ps" in words else "trainer"] += int(found["Pss"].split()[0]) << 10
            self.peak_bytes = {name: max(one, now[name]) for name, one in self.peak_bytes.items()}


def _descendants(process: int) -> Iterator[Path]:
    """The folders in /proc of the processes that a process has started, and of those that these have started."""
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            for child in path.read_text().split():
                yield Path("/proc", child)
                yield from _descendants(int(child))


def run(home: Path, *command: str) -> tuple[float, str]:
    """Seconds and output of a command of ``headrace``."""
    began = time.monotonic()
    environment = {**os.environ, "HEADRACE_HOME": str(home)}
    done = subprocess.run([sys.executable, "-m", "headrace", *command], capture_output=True, text=True, env=environment, check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(command)}: {done.stderr[-4000:]}")
    return time.monotonic() - began, done.stdout


def stored_bytes(run_dir: Path) -> tuple[int, int]:
    """The rows of the newest commit by the sizes of its shards' files, and the bytes of these shards."""
    commit = newest_commit(open_run(run_dir))
    files = [one for part in commit.table_parts for name, one in part.arrays.items() if "/rows/" in name]
    sizes = [one.file.size_bytes for part in commit.table_parts for one in part.arrays.values()]
    return sum((one.file.size_bytes - 128) // 8 for one in files), sum(sizes)


def measure(folder: Path, rows: int, servers: int, ids_per_event: int) -> None:
    """Train both halves, and print what each step took."""
    home, run_dir = folder / "home", folder / "run"
    began = time.monotonic()
    write_log(folder / "log", rows, ids_per_event)
    print(f"log of {rows // ids_per_event:,} events with {ids_per_event:,} ids each: written in {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    (folder / "model.py").write_text(
        "import headrace as hr\n"
        "model = hr.Model('wide', client='ads', label=hr.float32('label'))\n"
        f"model.input('ids', hr.ragged('ids', 'int64').modulo({rows}))\n"
    )
    options = {**OPTIONS, "deep": False, "batch_rows": 128}
    (folder / "options.json").write_text(json.dumps(options))
    run(home, "table", "add", "log", str(folder / "log"), "--time-column", "time")
    run(home, "model", "submit", str(folder / "model.py"), "--table", "log")
    train = ["train", "wide", "--config", str(folder / "options.json"), "--run-dir", str(run_dir), "--servers", str(servers), "--json"]  # fmt: skip
    with Memory() as memory:
        for name, more in (
            ("first half", ("--end", f"{_START + timedelta(hours=1):%Y-%m-%dT%H:%M}")),
            ("second half", ()),
        ):
            secs, out = run(home, *train, *more)
            report = json.loads(out)
            found, size = stored_bytes(run_dir)
            print(f"{name}: {secs:.0f} s, {report['training_secs']:.0f} s of it training, {report['events_this_time']:,} events, {found:,} rows stored in shards of {size / 1e9:.2f} GB", flush=True)  # fmt: skip
    print("peak memory: " + ", ".join(f"{name} {one / 1e9:.1f} GB" for name, one in memory.peak_bytes.items()))
    secs, _ = run(home, "ckpt", "verify", str(run_dir))
    print(f"ckpt verify: {secs:.0f} s")


def main() -> None:
    """Measure the rows that fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1 << 30, help="a power of two")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--ids-per-event", type=int, default=4096)
    parser.add_argument("--folder", default="", help="of the log and the run; a new one by default")
    parser.add_argument("--quick", action="store_true", help="a million rows")
    given = parser.parse_args()
    rows = 1 << (20 if given.quick else max(given.rows, 1 << 20).bit_length() - 1)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder or None, prefix="headrace-rows-") as name:
        while rows * _DISK_BYTES_PER_ROW > shutil.disk_usage(name).free:
            rows //= 2
            print(f"the disk has space for {rows:,} rows")
        measure(Path(name), rows, given.servers, given.ids_per_event)


if __name__ == "__main__":
    main()
