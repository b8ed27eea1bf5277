"""The sides of ``benchmarks.torch_loader``; runs in the environment ``.torch``."""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.utils.data.datapipes as dp
from torchrec import KeyedJaggedTensor
from torchrec.datasets.utils import Batch, LoadFiles, ReadLinesFromCSV

import headrace as hr
from benchmarks.support.dlrm_case import LABEL, DlrmCase, row_groups

TARGET = 2.0
OURS, DATAPIPES, COLLATED, BY_HAND = "hr.torch", "TorchRec's datapipes", "Parquet, collated", "Parquet, cut by hand"
#: Numbers, ids and labels of a batch.
_Made = tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]


def of_headrace(home: Path, model: str, case: DlrmCase) -> Iterator[_Made]:
    """Batches of ``hr.torch``; the plan of the range is part of the time."""
    for batch in hr.torch(model, home=str(home), batch_rows=case.batch_rows, events_per_epoch=1 << 40):
        yield batch.dense, batch.ids, batch.labels


def of_datapipes(file: Path, case: DlrmCase) -> Iterator[_Made]:
    """Batches of the datapipes of ``torchrec.datasets``."""
    first = 1 + len(case.numbers)
    names = list(case.buckets)

    def mapped(row: list[str]) -> tuple[float, list[float], list[list[int]]]:
        return float(row[0]), [float(one) for one in row[1:first]], [[int(item) for item in one.split()] for one in row[first:]]  # fmt: skip

    def collated(rows: list[tuple[float, list[float], list[list[int]]]]) -> Batch:
        columns = [*zip(*(row[2] for row in rows), strict=True)]
        values = [item for column in columns for bag in column for item in bag]
        lengths = [len(bag) for column in columns for bag in column]
        return Batch(
            torch.tensor([row[1] for row in rows]),
            KeyedJaggedTensor(names, torch.tensor(values), lengths=torch.tensor(lengths, dtype=torch.int32)),
            torch.tensor([row[0] for row in rows]),
        )

    rows = dp.iter.Mapper(ReadLinesFromCSV(LoadFiles([str(file)], mode="r"), delimiter="\t"), mapped)
    for batch in dp.iter.Collator(dp.iter.Batcher(rows, case.batch_rows), collate_fn=collated):
        yield batch.dense_features, batch.sparse_features, batch.labels


def of_frames(file: Path, case: DlrmCase) -> Iterator[_Made]:
    """Batches of the Parquet reader as frames, whose lists are joined."""
    names, numbers = list(case.buckets), list(case.numbers)
    for part in pq.ParquetFile(file).iter_batches(case.batch_rows):
        frame = part.to_pandas()
        values, lengths = [], []
        for name in names:
            if name in case.lists:
                values += frame[name].tolist()
                lengths.append(frame[name].map(len).to_numpy(np.int32))
            else:
                values.append(frame[name].dropna().to_numpy(np.int64))
                lengths.append(frame[name].notna().to_numpy(np.int32))
        ids = KeyedJaggedTensor(names, torch.from_numpy(np.concatenate(values)), lengths=torch.from_numpy(np.concatenate(lengths)))  # fmt: skip
        yield torch.from_numpy(frame[numbers].to_numpy()), ids, torch.from_numpy(frame[LABEL].to_numpy())


def by_hand(file: Path, case: DlrmCase) -> Iterator[_Made]:
    """Batches cut out of row groups that a thread decodes ahead."""
    names = list(case.buckets)
    for group in row_groups(file, case):
        numbers, labels = torch.from_numpy(group.numbers), torch.from_numpy(group.labels)
        lengths = torch.from_numpy(np.stack([np.diff(group.starts[name]) for name in names]))
        ids = [torch.from_numpy(group.ids[name]) for name in names]
        starts = [group.starts[name] for name in names]
        for first in range(0, len(labels), case.batch_rows):
            stop = min(first + case.batch_rows, len(labels))
            values = torch.cat([one[at[first] : at[stop]] for one, at in zip(ids, starts, strict=True)])
            bags = KeyedJaggedTensor(names, values, lengths=lengths[:, first:stop].reshape(-1))
            yield numbers[first:stop], bags, labels[first:stop]


def check_equal(sides: dict[str, Callable[[], Iterator[_Made]]]) -> None:
    """Raise unless all sides make the same batches."""
    for batches in zip(*(side() for side in sides.values()), strict=False):
        (numbers, ids, labels), *others = batches
        for other, bags, own in others:
            same = (
                torch.equal(labels, own)
                and torch.allclose(numbers, other, rtol=1e-6)
                and torch.equal(ids.lengths().long(), bags.lengths().long())
                and torch.equal(ids.values().long(), bags.values().long())
            )
            if not same:
                raise SystemExit("the sides make other batches")


def rate(side: Callable[[], Iterator[_Made]]) -> float:
    """Samples per second."""
    began = time.perf_counter()
    events = sum(len(labels) for _, _, labels in side())
    return events / (time.perf_counter() - began)


def main(folder: Path, model: str, rounds: int, *, is_small: bool) -> int:
    """Print the rate of each side and the ratios; the exit status is 1 if the target is missed."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    case = DlrmCase.read(folder)
    sides: dict[str, Callable[[], Iterator[_Made]]] = {
        OURS: partial(of_headrace, folder / "home", model, case),
        DATAPIPES: partial(of_datapipes, folder / "train.tsv", case),
        COLLATED: partial(of_frames, folder / "train.parquet", case),
        BY_HAND: partial(by_hand, folder / "train.parquet", case),
    }
    check_equal(sides)  # also compiles kernels and reads all files once
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            rates[name].append(rate(side))
    for name, own in rates.items():
        ratios = [ours / other for ours, other in zip(rates[OURS], own, strict=True)]
        compared = "" if name == OURS else f"; hr.torch loads {statistics.median(ratios):.2f} times as many ({min(ratios):.2f} to {max(ratios):.2f})"  # fmt: skip
        print(f"{name}: {statistics.median(own):,.0f} samples/s{compared}")
    reached = statistics.median([ours / other for ours, other in zip(rates[OURS], rates[DATAPIPES], strict=True)])
    print(f"target: {TARGET} times TorchRec's datapipes")
    return int(reached < TARGET and not is_small)


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    sys.exit(main(Path(arguments[0]), arguments[1], int(arguments[2]), is_small=bool(int(arguments[3]))))
