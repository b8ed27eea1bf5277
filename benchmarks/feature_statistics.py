"""Sampled statistics of features: what they cost a training step.

    python -m benchmarks.feature_statistics [--rounds N] [--events N]

26 tables of 100,000 rows of 64 columns; ids by a power law of exponent 1.2, 1 to 20 a bag. A step is a lookup and an update on the ``cpu``
engine with one thread per processor, without a dense part, which would only make the share of sampling smaller. In every round the same
1,000 steps run without and with a sampler, in alternating order; the ratio is taken within a round. The second figure is the time of the
sampler alone over that of the steps without it, which noise of the machine affects less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.support.harness import machine
from benchmarks.support.long_tailed_bags import DIM, TABLES, features, make_batches
from trainer.tables import CpuEngine, IdBatch
from trainer.tables.statistics.batch_sampler import BatchSampler, is_sampled

Array = np.ndarray[Any, np.dtype[Any]]

_LONGEST, _BATCHES, _STEPS = 20, 8, 1000
_SHARE, _SEED = 0.03, 0


def run_steps(
    engine: CpuEngine, batches: list[IdBatch], gradients: Array, sampler: BatchSampler | None
) -> tuple[float, float]:
    """The seconds of all steps, and those of the sampler among them."""
    began, sampling = time.perf_counter(), 0.0
    for step in range(_STEPS):
        batch = batches[step % _BATCHES]
        engine.lookup(batch)
        engine.apply_gradients(batch, gradients)
        if sampler is not None:
            start = time.perf_counter()
            sampler.add(step, batch, batch.rows)
            sampling += time.perf_counter() - start
    if sampler is not None:
        start = time.perf_counter()
        sampler.take()
        sampling += time.perf_counter() - start
    return time.perf_counter() - began, sampling


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=4096)
    options = parser.parse_args()
    print(machine())
    batches = make_batches(_BATCHES, options.events, longest=_LONGEST)
    gradients = np.random.default_rng(12).standard_normal((options.events, TABLES * DIM), np.float32)
    engine, sampler = CpuEngine(features(), seed=0), BatchSampler(features(), share=_SHARE, seed=_SEED)
    sampler.add(next(step for step in range(10_000) if is_sampled(_SEED, step, _SHARE)), batches[0], options.events)
    sampler.take()  # its loops are compiled now
    ratios, shares = [], []
    for round_ in range(options.rounds):
        sides = (None, sampler) if round_ % 2 else (sampler, None)
        secs = {side is not None: run_steps(engine, batches, gradients, side) for side in sides}
        ratios.append(secs[True][0] / secs[False][0])
        shares.append(secs[True][1] / secs[False][0])
        print(f"  round {round_}: with over without {ratios[-1]:.4f}, sampler alone {shares[-1]:.4f}", flush=True)
    sampled = sum(is_sampled(_SEED, step, _SHARE) for step in range(_STEPS))
    ids = sum(len(batch.ids) for batch in batches) / _BATCHES
    print(
        f"{_STEPS} steps of {options.events:,} events, {ids:,.0f} ids; {sampled} batches sampled, {sampled / _STEPS:.1%}"
    )
    print(
        f"training with sampling over training without: {statistics.median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}"
    )
    print(f"the sampler alone over training without:      {statistics.median(shares):.4f}")


if __name__ == "__main__":
    main()
