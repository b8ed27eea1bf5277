"""Training a DLRM on the news log: samples a second from files on disk, against TorchRec on CPU and Keras with tf.data.

    python -m benchmarks.dlrm_throughput --data FOLDER [--hours 48] [--dim 16] [--batch-rows 1024] [--rounds 3] [--without-keras]

The log is Globo's clicks with four sampled negatives each, the features those of ``news_ctr`` in ``examples/globo.py``. All sides train the
same model once over the same events in the same order: the same tables and widths, Adagrad on rows and Adam on the MLPs, with weights
drawn from the same distributions, a seed a round, with 2 threads; the newest fifth of the hours is predicted afterwards, and its AUC must agree. Each side reads its files
within the measured time: Headrace its memos, and it writes its checkpoint, counts events and scores each one before training it;
TorchRec a Parquet file of the same ids, decoded by row groups in a thread; Keras examples in a TFRecord file. None of the rivals
transforms anything. Rates are of the whole run, in which Headrace and Keras trace their functions and Headrace scans the labels, and
of the steps after the first 20. The best round of each side counts: OpenMP's barriers stall TorchRec to a fifth of its speed where
another process wants a core. TorchRec runs in ``.fbgemm`` (``make bench-fbgemm``) and is left out where that is missing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.many_models import LOAD_ALL, globo, sample, worker_secs
from benchmarks.support.dlrm_case import LABEL, DlrmCase, Measured
from benchmarks.support.fbgemm_environment import FOLDER as FBGEMM
from benchmarks.support.harness import machine
from benchmarks.support.quality_logs import EXAMPLES
from headrace.model_file import load_models
from trainer.model.inputs import InputLayout, TypedInput, lay_out
from trainer.model.metrics import auc
from trainer.options.config import TrainConfig
from trainer.run.progress.identity import in_time_order
from transforms.types import Ragged
from warehouse import (
    ReadSolution,
    Warehouse,
    WarehouseConfig,
    read_fragment,
    read_solution,
    register_table,
    submit_model,
)

Array = np.ndarray[Any, np.dtype[Any]]

TARGETS = {"torchrec": 1.5, "keras": 5.0}
SPREAD = 0.005
_ROOT = Path(__file__).resolve().parents[1]
_TEST_SHARE, _GROUP_BATCHES = 0.2, 64


def memoized(folder: Path, data: Path | None, hours: int) -> tuple[ReadSolution, ReadSolution]:
    """Make the warehouse in ``folder/home`` with memos of all inputs; the solutions of the older and the newer hours."""
    if data is None:
        log, file, name, table = sample(folder, 30_000), "search_ads", "search_ctr", "search_log"
    else:
        log, file, name, table = globo(folder, data / "globo", hours, "hour"), "globo", "news_ctr", "globo"
    model = next(each for each in load_models(EXAMPLES / f"{file}.py") if each.name == name)
    home = folder / "home"
    with Warehouse.open(WarehouseConfig(str(home))) as warehouse:
        register_table(warehouse, table, str(log), time_column="time")
        submit_model(warehouse, model, table=table, policy="all")
    worker_secs(home)
    with Warehouse.open(WarehouseConfig(str(home), rates=LOAD_ALL)) as warehouse:
        starts = [part.start for part in in_time_order(read_solution(warehouse, name))]
        split: datetime | None = starts[round(len(starts) * (1 - _TEST_SHARE))]
        older, newer = read_solution(warehouse, name, end=split), read_solution(warehouse, name, start=split)
        for label, solution in (("older", older), ("newer", newer)):
            (folder / f"{label}.json").write_text(json.dumps(solution.to_document()))
            _write_parquet(folder / f"{'train' if label == 'older' else 'test'}.parquet", warehouse, solution)
    return older, newer


def _write_parquet(target: Path, warehouse: Warehouse, solution: ReadSolution) -> None:
    fragments = [one for part in in_time_order(solution) for one in part.fragments]
    table = pa.concat_tables([read_fragment(warehouse.storage, solution, fragment) for fragment in fragments])
    names = [LABEL if name == "__label__" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names), target, row_group_size=_GROUP_BATCHES * 1024)


def case_of(solution: ReadSolution, rate: float, given: argparse.Namespace) -> DlrmCase:
    """The default model over a solution's inputs."""
    defaults = TrainConfig("run")
    layout: InputLayout = lay_out([TypedInput(item.name, item.type) for item in solution.inputs], defaults)
    return DlrmCase(
        buckets=dict(zip((item.name for item in layout.embedded), layout.bounds, strict=True)),
        lists=tuple(item.name for item in layout.embedded if isinstance(item.type, Ragged)),
        numbers=tuple(item.name for item in layout.dense),
        dim=given.dim,
        bottom_mlp=defaults.bottom_mlp,
        top_mlp=defaults.top_mlp,
        batch_rows=given.batch_rows,
        embedding_rate=defaults.embedding_learning_rate,
        accumulator=defaults.embedding_initial_accumulator,
        initial_stddev=defaults.embedding_initial_stddev,
        dense_rate=defaults.dense_learning_rate,
        initial_bias=math.log(rate / (1 - rate)),
        threads=2,
    )


