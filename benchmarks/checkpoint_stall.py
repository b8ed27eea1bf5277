"""Training that is stalled by a checkpoint: written while training goes on, against a full-stop save, in one run.

    python -m benchmarks.checkpoint_stall [--gigabytes G] [--epoch-secs S] [--rounds N] [--uniform] [--folder PATH]

A model with eight embedding tables of G gigabytes of rows, weights and Adagrad slots, all of them trained, takes the same
number of steps per epoch in three ways, alternately: without a checkpoint, with one written in the background, and with one
for which training stops. The stall is the time beyond that of the epoch without a checkpoint; "own stall" is the part of it in
which training itself waits for the snapshot or puts rows aside, or stands still, which does not depend on the load of the
machine as much. Ids follow a Zipf distribution;
``--uniform`` draws them evenly, so that nearly every step changes rows that are not captured yet.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trainer.checkpoints.background import BackgroundWriter
from trainer.checkpoints.host_part import HostPart
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.taken_arrays import TakenArrays

if TYPE_CHECKING:
    from trainer.run.reading.batches import Batch
    from trainer.run.weights.run_state import Weights
    from trainer.tables.routes.cpu_engine import CpuEngine
    from trainer.tables.stores.dense.snapshot import EngineSnapshot

_FEATURES, _DIM, _BATCH_ROWS, _BATCHES = 8, 64, 1024, 64
_ROW_BYTES = 8 + 2 * 4 * _DIM
_ASIDE_BYTES = 256 << 20
TARGET_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """An epoch.

    Attributes:
        secs, cpu_secs: wall and CPU seconds.
        longest_secs: its longest step.
        own_secs: seconds in which training stood still for the checkpoint, or worked for its snapshot.
        writing_secs: from the begin to the end of the writing.
        peak_bytes: the most memory beyond that before it.
    """

    secs: float
    cpu_secs: float
    longest_secs: float
    own_secs: float
    writing_secs: float
    peak_bytes: int


class _TimedLock:
    """A snapshot's lock that adds up how long training waits for it."""

    def __init__(self, lock: threading.Condition, spent: Spent) -> None:
        self._lock, self._spent = lock, spent

    def __enter__(self) -> None:
        begun = time.perf_counter()
        self._lock.__enter__()
        self._spent.secs += time.perf_counter() - begun

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


@dataclass
class Spent:
    """Seconds that training spends for a snapshot, and the most bytes that were put aside."""

    secs: float = 0.0
    aside_bytes: int = 0


def count_time(engine: CpuEngine, spent: Spent) -> None:
    """Add up the time that training spends for the engine's snapshots."""
    begin = engine.begin_snapshot

    def begin_snapshot(*, most_bytes: int) -> EngineSnapshot:
        begun = time.perf_counter()
        found: Any = begin(most_bytes=most_bytes)
        put_aside, lock = found.put_aside, _TimedLock(found.changing(), spent)

        def timed(bags: Any, table_of: Any) -> None:
            at = time.perf_counter()
            put_aside(bags, table_of)
            spent.secs += time.perf_counter() - at
            spent.aside_bytes = max(spent.aside_bytes, found.aside_bytes)

        found.put_aside, found.changing = timed, lambda: lock
        spent.secs += time.perf_counter() - begun
        return found  # type: ignore[no-any-return]

    engine.begin_snapshot = begin_snapshot  # type: ignore[method-assign]


def build(gigabytes: float, *, uniform: bool) -> tuple[Weights, list[Batch]]:
    """A model whose tables are trained wholly, and batches to train."""
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.options.config import TrainConfig
    from trainer.run.reading.batches import make_batches
    from trainer.run.reading.columns import decode
    from trainer.run.weights.run_state import build_weights
    from trainer.tables.engine import TableState
    from transforms.types import Dense, DType

    rows = int(gigabytes * 1e9 / _ROW_BYTES / _FEATURES)
    config = TrainConfig(
        run_dir="-", dim=_DIM, batch_rows=_BATCH_ROWS, deterministic=False, bottom_mlp=(64,), top_mlp=(128, 64)
    )
    inputs = (
        *(TypedInput(f"id_{k}", Dense(DType.INT64, rows)) for k in range(_FEATURES)),
        TypedInput("price", Dense(DType.FLOAT32)),
    )
    layout = lay_out(inputs, config)
    weights = build_weights(layout, config)
    draw = np.random.default_rng(1)
    assert weights.engine is not None
    weights.engine.load_state({
        table.name: TableState(np.arange(rows), draw.standard_normal((rows, _DIM), np.float32) * np.float32(0.01),
                               np.full((rows, _DIM), 0.1, np.float32))
        for table in weights.engine.tables
    })  # fmt: skip
    events = _BATCH_ROWS * _BATCHES

    def ids() -> pa.Array:
        drawn = draw.integers(0, rows, events) if uniform else (draw.zipf(1.1, events) * 2654435761) % rows
        return pa.array(drawn, pa.int64())

    columns = {f"id_{k}": ids() for k in range(_FEATURES)}
    table = pa.table({**columns, "price": pa.array(draw.standard_normal(events), pa.float32()),
                      "__label__": pa.array(draw.integers(0, 2, events), pa.int64())})  # fmt: skip
    return weights, list(make_batches([decode(table, layout, "made")], layout, batch_rows=_BATCH_ROWS))


