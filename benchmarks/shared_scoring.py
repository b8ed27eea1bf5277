"""Score the same events in one process and on several hosts: events a second, and the memory of each process.

    python -m benchmarks.shared_scoring [--hosts N ...] [--events N] [--table-rows N] [--rounds N]

A model of eight tables is trained on events that touch most of their rows, and scores newer ones: alone as ``headrace evaluate`` does, and on hosts
that are processes of this machine and exchange rows over TCP, as with ``--hosts N``. Rates are those after the first batch, so that the start of
Python and TensorFlow and the reading of the checkpoint are not in them. Each process has one thread of TensorFlow; with fewer cores than hosts, hosts
share them. Memory is the largest of a process, less what one has before it reads the checkpoint. The predictions of all ways must be equal to the
last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow as pa

from benchmarks.support.harness import machine
from tests.trainer.synthetic import Synthetic, config
from trainer.job.scoring.scoring_host import meet, scoring_channels
from trainer.job.scoring.shared_scoring import score_together
from trainer.run.loop import train
from trainer.serving.scored_events import ScoredEvents, score_events
from trainer.serving.trained import load_trained
from trainer.wire.flight.addresses import Address
from transforms.types import ColumnType, DType, Ragged, arrow_type

_TABLES, _DIM, _VALENCY, _BATCH = 8, 32, 20, 1024


@dataclass(frozen=True, slots=True)
class _Scene:
    run: str
    events: int
    table_rows: int

    def data(self, *, is_newer: bool) -> Synthetic:
        types: dict[str, ColumnType] = {f"f{k}": Ragged(DType.INT64, self.table_rows) for k in range(_TABLES)}
        return Synthetic(4, self.events // 4, first=100 * is_newer, types=types, make=_events)


@dataclass(frozen=True, slots=True)
class _Done:
    """What one process did: events a second after its first batch, memory, and the digest of all predictions, on the first host."""

    rate: float
    memory_bytes: int
    digest: str


def _events(number: int, rows: int, types: Any) -> pa.Table:
    random = np.random.default_rng(number)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * _VALENCY)
    columns = {
        name: pa.ListArray.from_arrays(offsets, pa.array(random.integers(0, type_.buckets, rows * _VALENCY)), type=arrow_type(type_))
        for name, type_ in types.items()
    }  # fmt: skip
    return pa.table({**columns, "__label__": pa.array((random.random(rows) < 0.2).astype(np.int64))})


def _score(scene: _Scene, rank: int, hosts: int, folder: str, results: Any) -> None:
    """One process: the work of ``headrace evaluate``."""
    data, marks = scene.data(is_newer=True), []
    before = _peak_bytes()

    def report(done: int, total: int) -> None:
        marks.append((time.monotonic(), done))

    if hosts == 1:
        events: ScoredEvents | None = score_events(load_trained(scene.run), data.solution, data.read, progress=report)
    else:
        with scoring_channels(rank, Address("127.0.0.1", 0), lambda own: meet(Path(folder), rank, hosts, own, lambda: None)) as channels:  # fmt: skip
            events = score_together(scene.run, data.solution, data.read, channels, progress=report).events
    (first, begun), (last, done) = marks[0], marks[-1]
    digest = "" if events is None else hashlib.sha256(events.logits.tobytes()).hexdigest()
    results.put((rank, _Done((done - begun) / (last - first) if events else 0.0, _peak_bytes() - before, digest)))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _measure(scene: _Scene, hosts: int) -> list[_Done]:
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        started = [spawn.Process(target=_score, args=(scene, rank, hosts, folder, results)) for rank in range(hosts)]
        for one in started:
            one.start()
        found = dict(results.get(timeout=600) for _ in started)
        for one in started:
            one.join()
    return [found[rank] for rank in range(hosts)]


def main() -> int:
    """Measure and print; the exit status is 1 if predictions differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--table-rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as run:
        scene = _Scene(run, options.events, options.table_rows)
        older = scene.data(is_newer=False)
        train(
            older.solution, older.read, config(run, batch_rows=_BATCH, dim=_DIM, top_mlp=(256, 128), bottom_mlp=(64,))
        )
        rounds = [{hosts: _measure(scene, hosts) for hosts in (1, *options.hosts)} for _ in range(options.rounds)]
    digests = {one[0].digest for each in rounds for one in each.values()}
    for hosts in (1, *options.hosts):
        rate = statistics.median(each[hosts][0].rate for each in rounds)
        ratio = statistics.median(each[hosts][0].rate / each[1][0].rate for each in rounds)
        memory = max(one.memory_bytes for one in rounds[-1][hosts]) / max(rounds[-1][1][0].memory_bytes, 1)
        print(
            f"{hosts} {'process' if hosts == 1 else 'hosts  '}: {rate:9,.0f} events/s, {ratio:.2f}x; memory of the largest process {memory:.2f}x"
        )
    print("predictions are equal to the last bit" if len(digests) == 1 else "predictions differ")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
