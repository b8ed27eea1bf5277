"""Dense gradients of hosts on a grid: flat sums against sums in two legs, whose second one alone crosses the slow links between machines.

    python -m benchmarks.grid_sums [--grids MACHINESxHOSTS …] [--kib N …] [--links DELAY_MS:GBIT …] [--steps N] [--rounds N] [--dilation D]

**The links are simulated.** Hosts are processes on this machine that exchange over loopback; a delay and a rate are added to messages from other
machines where they arrive, and none to those of the host's own machine. The rate is that of the link into a machine, which its hosts share
equally. Hosts that share cores work D times slower than hosts with a core each, D hosts a core: so links are D times slower, too, and times are
divided by D; ``--dilation 1`` has the links as they are, and measures mostly the processors. A step is the sum alone, without a backward
pass to hide it; its time is the mean of a round's steps at the slowest host, ratios are within a round, and medians over rounds. Bytes are those
that have passed the links, counted where they arrive. The last side rounds what crosses the links to bfloat16; its error is relative to the largest
sum of float64, of gradients that are normally distributed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.harness import machine
from benchmarks.support.host_processes import HostProcesses
from benchmarks.support.host_rounds import link_of, ms_text, slowest_of
from trainer.job.host.channels import Channels
from trainer.job.host.dense.dense_sums import all_reduce_of
from trainer.job.host.dense.gradient_buckets import GradientBuckets
from trainer.planning.host_grid import HostGrid

Array = np.ndarray[Any, np.dtype[Any]]


class Side(Enum):
    """A way of adding."""

    FLAT = "flat"
    LEGS = "two legs"
    ROUNDED = "two legs, bf16"


@dataclass(frozen=True, slots=True)
class Sums:
    """Some sums of so many floats, on one side; ``link``: a host's share of the link into its machine."""

    link: Link
    floats: int
    side: Side
    steps: int

    def gradients(self, rank: int) -> Array:
        """Those of one host."""
        return np.random.default_rng(rank).standard_normal(self.floats, np.float32)

    def run(self, channels: Channels) -> tuple[float, float]:
        """The seconds of a step, and the largest relative error of a sum."""
        assert channels.legs is not None
        hosts, grid = channels.shares.hosts, channels.legs.grid
        buckets = GradientBuckets.of([self.floats], hosts, grid=None if self.side is Side.FLAT else grid)
        reduce = all_reduce_of(channels, buckets, values="bf16" if self.side is Side.ROUNDED else "float32")
        own, began = self.gradients(channels.shares.rank), 0.0
        for step in range(self.steps + 1):
            if step == 1:  # the first one connects
                began = time.perf_counter()
            reduce.begin(1)
            reduce.put_all(own)
            total = reduce.finish().vector
        secs = (time.perf_counter() - began) / self.steps
        if channels.shares.rank:
            return secs, 0.0
        exact = sum(self.gradients(rank).astype(np.float64) for rank in range(hosts)) / hosts
        return secs, float(np.abs(total - exact).max() / np.abs(exact).max())


def _measure(hosts: HostProcesses, grid: HostGrid, kib: int, link: Link, options: argparse.Namespace) -> None:
    floats, dilation = kib << 8, options.dilation or max(grid.hosts / (os.cpu_count() or 1), 1.0)
    share = Link(link.delay_secs * dilation, link.bytes_per_sec / grid.places / dilation)
    secs: dict[Side, list[float]] = {side: [] for side in Side}
    far, errors = dict.fromkeys(Side, 0), dict.fromkeys(Side, 0.0)
    for _ in range(options.rounds):
        for side in Side:
            found = hosts.run(Sums(share, floats, side, options.steps))
            secs[side] += slowest_of([[one / dilation] for one, _ in found])
            errors[side] = max(error for _, error in found)
            far[side] = sum(hosts.far_bytes) // (options.steps + 1) // grid.hosts
    print(f"  {grid.hosts} hosts, {grid}; {kib:,} KiB; {link} into a machine; dilation {dilation:g}")
    for side in Side:
        ratio = statistics.median(a / b for a, b in zip(secs[Side.FLAT], secs[side], strict=True))
        print(f"    {side.value:<15} {ms_text(secs[side])}, {ratio:.2f}x the speed of flat; {far[side]:,} bytes on the link into a host, "
              f"1/{far[Side.FLAT] / max(far[side], 1):.2f} of flat; error {errors[side]:.1e}", flush=True)  # fmt: skip


def _grid(text: str) -> HostGrid:
    machines, places = map(int, text.split("x"))
    return HostGrid(machines, places)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grids = [HostGrid(2, 2), HostGrid(4, 2), HostGrid(2, 4), HostGrid(4, 4)]
    parser.add_argument("--grids", type=_grid, nargs="+", default=grids, help="such as 4x2: 4 machines of 2 hosts")
    parser.add_argument("--kib", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--links", type=link_of, nargs="+", default=[Link(1e-3, 1e8 / 8), Link(1e-3, 1e9 / 8)])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dilation", type=float, default=0.0, help="default: hosts by cores")
    options = parser.parse_args()
    print(f"{machine()}; simulated links; medians of {options.rounds} rounds, from the least to the most")
    for grid in options.grids:
        with HostProcesses(grid.hosts, grid) as hosts:
            for kib in options.kib:
                for link in options.links:
                    _measure(hosts, grid, kib, link, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
