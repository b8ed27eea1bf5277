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
from benchmarks.support.host_rounds import add_options, ms_text, slowest_of
from trainer.job.host.dense.gradient_buckets import BUCKET_BYTES

#: About 1, 10 and 50 MB of weights.
_MLPS = ((256, 5), (512, 11), (1024, 13))
_ROWS = 128


def _measure(hosts: HostProcesses, count: int, case: DenseCase, link: Link, options: argparse.Namespace) -> None:
    sizes = [kib << 10 for kib in options.bucket_kib]
    ways = (Way(), *(Way(size, is_overlapped) for size in sizes for is_overlapped in (False, True)))
    found = hosts.run(TimedRounds(case, link, ways, options.steps, options.rounds))
    slowest = {way: slowest_of([times[way] for times, _ in found]) for way in ways}
    alone = slowest_of([secs for _, secs in found])
    print(f"  {count} hosts, {case.dense_bytes / 1e6:.0f} MB, {link}: a step without other hosts {ms_text(alone)}")
    for way, secs in slowest.items():
        ratio = statistics.median(a / b for a, b in zip(slowest[Way()], secs, strict=True))
        print(f"    {way}: {ms_text(secs)}, {ratio:.2f}x the speed of whole vectors", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--bucket-kib", type=int, nargs="+", default=[BUCKET_BYTES >> 10])
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
