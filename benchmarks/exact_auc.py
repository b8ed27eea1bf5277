"""The exact area under the ROC curve: seconds and memory, beside scikit-learn's.

    python -m benchmarks.exact_auc [--rows 5000000] [--rivals-rows 5000000] [--ties 0 0.5 1] [--threads 0] [--hosts 2 4]

Scores are float32 log odds; ``--ties`` is the share of the events that have one of 100 values. ``rank_counts`` counts pairs in whole numbers. On the first
``--rivals-rows`` events they are compared with whole numbers from another way of counting, by distinct scores, and with scikit-learn's
``roc_auc_score`` in time and value. Memory is what arrays take at most beyond labels and scores.

With ``--hosts`` processes of this machine have an equal share of the events each, and count the pairs together over TCP; no process has all of them. Seconds
are those of the slowest, from its scores to the counts.

Targets: a difference of 0 in whole numbers, 10 times scikit-learn's speed on 2 cores, at most 9 bytes per event at rest (a label and a float64).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.support.harness import machine
from trainer.evaluation.exchanged_counts import exchanged_counts
from trainer.evaluation.rank_counts import CountedKeys, RankCounts, rank_counts
from trainer.evaluation.shared_arrays import gather_numbers
from trainer.job.scoring.scoring_host import meet, scoring_channels
from trainer.model.metrics import Collector
from trainer.wire.flight.addresses import Address

Array = np.ndarray[Any, np.dtype[Any]]
_TARGET_SPEED, _TARGET_BYTES, _VALUES = 10.0, 9.0, 100


def drawn(rows: int, ties: float, seed: int = 0) -> tuple[Array, Array]:
    """Labels, bool, and scores, float32."""
    source = np.random.default_rng(seed)
    scores = source.standard_normal(rows, np.float32)
    is_tied = source.random(rows, np.float32) < ties
    scores[is_tied] = np.round(scores[is_tied] * (_VALUES / 6)) / np.float32(_VALUES / 6)
    is_positive = source.random(rows, np.float32) < 1 / (1 + np.exp(2 - scores))
    return is_positive, scores


def by_distinct_scores(is_positive: Array, scores: Array) -> RankCounts:
    """The same counts, from the numbers of both labels at each distinct score, in whole numbers."""
    _, place = np.unique(scores, return_inverse=True)
    own, other = (np.bincount(place[one], minlength=place.max() + 1) for one in (is_positive, ~is_positive))
    below = np.cumsum(other) - other
    return RankCounts(int(own.sum()), int(other.sum()), int((own * (2 * below + other)).sum()))


def timed_counts(is_positive: Array, scores: Array, threads: int) -> tuple[RankCounts, float, float]:
    """The counts, seconds, and the most GB that arrays took meanwhile."""
    tracemalloc.start()
    began = time.perf_counter()
    found = rank_counts(is_positive, scores, threads=threads)
    secs = time.perf_counter() - began
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, secs, most / 1e9


def _count_together(rank: int, hosts: int, rows: int, ties: float, folder: str, results: Any) -> None:
    """One of several processes."""
    is_positive, scores = drawn(rows // hosts, ties, seed=rank)
    rank_counts(*drawn(1000, 0.5))
    CountedKeys.of_sorted(np.arange(9, dtype=np.uint32))
    with scoring_channels(rank, Address("127.0.0.1", 0), lambda own: meet(Path(folder), rank, hosts, own, lambda: None)) as channels:  # fmt: skip
        gather_numbers(channels.steps, [0])  # all have begun
        began = time.perf_counter()
        found = exchanged_counts(channels.steps, is_positive, scores, threads=1)
        results.put((found, time.perf_counter() - began))


def counted_together(hosts: int, rows: int, ties: float) -> tuple[set[RankCounts], float]:
    """The counts of all hosts, and the seconds of the slowest."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        started = [spawn.Process(target=_count_together, args=(rank, hosts, rows, ties, folder, results)) for rank in range(hosts)]  # fmt: skip
        for one in started:
            one.start()
        found = [results.get(timeout=600) for _ in started]
        for one in started:
            one.join()
    return {counts for counts, _ in found}, max(secs for _, secs in found)


def bytes_at_rest() -> float:
    """The bytes of an event that an evaluation keeps until its end."""
    collector = Collector()
    collector.add(np.zeros(1000), np.zeros(1000))
    return sum(array.nbytes for array in collector.arrays().values()) / 1000


def main() -> int:
    """Measure and print; the exit status is 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rivals-rows", type=int, default=5_000_000)
    parser.add_argument("--ties", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--hosts", type=int, nargs="*", default=[], help="processes that count together")
    given = parser.parse_args()
    print(machine())
    rank_counts(*drawn(1000, 0.5))  # compiled before
    missed = bytes_at_rest() > _TARGET_BYTES
    print(f"an event at rest: {bytes_at_rest():.0f} bytes")
    for ties in given.ties:
        is_positive, scores = drawn(given.rows, ties)
        found, secs, memory = timed_counts(is_positive, scores, given.threads)
        print(f"{given.rows:,} events, {ties:.0%} of them with one of {_VALUES} scores: AUC {found.auc:.9f} in {secs:.2f} s, {memory:.2f} GB more", flush=True)  # fmt: skip
        own, few = is_positive[: given.rivals_rows], scores[: given.rivals_rows]
        exact, ours, _ = timed_counts(own, few, given.threads)
        began = time.perf_counter()
        theirs = roc_auc_score(own, few)
        rival = time.perf_counter() - began
        known = by_distinct_scores(own, few)
        print(f"  of {len(few):,}: twice the pairs that positives win differ by {exact.twice_wins - known.twice_wins}; scikit-learn's area by {abs(exact.auc - theirs):.1e}; "
              f"{rival / ours:.1f} times its speed ({ours:.3f} s, {rival:.2f} s)")  # fmt: skip
        missed |= exact != known or rival / ours < _TARGET_SPEED
        for hosts in given.hosts:
            every = [drawn(given.rows // hosts, ties, seed=rank) for rank in range(hosts)]
            alone = rank_counts(*(np.concatenate(one) for one in zip(*every, strict=True)), threads=given.threads)
            del every
            counts, together = counted_together(hosts, given.rows, ties)
            print(f"  {hosts} processes together: {together:.2f} s, {together / secs:.2f} of one process's time, "
                  f"counts {'equal' if counts == {alone} else 'different'}", flush=True)  # fmt: skip
            missed |= counts != {alone}
    print("all targets reached" if not missed else "a target is missed")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
