"""The sum of dense gradients over hosts: whole vectors to all hosts, buckets, and buckets while the backward pass runs.

    python -m benchmarks.dense_all_reduce [--hosts N …] [--rounds N] [--steps N] [--bucket-kib N] [--links DELAY_MS:GBIT …]

Hosts are processes that exchange over loopback, with a delay and a rate of the link into each host added where messages arrive. They
train towers of 1, 10 and 50 MB of dense weights, one thread each, in all three ways by turns. A step's time is the mean of a round's
steps at the slowest host; ratios are within a round, and medians over rounds. Equal bits are tested in
tests/trainer/host/test_sharded_weights.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.dense_hosts import BUCKETED, GATHERED, OVERLAPPED, WAYS, DenseCase, DenseHosts, TimedRounds
from benchmarks.support.harness import machine
from trainer.host.gradient_buckets import BUCKET_BYTES

#: About 1, 10 and 50 MB of weights.
_TOWERS = ((256, 5), (512, 11), (1024, 13))
_ROWS = 128


def _link(text: str) -> Link:
    delay, rate = text.split(":")
    return Link(float(delay) / 1e3, float(rate) * 1e9 / 8)


def _measure(hosts: DenseHosts, count: int, case: DenseCase, link: Link, options: argparse.Namespace) -> None:
    found = hosts.run(TimedRounds(case, link, options.steps, options.rounds))
    slowest = {way: [max(secs) for secs in zip(*(times[way] for times, _ in found), strict=True)] for way in WAYS}
    alone = statistics.median(secs for _, secs in found)
    text = ", ".join(f"{way} {statistics.median(slowest[way]) * 1e3:.1f} ms" for way in WAYS)
    ratios = {
        way: statistics.median(a / b for a, b in zip(slowest[GATHERED], slowest[way], strict=True))
        for way in (BUCKETED, OVERLAPPED)
    }
    print(
        f"  {count} hosts, {case.dense_bytes / 1e6:.0f} MB, {link}: {text}; without other hosts {alone * 1e3:.1f} ms; "
        f"speed against gathered: bucketed {ratios[BUCKETED]:.2f}x, overlapped {ratios[OVERLAPPED]:.2f}x",
        flush=True,
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--bucket-kib", type=int, default=BUCKET_BYTES >> 10)
    parser.add_argument("--links", type=_link, nargs="+", default=[Link(), Link(1e-3, 10e9 / 8)])
    parser.add_argument(
        "--towers", type=int, nargs="+", default=range(len(_TOWERS)), help="0 to 2: those of 1, 10 and 50 MB"
    )
    options = parser.parse_args()
    print(f"{machine()}; buckets of {options.bucket_kib} KiB, batches of {_ROWS} events")
    for count in options.hosts:
        with DenseHosts(count) as hosts:
            for number in options.towers:
                width, layers = _TOWERS[number]
                case = DenseCase(width, layers, _ROWS, options.bucket_kib << 10)
                for link in options.links:
                    _measure(hosts, count, case, link, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
