"""A small synthetic read solution with labels that depend on its inputs, and a reader, without files or catalog.

Also a program: ``python synthetic.py <run_dir> <options as JSON> <batches>`` trains on it, for tests that kill a training
process: after so many batches it stands still (0: never). The option ``servers`` puts the tables on so many servers of the process,
``slice_servers`` the devices of an emulated slice on TensorFlow servers at these addresses; ``replicas`` are its devices; ``batch_files`` is a
home for files of batches.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trainer.options.config import TrainConfig
from transforms.columns.arrow_types import arrow_type
from transforms.graphs.graph import RawColumn, component_document
from transforms.types import ColumnType, Dense, DType, Ragged
from warehouse.files.batch_files.folder import BatchFolder
from warehouse.solution.parts import ReadPlan, SolutionFragment, SolutionInput, SolutionPartition
from warehouse.solution.solution import ReadSolution

if TYPE_CHECKING:
    from trainer.run.weights.served_weights import MakeEngine

TYPES: dict[str, ColumnType] = {
    "words": Ragged(DType.INT64, 500),
    "user": Dense(DType.INT64, 200),
    "price": Dense(DType.FLOAT32),
    "mobile": Dense(DType.BOOL),
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def fragment_table(seed: int, rows: int, types: Mapping[str, ColumnType] | None = None) -> pa.Table:
    """``rows`` events drawn from ``seed``; the click rate depends on user, words and price."""
    rng = np.random.default_rng(seed)
    user = rng.zipf(1.3, rows) % 200
    lengths = rng.integers(0, 5, rows)
    words = rng.zipf(1.2, int(lengths.sum())) % 500
    price = rng.normal(size=rows).astype(np.float32)
    mobile = rng.random(rows) < 0.5
    taste = np.random.default_rng(7).normal(size=700)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    liked = np.add.reduceat(np.concatenate([taste[200 + words], [0.0]]), offsets[:-1]) * (lengths > 0)
    odds = taste[user] + 0.5 * liked + 0.7 * price * np.where(mobile, 1, -1) - 1.0
    clicked = rng.random(rows) < 1 / (1 + np.exp(-odds))
    columns = {
        "words": pa.ListArray.from_arrays(pa.array(offsets), pa.array(words), type=arrow_type(TYPES["words"])),
        "user": pa.array(user, pa.int64(), mask=rng.random(rows) < 0.1),
        "price": pa.array(price, mask=rng.random(rows) < 0.1),
        "mobile": pa.array(mobile),
        "__label__": pa.array(clicked.astype(np.int64)),
    }
    return pa.table({name: columns[name] for name in [*(types or TYPES), "__label__"]})


class Synthetic:
    """``partitions`` hourly partitions of two fragments each. ``tables`` may be changed by a test, by fragment path.

    ``make``: a fragment's table by a number of its own, its rows and the types of its columns.
    """

    def __init__(
        self,
        partitions: int = 4,
        rows: int = 300,
        *,
        first: int = 0,
        types: Mapping[str, ColumnType] | None = None,
        make: Callable[[int, int, Mapping[str, ColumnType]], pa.Table] | None = None,
    ) -> None:
        types, self._make = types or TYPES, make or fragment_table
        self.tables: dict[str, pa.Table] = {}
        self.reads: list[str] = []
        parts = tuple(self._partition(hour, rows, types) for hour in range(first, first + partitions))
        inputs = tuple(
            SolutionInput(name, f"{name:f<64}", kind, component_document(RawColumn(kind, name)))
            for name, kind in types.items()
        )
        self.solution = ReadSolution(
            "ctr", 1, "events", 1, "clicked", inputs, (ReadPlan(("raw",) * len(types), {}),), parts
        )

    def _partition(self, hour: int, rows: int, types: Mapping[str, ColumnType]) -> SolutionPartition:
        fragments = []
        for k in range(2):
            path, count = f"hour={hour:02d}/{k}.parquet", rows + 17 * k
            self.tables[path] = self._make(1000 * hour + k, count, types)
            digests = {name: f"{hour}-{k}-{name}" for name in [*types, "clicked", "unused"]}
            fragments.append(SolutionFragment(f"id-{hour}-{k}", path, (0,), count, 0, digests, plan=0, files=()))
        start = START + timedelta(hours=hour)
        return SolutionPartition(f"hour={hour:02d}", start, start + timedelta(hours=1), 1, tuple(fragments))

    def read(self, fragment: SolutionFragment) -> pa.Table:
        """The fragment's columns and label."""
        self.reads.append(fragment.path)
        return self.tables[fragment.path]

    def read_labels(self, fragment: SolutionFragment) -> pa.Table:
        """The labels of the fragment's stored events."""
        table = self.tables[fragment.path].select(["__label__"])
        return table.append_column("__live__", pa.array(np.ones(table.num_rows, bool)))


def config(run_dir: Path | str, **options: Any) -> TrainConfig:
    """Small sizes; not deterministic mode, which wants a process to itself."""
    defaults: dict[str, Any] = {
        "batch_rows": 128,
        "dim": 4,
        "embedding_learning_rate": 0.05,
        "bottom_mlp": (8,),
        "top_mlp": (8,),
        "deterministic": False,
    }
    return TrainConfig(run_dir=str(run_dir), **{**defaults, **options})


@contextmanager
def on_servers(count: int, run_dir: str) -> Iterator[MakeEngine | None]:
    """Tables on new servers of this process, which end with it; None without any."""
    if not count:
        yield None
        return
    from tests.support.parameter_servers import thread_servers
    from trainer.servers.run_servers import RunServers

    with thread_servers(count, runs=[run_dir]) as started:
        found = RunServers(tuple(one.address for one in started), run=int(time.time() * 1000))
        yield partial(found.engine, 1)


def main(run_dir: str, options: str, batches: str) -> None:
    """Train, printing one JSON line an event of the run, flushed."""
    from trainer.run.loop import TrainEvent, train

    left = itertools.count(int(batches) - 1, -1)

    def tell(event: TrainEvent) -> None:
        print(json.dumps({"kind": event.kind, "events": event.events, "message": event.message}), flush=True)
        while event.kind == "batch" and next(left) == 0:
            time.sleep(3600)

    settings = json.loads(options)
    data, servers = Synthetic(settings.pop("partitions", 4)), settings.pop("servers", 0)
    home = settings.pop("batch_files", "")
    on_slice = {"replicas": settings.pop("replicas", 2), "servers": settings.pop("slice_servers", ())}
    options = config(run_dir, deterministic=True, **settings)
    files = None if not home else BatchFolder(home, 1 << 30)
    slice_ = None
    if options.engine == "tpu":
        from tests.support.emulated_slice import EmulatedSlice
        from trainer.model.tensorflow_settings import prepare_tensorflow

        prepare_tensorflow(options)  # before the slice's first use of TensorFlow
        slice_ = EmulatedSlice(**on_slice)
    with on_servers(servers, run_dir) as make_engine:
        report = train(
            data.solution, data.read, options, progress=tell, slice_=slice_, make_engine=make_engine, batch_files=files
        )
    print(json.dumps({"kind": "report", "report": report.to_document()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
