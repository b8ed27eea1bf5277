"""Hosts that train with late updates: steps a second by staleness, without and with a delay of the network.

    python -m benchmarks.stale_hosts [--hosts N] [--rounds N] [--steps N] [--staleness N …] [--links DELAY_MS:GBIT …]

Hosts are processes that exchange over loopback, with a delay and a rate of the link into each host added where messages arrive. They
train a DLRM whose tables are spread over them, as the hosts of a job do, by turns with each staleness. A step waits for the requests and the
rows of its lookup; with a staleness it waits for those of a step that was looked up so many steps before. Ratios are within a round,
medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.harness import machine
from benchmarks.support.host_processes import HostProcesses
from benchmarks.support.whole_vectors import all_gather
from trainer.job.host.channels import Channels

_FEATURES, _BUCKETS, _DIM, _ROWS, _VALENCY, _BATCHES = 16, 100_000, 16, 256, 5, 8
_WIDTH = 256


@dataclass(frozen=True, slots=True)
class _StaleSteps:
    """Steps with each staleness, in turns."""

    link: Link
    staleness: tuple[int, ...]
    steps: int
    rounds: int

    def run(self, channels: Channels) -> dict[int, list[tuple[float, float]]]:
        """By staleness and round: the seconds of a step, and the updates that a lookup missed on average."""
        from trainer.run.weights.step_pipeline import StepPipeline

        weights, batches = _scene(channels, max(self.staleness))
        found: dict[int, list[tuple[float, float]]] = {one: [] for one in self.staleness}
        for number in range(self.rounds + 1):  # the first compiles
            for staleness, times in found.items():
                all_gather(channels.steps, [np.zeros(1, np.int64)])
                began = time.perf_counter()
                with StepPipeline(weights, staleness) as steps:
                    for step in range(self.steps):
                        steps.train(batches[step % len(batches)])
                    steps.drain()
                if number:
                    times.append(((time.perf_counter() - began) / self.steps, steps.staleness.mean))
        return found


def _scene(channels: Channels, most_staleness: int) -> tuple[Any, list[Any]]:
    """One host's weights and batches."""
    from trainer.job.host.sharded_weights import ShardedWeights
    from trainer.model.heads import BINARY
    from trainer.model.inputs import TypedInput, lay_out
    from trainer.options.config import TrainConfig
    from trainer.run.reading.batches import Batch
    from trainer.tables.batches import IdBatch
    from transforms.types import DType, Ragged

    config = TrainConfig("unused", batch_rows=_ROWS, batch_rows_per_host=True, dim=_DIM, bottom_mlp=(), top_mlp=(_WIDTH, _WIDTH), threads=1, staleness=most_staleness)  # fmt: skip
    layout = lay_out([TypedInput(f"f{k}", Ragged(DType.INT64, _BUCKETS)) for k in range(_FEATURES)], config)
    rng, batches = np.random.default_rng(channels.steps.rank), []
    for _ in range(_BATCHES):
        ids = ((rng.zipf(1.2, _FEATURES * _ROWS * _VALENCY) - 1) % _BUCKETS).astype(np.int32)
        offsets = np.arange(_FEATURES)[:, None] * _ROWS * _VALENCY + np.arange(_ROWS + 1)[None] * _VALENCY
        bags = IdBatch(ids, offsets.astype(np.int64), None, (_BUCKETS,) * _FEATURES)
        labels = (rng.random(_ROWS) < 0.3).astype(np.float32)
        batches.append(Batch(_ROWS, bags, np.zeros((_ROWS, 0), np.float32), labels, np.ones(_ROWS, np.float32), ()))
    return ShardedWeights(layout, config, BINARY, channels), batches


def _link(text: str) -> Link:
    delay, rate = text.split(":")
    return Link(float(delay) / 1e3, float(rate) * 1e9 / 8)


def _measure(hosts: HostProcesses, link: Link, options: argparse.Namespace) -> None:
    found = hosts.run(_StaleSteps(link, tuple(options.staleness), options.steps, options.rounds))
    slowest = {
        one: [max(host[one][k][0] for host in found) for k in range(options.rounds)] for one in options.staleness
    }
    first = slowest[options.staleness[0]]
    print(f"  {options.hosts} hosts, {link}")
    for staleness, secs in slowest.items():
        ratio = statistics.median(a / b for a, b in zip(first, secs, strict=True))
        missed = found[0][staleness][0][1]
        print(f"    staleness {staleness}: a step {statistics.median(secs) * 1e3:.1f} ms ({min(secs) * 1e3:.1f} to {max(secs) * 1e3:.1f}), "
              f"{missed:.2f} updates missed on average, {ratio:.2f}x the speed of staleness {options.staleness[0]}", flush=True)  # fmt: skip


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--links", type=_link, nargs="+", default=[Link(), Link(1e-3, 10e9 / 8)])
    options = parser.parse_args()
    print(
        f"{machine()}; {_FEATURES} tables, batches of {_ROWS} events; medians of {options.rounds} rounds, from the least to the most"
    )
    with HostProcesses(options.hosts) as hosts:
        for link in options.links:
            _measure(hosts, link, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
