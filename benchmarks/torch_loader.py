"""Samples per second of ``hr.torch`` beside loaders of TorchRec's users, on the same ragged features.

    python -m benchmarks.torch_loader [--rows 600000] [--batch-rows 4096] [--rounds 5] [--small]

The features are those of one model over the sample log: lists of ids, single ids and numbers. Each side makes the same batches, a ``KeyedJaggedTensor`` and tensors of numbers and
labels, in order, in one process in the environment that ``make torch`` makes:

- *hr.torch* reads the memos of a warehouse, and the labels from the log. One thread reads ahead.
- *TorchRec's datapipes* are those of ``torchrec.datasets``: ``LoadFiles``, ``ReadLinesFromCSV``, a row mapper, batches and a collate function, over text.
- *Parquet, collated* is what examples do: batches of ``pyarrow``'s Parquet reader as pandas frames, whose lists are joined to a ``KeyedJaggedTensor``.
- *Parquet, cut by hand* is the fastest that we could write: whole row groups, which a thread decodes ahead, as arrays from which batches are cut
  (the side of TorchRec in ``benchmarks.dlrm_throughput``).

The features of the other sides are computed already, as memos are. The sides alternate; ratios are taken within a round. TorchRec's datapipes load a
share of the rows.

Target: twice the samples per second of TorchRec's datapipes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.many_models import REPOSITORY
from benchmarks.support.dlrm_case import LABEL, DlrmCase
from benchmarks.support.harness import machine
from benchmarks.support.memoized import Memoized, memoize
from tests.torch.install import PYTHON, install
from transforms.types import Ragged, Vector

#: The share of the rows that are written as text.
TEXT_SHARE = 20


def write_features(made: Memoized, folder: Path, batch_rows: int) -> DlrmCase:
    """The features as Parquet and, of the first rows, as text."""
    layout = made.layout
    lists = tuple(item.name for item in layout.embedded if isinstance(item.type, (Ragged, Vector)))
    case = DlrmCase(
        buckets={item.name: item.type.buckets or 0 for item in layout.embedded},
        lists=lists,
        numbers=tuple(item.name for item in layout.dense),
        dim=16,
        bottom_mlp=(64,),
        top_mlp=(64,),
        batch_rows=batch_rows,
        embedding_rate=0.01,
        accumulator=1e-8,
        initial_stddev=0.01,
        dense_rate=0.003,
        initial_bias=0.0,
        threads=1,
    )
    table = hr.read(made.solution.model, home=str(made.home))
    columns = {name: table[name].combine_chunks() for name in (*case.buckets, *case.numbers)}
    columns |= {name: columns[name].cast(pa.float32()).fill_null(0.0) for name in case.numbers}
    columns[LABEL] = table["label"].combine_chunks().cast(pa.float32())
    written = pa.table(columns)
    pq.write_table(written, folder / "train.parquet", row_group_size=64 * batch_rows)
    text_rows = max(1, len(written) // TEXT_SHARE // batch_rows) * batch_rows
    _write_text(written.slice(0, text_rows), case, folder / "train.tsv")
    case.write(folder)
    return case


def _write_text(table: pa.Table, case: DlrmCase, path: Path) -> None:
    """A row per line: the label, the numbers, and the ids of each input with spaces between them."""
    columns = [table[name].to_pylist() for name in (LABEL, *case.numbers, *case.buckets)]
    with path.open("w", encoding="utf-8") as lines:
        for row in zip(*columns, strict=True):
            lines.write("\t".join(" ".join(map(str, one)) if isinstance(one, list) else "" if one is None else str(one) for one in row) + "\n")  # fmt: skip


def main() -> int:
    """Measure; the exit status is that of the sides: 1 if the target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--batch-rows", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few rows, to test the script")
    options = parser.parse_args()
    rows, rounds, batch_rows = (5_000, 1, 256) if options.small else (options.rows, options.rounds, options.batch_rows)
    install()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = memoize(folder, None, 24, rows)
        case = write_features(made, folder, batch_rows)
        print(f"{made.solution.rows:,} events: {len(case.buckets)} inputs of ids, {len(case.lists)} of them lists, {len(case.numbers)} numbers; batches of {batch_rows}")  # fmt: skip
        sys.stdout.flush()
        command = [str(PYTHON), "-m", "benchmarks.support.sides_of_torch_loader", str(folder), made.solution.model, str(rounds), str(int(options.small))]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
