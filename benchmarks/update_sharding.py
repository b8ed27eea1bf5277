"""Updates of dense weights by a host's segments against updates of all weights on each host.

    python -m benchmarks.update_sharding [--hosts N …] [--rounds N] [--steps N] [--mlps N …] [--links DELAY_MS:GBIT …] [--optimizer NAME]

Hosts are processes of one thread for matrices that exchange over loopback, with a delay and a rate of the link into each host added where messages
arrive. They train MLPs of 1 and 50 MB of dense weights on both sides by turns. A step's time is the mean of a round's steps at the slowest host;
ratios are within a round, and medians over rounds. More hosts than cores share them: a step then takes the processor time of all hosts, and the time
of an update is given as CPU milliseconds of one host, in which the copy of the other hosts' weights is. In segments it runs beside the
backward pass, but for that copy. Equal bits are tested in tests/trainer/job/host/test_sharded_updates.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.support.dense_hosts import DenseCase
from benchmarks.support.harness import machine
from benchmarks.support.host_processes import HostProcesses
from benchmarks.support.host_rounds import add_options, ms_text, slowest_of
from benchmarks.support.sharded_hosts import SEGMENTS, SIDES, WHOLE, ShardedRounds

#: About 1, 4, 10 and 50 MB of weights.
_MLPS = ((256, 5), (512, 5), (512, 11), (1024, 13))
_ROWS = 128


def _measure(hosts: HostProcesses, count: int, rounds: ShardedRounds) -> None:
    found = hosts.run(rounds)
    slowest = {side: slowest_of([one[side].step_secs for one in found]) for side in SIDES}
    print(f"  {count} hosts, {rounds.case.dense_bytes / 1e6:.0f} MB, {rounds.link}")
    for side in SIDES:
        cpu, update = ([statistics.median(getattr(one[side], name)) for one in found] for name in ("cpu_secs", "update_cpu_secs"))  # fmt: skip
        slots = max(one[side].slot_bytes for one in found)
        print(f"    {side}: a step {ms_text(slowest[side])}; CPU of a host {statistics.mean(cpu) * 1e3:.1f} ms, of that "
              f"{statistics.mean(update) * 1e3:.1f} ms in the update; slots {slots / 1e6:.1f} MB a host")  # fmt: skip
    ratio = statistics.median(a / b for a, b in zip(slowest[WHOLE], slowest[SEGMENTS], strict=True))
    print(f"    {ratio:.2f}x the steps a second in segments", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--mlps", type=int, nargs="+", default=[0, 3], help="0 to 3: those of 1, 4, 10 and 50 MB")
    parser.add_argument("--optimizer", default="adam", choices=["adagrad", "adam", "newton"])
    options = parser.parse_args()
    print(
        f"{machine()}; batches of {_ROWS} events, {options.optimizer}; medians of {options.rounds} rounds, from the least to the most"
    )
    for count in options.hosts:
        with HostProcesses(count) as hosts:
            for number in options.mlps:
                case = DenseCase(*_MLPS[number], _ROWS)
                for link in options.links:
                    steps = options.steps if number else 10 * options.steps
                    _measure(hosts, count, ShardedRounds(case, options.optimizer, link, steps, options.rounds))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
