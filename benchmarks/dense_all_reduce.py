"""The sum of dense gradients over hosts: whole vectors to all hosts, buckets, and buckets while the backward pass runs.

    python -m benchmarks.dense_all_reduce [--hosts N …] [--rounds N] [--steps N] [--bucket-kib N …] [--links DELAY_MS:GBIT …]

Hosts are processes that exchange over loopback, with a delay and a rate of the link into each host added where messages arrive. They
train MLPs of 1, 10 and 50 MB of dense weights, one thread each, in all ways by turns. A step's time is the mean of a round's
steps at the slowest host; ratios are within a round, and medians over rounds. Equal bits are tested in
tests/trainer/job/host/test_sharded_weights.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.dense_hosts import DenseCase, TimedRounds, Way
from benchmarks.support.harness import machine
from benchmarks.support.host_processes import HostProcesses
from trainer.job.host.gradient_buckets import BUCKET_BYTES

#: About 1, 10 and 50 MB of weights.
_MLPS = ((256, 5), (512, 11), (1024, 13))
_ROWS = 128


def link_of(text: str) -> Link:
    """The link of an option, ``DELAY_MS:GBIT``."""
    delay, rate = text.split(":")
    return Link(float(delay) / 1e3, float(rate) * 1e9 / 8)


def _measure(hosts: HostProcesses, count: int, case: DenseCase, link: Link, options: argparse.Namespace) -> None:
    sizes = [kib << 10 for kib in options.bucket_kib]
    ways = (Way(), *(Way(size, is_overlapped) for size in sizes for is_overlapped in (False, True)))
    found = hosts.run(TimedRounds(case, link, ways, options.steps, options.rounds))
    slowest = {way: [max(secs) for secs in zip(*(times[way] for times, _ in found), strict=True)] for way in ways}
    alone = [max(secs) for secs in zip(*(secs for _, secs in found), strict=True)]
    print(f"  {count} hosts, {case.dense_bytes / 1e6:.0f} MB, {link}: a step without other hosts {_ms(alone)}")
    for way, secs in slowest.items():
        ratio = statistics.median(a / b for a, b in zip(slowest[Way()], secs, strict=True))
        print(f"    {way}: {_ms(secs)}, {ratio:.2f}x the speed of whole vectors", flush=True)


def _ms(secs: list[float]) -> str:
    return f"{statistics.median(secs) * 1e3:.1f} ms ({min(secs) * 1e3:.1f} to {max(secs) * 1e3:.1f})"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--bucket-kib", type=int, nargs="+", default=[BUCKET_BYTES >> 10])
    parser.add_argument("--links", type=link_of, nargs="+", default=[Link(), Link(1e-3, 10e9 / 8)])
    parser.add_argument(
        "--mlps", type=int, nargs="+", default=range(len(_MLPS)), help="0 to 2: those of 1, 10 and 50 MB"
    )
    options = parser.parse_args()
    print(f"{machine()}; batches of {_ROWS} events; medians of {options.rounds} rounds, from the least to the most")
    for count in options.hosts:
        with HostProcesses(count) as hosts:
            for number in options.mlps:
                width, layers = _MLPS[number]
                case = DenseCase(width, layers, _ROWS)
                for link in options.links:
                    _measure(hosts, count, case, link, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