def run_side(name: str, folder: Path) -> tuple[Measured, Array]:
    """Train one side in a process of its own; what it measured, and its scores of the tested events."""
    python = FBGEMM / "bin" / "python" if name == "torchrec" else Path(sys.executable)
    scores = folder / f"{name}.npy"
    command = [str(python), "-m", f"benchmarks.support.dlrm_of_{name}", str(folder), str(scores)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("MEASURED ")]
    if done.returncode or not lines:
        raise SystemExit(f"the side {name} ended with status {done.returncode}\n{done.stderr[-2000:]}")
    return Measured(**json.loads(lines[0].removeprefix("MEASURED "))), np.load(scores)


def rates_of(measured: Measured) -> tuple[float, float]:
    """Samples a second of the whole run, and of the steps after the first ones."""
    later = (measured.events - measured.first_events) / (measured.secs - measured.first_secs)
    return measured.events / measured.secs, later


def compare(folder: Path, case: DlrmCase, sides: list[str], labels: Array, rounds: int) -> bool:
    """Run all sides in rounds, each with its own seed, and print them; whether the targets are met."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    aucs: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        replace(case, seed=number).write(folder)
        for name in sides:
            if name == "keras" and number:
                continue  # minutes a run
            measured, scores = run_side(name, folder)
            rates[name].append(rates_of(measured))
            aucs[name].append(auc(labels, scores))
            print(f"  round {number + 1} {name:9}{rates[name][-1][0]:10,.0f} samples/s, {rates[name][-1][1]:10,.0f} after "
                  f"{measured.first_events:,} events; AUC of later events {aucs[name][-1]:.4f}", flush=True)  # fmt: skip
    met = True
    for name in sides[1:]:
        whole, later = (statistics.median(ours[k] / its[k] for ours, its in zip(rates["headrace"], rates[name], strict=False))
                        for k in (0, 1))  # fmt: skip
        best, their_best = (max(one[1] for one in rates[side]) for side in ("headrace", name))
        gap = statistics.mean(aucs["headrace"]) - statistics.mean(aucs[name])
        met &= best / their_best >= TARGETS[name] and gap >= -SPREAD
        print(f"headrace trains {whole:.2f}x the samples of {name}, {later:.2f}x after the first steps, "
              f"{best / their_best:.2f}x with the best round of each (target {TARGETS[name]}x); mean AUC {gap:+.4f}")  # fmt: skip
    return met


def main() -> int:
    """Measure and print; the exit status is 1 if a target is missed (never with ``--small``)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/")
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-keras", action="store_true")
    parser.add_argument("--small", action="store_true", help="the sample log, to test the script")
    given = parser.parse_args()
    if not (given.data or given.small):
        print("skipped: --data must name the folder of the public logs")
        return 0
    sides = ["headrace"]
    if FBGEMM.exists():
        sides.append("torchrec")
    else:
        print("TorchRec is left out: make bench-fbgemm installs it in .fbgemm")
    sides += [] if given.without_keras else ["keras"]
    with tempfile.TemporaryDirectory(prefix="headrace-dlrm-") as name:
        folder = Path(name)
        older, newer = memoized(folder, None if given.small else given.data, given.hours)
        rate = float(np.mean(pq.read_table(folder / "train.parquet", columns=[LABEL]).column(0).to_numpy()))
        labels = pq.read_table(folder / "test.parquet", columns=[LABEL]).column(0).to_numpy().astype(np.float32)
        case = case_of(older, rate, given)
        print(f"{machine()}; {older.rows:,} events, {newer.rows:,} tested, {len(case.buckets)} tables of {sum(case.buckets.values()):,} rows x "
              f"{case.dim}, {len(case.numbers)} numbers, batches of {case.batch_rows}, {case.threads} threads a side")  # fmt: skip
        met = compare(folder, case, sides, labels, given.rounds)
    return 0 if met or given.small else 1


if __name__ == "__main__":
    sys.exit(main())
