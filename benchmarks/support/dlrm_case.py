"""A DLRM and its events in files, which several systems train. Needs numpy and pyarrow alone: it is imported in other environments, too.

The folder holds ``case.json``, ``train.parquet`` and ``test.parquet``: the numbers of each event as float32, an id of each input with one
id an event as int64 or null, and lists of int64 for the others. Row groups are whole batches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Array = np.ndarray[Any, np.dtype[Any]]

LABEL = "label"
#: The first steps build what the others use: rates are also taken without them.
FIRST_STEPS = 20


@dataclass(frozen=True, slots=True)
class DlrmCase:
    """The model and the options of its training.

    Attributes:
        buckets: the rows of the table of each embedded input, by name, in order.
        lists: the embedded inputs with lists of ids.
        numbers: the dense inputs.
        dim: the columns of a row.
        bottom_mlp, top_mlp: hidden sizes; the bottom MLP ends in ``dim``.
        batch_rows: events of a step.
        embedding_rate, accumulator: of Adagrad on rows, and where its slots start.
        initial_stddev: of the normal distribution of rows, cut at two deviations.
        dense_rate: of Adam on the MLPs.
        initial_bias: of the logit.
        threads: of each side.
        seed: of the first weights.
    """

    buckets: Mapping[str, int]
    lists: tuple[str, ...]
    numbers: tuple[str, ...]
    dim: int
    bottom_mlp: tuple[int, ...]
    top_mlp: tuple[int, ...]
    batch_rows: int
    embedding_rate: float
    accumulator: float
    initial_stddev: float
    dense_rate: float
    initial_bias: float
    threads: int
    seed: int = 0

    def write(self, folder: Path) -> None:
        """Write the model beside its events."""
        (folder / "case.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> DlrmCase:
        """The model in a folder."""
        document = json.loads((folder / "case.json").read_text())
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in document.items()})


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Events as arrays: of each embedded input its ids and where those of each event begin."""

    ids: Mapping[str, Array]
    starts: Mapping[str, Array]
    numbers: Array
    labels: Array


@dataclass(slots=True)
class Measured:
    """What a side measures of itself while it trains; ``tick`` it after each step."""

    began: float = 0.0
    events: int = 0
    steps: int = 0
    first_secs: float = 0.0
    first_events: int = 0
    secs: float = 0.0

    def begin(self) -> None:
        """Training begins, its files not read."""
        self.began = time.perf_counter()

    def tick(self, events: int) -> None:
        """A step has ended."""
        self.steps += 1
        self.events += events
        self.secs = time.perf_counter() - self.began
        if self.steps == FIRST_STEPS:
            self.first_secs, self.first_events = self.secs, self.events


def row_groups(file: Path, case: DlrmCase) -> Iterator[RowGroup]:
    """The row groups in order, the next one read in a thread meanwhile."""
    reader = pq.ParquetFile(file)
    names = [*case.buckets, *case.numbers, LABEL]

    def read(number: int) -> RowGroup:
        return _row_group(reader.read_row_group(number, columns=names, use_threads=False), case)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, 0)
        for number in range(1, reader.num_row_groups):
            found, waiting = waiting.result(), pool.submit(read, number)
            yield found
        yield waiting.result()


def _row_group(table: pa.Table, case: DlrmCase) -> RowGroup:
    ids, starts = {}, {}
    for name in case.buckets:
        column = table.column(name).combine_chunks()
        if name in case.lists:
            ids[name], starts[name] = column.values.to_numpy(), column.offsets.to_numpy().astype(np.int64)
        else:
            held = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
            ids[name] = column.drop_null().to_numpy()
            starts[name] = np.concatenate([[0], np.cumsum(held)])
    numbers = [table.column(name).to_numpy() for name in case.numbers]
    return RowGroup(ids, starts, np.stack(numbers, axis=1), table.column(LABEL).to_numpy())


#: From a case and its folder to a function that trains the training events, which it ticks, and predicts the tested ones.
Build = Callable[[DlrmCase, Path], Callable[[Measured], Array]]


def run_side(build: Build) -> None:
    """Train the case of the folder in the arguments; write the tested events' scores and print what was measured."""
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    measured = Measured()
    scores = build(DlrmCase.read(folder), folder)(measured)
    np.save(target, scores)
    print("MEASURED " + json.dumps(asdict(measured)), flush=True)
