"""Reshard a commit of rows with slots from 4 parts to 6 and back, against copying its bytes, on one disk in one run.

    python -m benchmarks.reshard [--bytes N] [--folder PATH]

A table of N bytes in all, with 32 columns and Adagrad's slots, of which four hosts hold the changed rows, is written as a commit. Its files
are copied as they are, with a sync of each, then the commit is resharded to 6 parts and from these to 4. Each way reads files that are not in
the memory of the system. The commits before and after are compared by the digests of their files. Prints the times, their ratios, and the
most memory of the resharding process beyond that before it, against the bytes of a shard.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.checkpoints.commit_manifest import CommitFacts
from trainer.checkpoints.host_part import HostPart
from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.parted_arrays import ArrayKind, PartedArrays
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.publish import publish
from trainer.checkpoints.read import open_commit
from trainer.checkpoints.run_files import commit_name
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.planning.plan import PartitionPlan
from trainer.scheduling.orders import Commit
from transforms.arrays import Array

_COLUMNS, _HOSTS, _MORE_HOSTS = 32, 4, 6
_ROW_BYTES = 8 + 2 * 4 * _COLUMNS
_PIECE_ROWS = 1 << 16
_COPY_BYTES = 8 << 20
TARGET_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class Measured:
    """A way of writing the commit again: its wall seconds, and the most memory beyond that before it; 0 if it is not known."""

    secs: float
    peak_bytes: int = 0


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bytes", type=int, default=1_000_000_000)
    options.add_argument("--folder", default="")
    options.add_argument("--reshard", nargs=3, metavar=("RUN", "PARTS", "OUTPUT"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.reshard:
        _reshard(Path(given.reshard[0]), int(given.reshard[1]), Path(given.reshard[2]))
        return
    with tempfile.TemporaryDirectory(dir=given.folder or None) as folder:
        _measure(Path(folder), given.bytes)


def _measure(folder: Path, size_bytes: int) -> None:
    rows = size_bytes // _ROW_BYTES
    _write_commit(folder / "run", rows)
    digests = _digests(folder / "run")
    copied = _copy(folder / "run", folder / "copy")
    shutil.rmtree(folder / "copy")
    first = _reshard_apart(folder / "run", _MORE_HOSTS, folder / "six")
    shutil.rmtree(folder / "run")
    copied_again = _copy(folder / "six", folder / "copy")
    shutil.rmtree(folder / "copy")
    second = _reshard_apart(folder / "six", _HOSTS, folder / "four")
    is_equal = _digests(folder / "four") == digests
    shard_bytes = size_bytes // _MORE_HOSTS
    print(f"{rows:,} rows of {_ROW_BYTES} bytes, {size_bytes / 1e9:.2f} GB")
    for name, found, copy in (("4 to 6", first, copied), ("6 to 4", second, copied_again)):
        ratio = found.secs / copy.secs
        print(f"{name}: copy {copy.secs:.1f} s, reshard {found.secs:.1f} s, ratio {ratio:.2f} "
              f"(target at most {TARGET_RATIO}: {'met' if ratio <= TARGET_RATIO else 'missed'}), "
              f"memory {found.peak_bytes / 1e6:.0f} MB, a shard {shard_bytes / 1e6:.0f} MB")  # fmt: skip
    both = (first.secs + second.secs) / (copied.secs + copied_again.secs)
    print(f"both ways: ratio {both:.2f}; bit-equal: {is_equal}")


def _write_commit(run: Path, rows: int) -> None:
    """A commit of four hosts; half of the rows of a table twice as large were changed."""
    hosts = tuple(f"host-{rank}" for rank in range(_HOSTS))
    parts = {}
    for rank, host in enumerate(hosts):
        part = HostPart(attempt=1, epoch=0, rank=rank, hosts=_HOSTS, next_unit=1, step=1, plan="plan")
        own = rows // _HOSTS
        kinds = (
            ArrayKind("embedding/rows/table", "<i8", (own,)),
            ArrayKind("embedding/weights/table", "<f4", (own, _COLUMNS)),
            ArrayKind("embedding/slots/table", "<f4", (own, _COLUMNS)),
        )
        taken = TakenArrays(part.moment, {}, (PartedArrays(kinds, _pieces(rank, own)),))
        parts[host] = write_part(run, part, [taken])
    facts = CommitFacts({}, "", {}, (), {})
    publish(run, Commit(1, 1, 1), hosts, parts, lambda plan: facts)


def _pieces(rank: int, rows: int) -> Iterator[tuple[Array, Array, Array]]:
    """Ascending rows of a host, with values of random bits."""
    draw = np.random.default_rng(rank)
    for first in range(0, rows, _PIECE_ROWS):
        own = np.arange(first, min(first + _PIECE_ROWS, rows), dtype=np.int64)
        numbers = 2 * own + draw.integers(0, 2, len(own))  # every second row, by chance
        values = [draw.random((len(own), _COLUMNS), np.float32) for _ in range(2)]
        yield numbers * _HOSTS + rank, values[0], values[1]


def _digests(run: Path) -> dict[tuple[int, str], str]:
    """The digests of the arrays of each part, which cover all bits."""
    commit = open_commit(LocalRun(run / "checkpoints"), commit_name(1))
    return {
        (rank, name): stored.file.sha256
        for rank, part in enumerate(commit.parts)
        for name, stored in part.arrays.items()
    }


def _forget(folder: Path) -> None:
    """Have the system drop the content of files from its memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _copy(run: Path, to: Path) -> Measured:
    """Copy each file, with a sync."""
    _forget(run)
    began = time.perf_counter()
    for path in sorted(run.rglob("*")):
        place = to / path.relative_to(run)
        if path.is_dir():
            place.mkdir(parents=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as source, place.open("xb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
    return Measured(time.perf_counter() - began)


def _reshard_apart(run: Path, parts: int, output: Path) -> Measured:
    """Reshard in a process of its own, whose memory is known."""
    _forget(run)
    command = [sys.executable, "-m", "benchmarks.reshard", "--reshard", str(run), str(parts), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(**json.loads(done.stdout))


def _reshard(run: Path, parts: int, output: Path) -> None:
    from trainer.job.launch.resharded_run import reshard_run

    before = _peak_bytes()
    began = time.perf_counter()
    reshard_run(str(run), 1, PartitionPlan(parts, ()), output)
    secs = time.perf_counter() - began
    print(json.dumps({"secs": secs, "peak_bytes": _peak_bytes() - before}))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main()
