"""Score the same events in one process and on several hosts: events a second, and the memory of each process.

    python -m benchmarks.shared_scoring [--hosts N ...] [--events N] [--table-rows N] [--rounds N] [--valency N ...]

A model of eight tables, with ids by a power law, is trained and scores newer events: alone as ``headrace evaluate`` does, and on hosts that are
processes of this machine and exchange rows over TCP, as with ``--hosts N``. Each process has a core of its own, as far as there are cores. Rates are
those after the first batch, so that the start of Python and TensorFlow and the reading of the checkpoint are not in them. Memory is what a process
has while it scores, less what it has before it reads the checkpoint. The predictions of all ways must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
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
from transforms.columns.arrow_types import arrow_type
from transforms.types import ColumnType, DType, Ragged

_TABLES, _DIM, _BATCH, _SKEW = 8, 32, 1024, 1.05


@dataclass(frozen=True, slots=True)
class _Scene:
    run: str
    events: int
    table_rows: int
    valency: int

    def data(self, *, is_newer: bool) -> Synthetic:
        types: dict[str, ColumnType] = {f"f{k}": Ragged(DType.INT64, self.table_rows) for k in range(_TABLES)}
        return Synthetic(4, self.events // 4, first=100 * is_newer, types=types, make=partial(_events, self.valency))


@dataclass(frozen=True, slots=True)
class _Done:
    """What one process did: events a second after its first batch, memory, and the digest of all predictions, on the first host."""

    rate: float
    memory_bytes: int
    digest: str


def _events(valency: int, number: int, rows: int, types: Any) -> pa.Table:
    random, rest = np.random.default_rng(number), 1 - _SKEW
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * valency)
    columns: dict[str, Any] = {}
    for name, type_ in types.items():
        ranks = ((type_.buckets**rest - 1) * random.random(rows * valency) + 1) ** (1 / rest)
        ids = np.minimum(ranks, type_.buckets).astype(np.int64) - 1
        columns[name] = pa.ListArray.from_arrays(
            offsets, pa.array(ids * 387_420_489 % type_.buckets), type=arrow_type(type_)
        )
    return pa.table({**columns, "__label__": pa.array((random.random(rows) < 0.2).astype(np.int64))})


def _score(scene: _Scene, rank: int, hosts: int, folder: str, results: Any) -> None:
    """One process: the work of ``headrace evaluate``."""
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    data, marks, memory = scene.data(is_newer=True), [], []
    before = _resident_bytes()

    def report(done: int, total: int) -> None:
        marks.append((time.monotonic(), done))
        memory.append(_resident_bytes())

    if hosts == 1:
        events: ScoredEvents | None = score_events(load_trained(scene.run), data.solution, data.read, progress=report)
    else:
        with scoring_channels(rank, Address("127.0.0.1", 0), lambda own: meet(Path(folder), rank, hosts, own, lambda: None)) as channels:  # fmt: skip
            events = score_together(
                scene.run, data.solution, data.read, data.read_labels, channels, progress=report
            ).events
    (first, begun), (last, done) = marks[0], marks[-1]
    digest = "" if events is None else hashlib.sha256(events.logits.tobytes()).hexdigest()
    results.put((rank, _Done((done - begun) / (last - first) if events else 0.0, max(memory) - before, digest)))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    parser.add_argument("--hosts", type=int, nargs="+", default=[2])
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--table-rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--valency", type=int, nargs="+", default=[1, 20], help="ids of a bag")
    options = parser.parse_args()
    print(machine())
    is_equal = [_measure_case(options, valency) for valency in options.valency]
    return 0 if all(is_equal) else 1


def _measure_case(options: argparse.Namespace, valency: int) -> bool:
    """Print the ways to score events with bags of so many ids; whether their predictions are equal."""
    with tempfile.TemporaryDirectory() as run:
        scene = _Scene(run, options.events, options.table_rows, valency)
        older = scene.data(is_newer=False)
        trained = config(run, batch_rows=_BATCH, dim=_DIM, top_mlp=(256, 128), bottom_mlp=(64,))
        train(older.solution, older.read, trained)
        rounds = [{hosts: _measure(scene, hosts) for hosts in (1, *options.hosts)} for _ in range(options.rounds)]
    print(f"{_TABLES} tables of {options.table_rows:,} rows x {_DIM}, {valency} ids a bag")
    for hosts in (1, *options.hosts):
        rate = statistics.median(each[hosts][0].rate for each in rounds)
        ratio = statistics.median(each[hosts][0].rate / each[1][0].rate for each in rounds)
        memory = max(one.memory_bytes for one in rounds[-1][hosts]) / rounds[-1][1][0].memory_bytes
        print(f"  {hosts} {'process' if hosts == 1 else 'hosts  '}: {rate:9,.0f} events/s, {ratio:.2f}x; memory of a process {memory:.2f}x", flush=True)  # fmt: skip
    is_equal = len({one[0].digest for each in rounds for one in each.values()}) == 1
    print(f"  predictions are {'equal to the last bit' if is_equal else 'different'}")
    return is_equal


if __name__ == "__main__":
    sys.exit(main())
