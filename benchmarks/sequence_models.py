"""Quality, time and memory of DIN and SASRec beside the mean of the same history.

    python -m benchmarks.sequence_models --data FOLDER [--logs films news] [--events N] [--hours N] [--seeds N] [--rates R ...] [--results FILE]

A DLRM sees a candidate item and one vector of its user's last 50 items, of the news log with buckets of their ages; the encoder of the history is all that differs.
Item and history share a table of 16 columns. Histories are made here from the logs, strictly before each event; half of the events are others' items
(:mod:`benchmarks.support.history_logs`). Events are trained once, in time order, in batches of 512, and the newest ones are tested. Each side has the rate of embeddings,
of ``--rates``, that is best on the newest tenth of the training range with one more seed.

Printed are normalized entropy and AUC over seeds, and of each encoder the difference from the mean: its p by users is that of a t-test of the users' mean differences of log loss,
each averaged over seeds, and its p by seeds that of a paired t-test of normalized entropies. Then, of steps of histories of 50 and 200 ids: CPU milliseconds of the quickest step, of
its dense part, and peak bytes beyond a step of 1 id, each side in a process of its own, the best of ``--rounds``. ``--results`` keeps finished trainings in a file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow as pa
from scipy.stats import ttest_1samp

from benchmarks.support.comparisons import Comparisons
from benchmarks.support.harness import machine, peak_bytes
from benchmarks.support.history_logs import LENGTH, HistoryLog, films, news
from benchmarks.support.kept_results import KeptResults
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.metrics import auc, normalized_entropy
from trainer.options.config import TrainConfig
from trainer.options.sequences import SequenceOptions
from trainer.run.reading.batches import Batch, make_batches
from trainer.run.reading.columns import LABEL_COLUMN, decode
from trainer.run.weights.run_state import Weights, build_weights
from transforms.types import Dense, DType, Ragged

Array = np.ndarray[Any, np.dtype[Any]]
ENCODERS = ("mean", "din", "sasrec")
#: Sides by name: encoder, and whether its weights add up to 1.
SIDES = {"mean": ("mean", False), "din": ("din", False), "din, softmax": ("din", True), "sasrec": ("sasrec", False)}
_BATCH_ROWS, _DIM, _VALIDATED_SHARE = 512, 16, 0.1
_COST_ITEMS, _COST_STEPS = 20_000, 30


def options(side: str, *, has_ages: bool, length: int = LENGTH, rate: float = 0.05, seed: int = 0) -> TrainConfig:
    """The options of a side."""
    encoder, softmax = SIDES[side]
    sequence = SequenceOptions(length, encoder, target="item", gaps="ages" if has_ages else "", softmax=softmax)
    return TrainConfig(
        "run", batch_rows=_BATCH_ROWS, dim=_DIM, embedding_learning_rate=rate, dense_learning_rate=0.002, top_mlp=(64, 32),
        activation="leaky_relu", dense_bias=True, deterministic=False, sequences={"history": sequence}, seed=seed, embedding_initial_stddev=0.1,
    )  # fmt: skip


def _batches(log: HistoryLog, table: pa.Table, config: TrainConfig) -> list[Batch]:
    layout = lay_out(log.inputs, config)
    return list(make_batches([decode(table.combine_chunks(), layout, log.name)], layout, batch_rows=_BATCH_ROWS))


def _losses(weights: Weights, batches: list[Batch]) -> tuple[Array, Array]:
    """Labels and logits."""
    labels = np.concatenate([one.labels[: one.rows] for one in batches])
    return labels, np.concatenate([weights.predict(one) for one in batches]).astype(np.float64)


def _tested(log: HistoryLog, config: TrainConfig, trained: pa.Table, tested: pa.Table) -> dict[str, Any]:
    """Train once over the events of one table, and test on the others."""
    weights = build_weights(lay_out(log.inputs, config), config)
    for batch in _batches(log, trained, config):
        weights.train(batch)
    labels, logits = _losses(weights, _batches(log, tested, config))
    probabilities = 1 / (1 + np.exp(-logits))
    users = np.unique(log.users, return_inverse=True)[1]
    losses = np.logaddexp(0, np.where(labels > 0.5, -logits, logits))
    by_user = np.bincount(users, losses) / np.bincount(users) if len(users) == len(losses) else np.zeros(0)
    return {"ne": normalized_entropy(labels, probabilities), "auc": auc(labels, probabilities), "by_user": by_user.tolist()}  # fmt: skip


def _quality(log: HistoryLog, given: argparse.Namespace, kept: KeptResults) -> None:
    has_ages = any(one.name == "ages" for one in log.inputs)
    print(f"{log.name}: {log.trained.num_rows:,} events trained, {log.tested.num_rows:,} tested of {len(np.unique(log.users)):,} users; "
          f"histories of {np.mean(pa.compute.list_value_length(log.trained['history']).to_numpy()):.1f} ids", flush=True)  # fmt: skip
    at = round(log.trained.num_rows * (1 - _VALIDATED_SHARE))
    found: dict[str, list[dict[str, Any]]] = {}
    for side in SIDES:
        key = {"log": log.name, "events": [log.trained.num_rows, log.tested.num_rows], "side": side}
        validated = {}
        for rate in given.rates:
            config = options(side, has_ages=has_ages, rate=rate, seed=1000)
            made = partial(_tested, log, config, log.trained.slice(0, at), log.trained.slice(at))
            validated[rate] = kept.get({**key, "rate": rate, "validated": True}, made)["ne"]
        rate = min(validated, key=validated.__getitem__)
        began = time.monotonic()
        found[side] = [
            kept.get({**key, "rate": rate, "seed": seed},
                     partial(_tested, log, options(side, has_ages=has_ages, rate=rate, seed=seed), log.trained, log.tested))
            for seed in range(given.seeds)
        ]  # fmt: skip
        print(f"  {side:12} rate {rate:<5} NE {_spread(found[side], 'ne')}  AUC {_spread(found[side], 'auc')}"
              f"  {(time.monotonic() - began) / given.seeds:5.0f} s", flush=True)  # fmt: skip
    comparisons = Comparisons()
    for side in list(SIDES)[1:]:
        _print_difference(side, found, comparisons)
    print(f"  {comparisons.summary}", flush=True)


def _spread(found: list[dict[str, Any]], name: str) -> str:
    values = [one[name] for one in found]
    return f"{statistics.mean(values):.5f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.5f}"


def _print_difference(side: str, found: Mapping[str, list[dict[str, Any]]], comparisons: Comparisons) -> None:
    own, mean = ([one["ne"] for one in found[name]] for name in (side, "mean"))
    by_seeds = comparisons.chance(side, own, mean)
    differences = np.mean([one["by_user"] for one in found[side]], axis=0) - np.mean([one["by_user"] for one in found["mean"]], axis=0)  # fmt: skip
    by_users = ttest_1samp(differences, 0.0).pvalue
    gain = np.array(own) / np.array(mean) - 1
    aucs = [one["auc"] - other["auc"] for one, other in zip(found[side], found["mean"], strict=True)]
    print(f"  {side:12} by the mean: NE {gain.mean():+.2%} ± {gain.std(ddof=1):.2%}, AUC {statistics.mean(aucs):+.5f}; "
          f"better with {sum(one < 0 for one in gain)} of {len(gain)} seeds; p by users {by_users:.2g}, by seeds {by_seeds:.2g}", flush=True)  # fmt: skip


def cost(encoder: str, length: int) -> dict[str, float]:
    """CPU milliseconds of the quickest step and of the quickest dense part, and peak bytes beyond those of a step with 1 id of each event; histories are full."""
    draw = np.random.default_rng(0)
    _steps(encoder, 1, 2, draw)
    before = peak_bytes()
    whole, dense = _steps(encoder, length, _COST_STEPS + 2, draw)
    return {"step": 1e3 * min(whole[2:]), "dense": 1e3 * min(dense[2:]), "bytes": peak_bytes() - before}  # fmt: skip


def _steps(encoder: str, length: int, steps: int, draw: np.random.Generator) -> tuple[list[float], list[float]]:
    """The CPU seconds of each step and of its dense part."""
    config = options(encoder, has_ages=False, length=length)
    inputs = (
        TypedInput("history", Ragged(DType.INT64, _COST_ITEMS)),
        TypedInput("item", Dense(DType.INT64, _COST_ITEMS)),
    )
    rows = _BATCH_ROWS * 4
    table = pa.table({
        "history": pa.array(list(draw.zipf(1.3, (rows, length)) % _COST_ITEMS), pa.list_(pa.int64())),
        "item": pa.array(draw.integers(0, _COST_ITEMS, rows)),
        LABEL_COLUMN: pa.array(draw.integers(0, 2, rows)),
    })  # fmt: skip
    layout = lay_out(inputs, config)
    batches = list(make_batches([decode(table, layout, "cost")], layout, batch_rows=_BATCH_ROWS))
    weights = build_weights(layout, config)
    whole, dense = [], []
    for number in range(steps):
        batch = batches[number % len(batches)]
        began = time.process_time()
        looked_up = weights.look_up(batch)
        between = time.process_time()
        step = weights.differentiate(batch, looked_up)
        after = time.process_time()
        weights.update_tables(batch, weights.apply_dense(batch, step))
        whole.append(time.process_time() - began)
        dense.append(after - between)
    return whole, dense


def _print_costs(rounds: int) -> None:
    """Each side in a process of its own, alternately; figures are those of the best of the rounds."""
    print(
        f"a step of {_BATCH_ROWS} events, {_DIM} columns: CPU milliseconds, of the dense part, and MB beyond a step with 1 id of each event"
    )
    for length in (LENGTH, 4 * LENGTH):
        found: dict[str, list[dict[str, float]]] = {one: [] for one in ENCODERS}
        for _ in range(rounds):
            for encoder in ENCODERS:
                command = [sys.executable, "-m", "benchmarks.sequence_models", "--cost", encoder, str(length)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[encoder].append(json.loads(out.splitlines()[-1]))
        best = {encoder: {name: min(one[name] for one in own) for name in own[0]} for encoder, own in found.items()}
        for encoder, own in best.items():
            base = best["mean"]
            print(f"  {length:4} ids  {encoder:8} step {own['step']:7.1f} ms, {own['step'] / base['step']:5.2f}x the mean; dense {own['dense']:7.1f} ms, "
                  f"{own['dense'] / base['dense']:5.2f}x; {own['bytes'] / 1e6:6.1f} MB", flush=True)  # fmt: skip


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public logs: globo/, ml1m/")
    parser.add_argument("--logs", nargs="*", choices=("films", "news"), default=["films", "news"])
    parser.add_argument("--events", type=int, default=300_000, help="of the training range, at most")
    parser.add_argument("--hours", type=int, default=72, help="of the news log")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--rounds", type=int, default=3, help="of times and memory; 0: leave these out")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--cost", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cost:
        print(json.dumps(cost(given.cost[0], int(given.cost[1]))))
        return 0
    print(machine())
    made = {"films": lambda: films(given.data / "ml1m" / "ml1m_joined.tsv.gz", given.events),
            "news": lambda: news(given.data / "globo", given.hours, given.events)}  # fmt: skip
    for name in given.logs if given.data else ():
        _quality(made[name](), given, KeptResults(given.results))
    if given.rounds:
        _print_costs(given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