class Epochs:
    """Trains epochs of a number of steps, each in one of three ways."""

    def __init__(self, weights: Weights, batches: list[Batch], folder: Path, steps: int) -> None:
        self._weights, self._batches, self._folder, self._steps = weights, batches, folder, steps
        self._attempt = 0
        self._writing_secs = 0.0
        self.spent = Spent()
        assert weights.engine is not None
        count_time(weights.engine, self.spent)

    def of(self, steps: int) -> Epochs:
        """The same with another number of steps."""
        self._steps = steps
        self.spent.aside_bytes = 0
        return self

    def _write(self) -> Callable[[], Path]:
        """Take the state of this moment; the result writes it."""
        self._attempt += 1
        part = HostPart(self._attempt, 0, 0, 1, 0, 0)
        taken = TakenArrays(part.moment, self._weights.dense_arrays(), self._weights.begin_tables(_ASIDE_BYTES))

        def write() -> Path:
            begun = time.perf_counter()
            try:
                write_part(self._folder, part, [taken])
            finally:
                self._weights.end_tables()
            self._writing_secs = time.perf_counter() - begun
            return self._folder

        return write

    def run(self, way: str) -> EpochTimes:
        """Train an epoch: "no checkpoint", "background" or "full stop"."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.sync()
        reset_peak()
        before, self._writing_secs, self.spent.secs = resident_bytes(), 0.0, 0.0
        with BackgroundWriter(lambda path: None) as writer:
            cpu, begun = time.process_time(), time.perf_counter()
            if way != "no checkpoint":
                writer.begin(self._write())
            if way == "full stop":
                writer.wait()
            last = time.perf_counter()
            stopped, longest = last - begun if way == "full stop" else 0.0, 0.0
            for batch in islice(cycle(self._batches), self._steps):
                self._weights.train(batch)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
            secs, cpu = time.perf_counter() - begun, time.process_time() - cpu
        own = stopped or self.spent.secs
        return EpochTimes(secs, cpu, longest, own, self._writing_secs, peak_bytes() - before)


def resident_bytes() -> int:
    """The memory of this process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most memory of this process since :func:`reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Begin a new peak."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def main() -> None:
    """Print the stall of each way."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--gigabytes", type=float, default=2.0)
    options.add_argument("--epoch-secs", type=float, default=60.0)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--uniform", action="store_true", help="ids are drawn evenly")
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "headrace-checkpoint-stall")
    given = options.parse_args()
    weights, batches = build(given.gigabytes, uniform=given.uniform)
    trial = Epochs(weights, batches, given.folder, 2 * _BATCHES)
    trial.run("no checkpoint")  # compiles
    trial.run("background")
    steps = max(round(given.epoch_secs / trial.run("no checkpoint").secs * 2 * _BATCHES), 10)
    epochs = trial.of(steps)
    ways = ("no checkpoint", "background", "full stop")
    found: dict[str, list[EpochTimes]] = {way: [] for way in ways}
    print(f"{given.gigabytes:g} GB of rows, {steps:,} steps of {_BATCH_ROWS:,} events an epoch, {os.cpu_count()} cores, "
          f"{'uniform' if given.uniform else 'Zipf'} ids")  # fmt: skip
    print(
        f"{'':<15}{'epoch s':>9}{'stall s':>9}{'stall %':>9}{'own stall s':>13}{'writing s':>11}{'longest step s':>16}{'CPU s':>8}{'more memory':>13}"
    )
    for _ in range(given.rounds):
        for way in ways:
            found[way].append(epochs.run(way))
            one, plain = found[way][-1], found["no checkpoint"][-1].secs
            print(f"{way:<15}{one.secs:9.2f}{one.secs - plain:9.2f}{100 * (one.secs / plain - 1):9.1f}{one.own_secs:13.2f}{one.writing_secs:11.2f}"
                  f"{one.longest_secs:16.3f}{one.cpu_secs:8.1f}{one.peak_bytes / 1e6:10.0f} MB", flush=True)  # fmt: skip
    shares = {
        way: statistics.median(
            100 * (one.secs / plain.secs - 1) for one, plain in zip(found[way], found["no checkpoint"], strict=True)
        )
        for way in ways[1:]
    }
    own = {
        way: statistics.median(
            100 * one.own_secs / plain.secs for one, plain in zip(found[way], found["no checkpoint"], strict=True)
        )
        for way in ways[1:]
    }
    print(f"own stall of an epoch: background {own['background']:.2f} %, full stop {own['full stop']:.1f} %")
    print(f"stall of an epoch: background {shares['background']:.1f} %, full stop {shares['full stop']:.1f} %, "
          f"target under {TARGET_PERCENT:g} %: {'ok' if shares['background'] < TARGET_PERCENT else 'missed'}; "
          f"values put aside: at most {epochs.spent.aside_bytes / 1e6:,.0f} MB")  # fmt: skip
    shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
