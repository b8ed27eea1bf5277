"""The exchange of embeddings by towers against the flat exchange, between real processes with limited links between hosts.

    python -m benchmarks.tower_exchange [--hosts N] [--workers N] [--steps N] [--rounds N] [--gbit RATE ...] [--delay-ms MS] [--ways NAME ...] [--cases NAME ...]

4 hosts of 4 workers are 16 processes of this machine, which exchange over TCP. Messages between hosts pass a link with a delay and a rate, which
the workers of a host share in equal parts; it is in the transport, since netem is not in every kernel. Rates are low since so many processes share
the machine's cores: a slow link to slow workers is a fast one to fast workers. Messages inside a host pass at once. In each
round all ways train the same batches. The table gives the steps a second over those of the flat exchange, medians of the rounds' ratios;
bytes between hosts and inside hosts of a step, the time of a processor that a step takes on each worker, and whether the outputs of all steps have the bits of the flat exchange: each step reads rows that
the steps before have updated. Towers are strided: every fourth feature. Then come modules of a DLRM's towers, which compress,
and both exchanges with values of 16 bits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import replace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.support.delayed_mailbox import Link
from benchmarks.support.harness import machine
from benchmarks.support.tower_processes import StepsDone, TowerCase, TowerProcesses, TowerSteps, Way
from trainer.tables.routes.towers.placement import TowerPlacement

_CASES = {
    "bags of 20 ids": TowerCase(tables=16, rows=100_000, dim=32, events=64, valency=20),
    "one id": TowerCase(tables=16, rows=100_000, dim=32, events=256, valency=1),
}
_FLAT = Way("flat", is_flat=True)
_EXACT = (
    Way("towers"),
    Way("towers, bags only", may_send_rows=False),
    Way("towers, c before b", is_swapped=True),
)
_WAYS = (
    _FLAT,
    *_EXACT,
    Way("towers, shared requests", is_deterministic=False, may_send_sums=False),
    Way("towers, sums", is_deterministic=False),
    *(Way(f"modules, ratio {k}", compression=k) for k in (2, 4, 8, 16)),
    *(replace(one, name=f"{one.name}, {bits} bits", values=values) for values, bits in (("fp16", 16), ("fp14", 14)) for one in (_FLAT, _EXACT[0])),
)  # fmt: skip


def _rate(done: list[StepsDone]) -> float:
    """Steps a second."""
    return 1 / statistics.median(done[0].secs)


def _measure(
    processes: TowerProcesses,
    name: str,
    case: TowerCase,
    placement: TowerPlacement,
    link: Link,
    options: argparse.Namespace,
) -> bool:
    """Print the ways of one case; whether towers have the bits of the flat exchange and are faster."""
    ways = tuple(one for one in _WAYS if one is _FLAT or not options.ways or one.name in options.ways)
    print(
        f"{name}: {case.tables} tables of {case.rows:,} x {case.dim}, {case.events} events a worker; link of a host: {link}",
        flush=True,
    )
    share = Link(link.delay_secs, link.bytes_per_sec / placement.host_workers)
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    last: dict[str, list[StepsDone]] = {}
    for _ in range(options.rounds):
        for way in ways:
            last[way.name] = processes.run(TowerSteps(case, placement, way, share, options.steps))
            rates[way.name].append(_rate(last[way.name]))
    is_met = True
    for way in ways:
        done = last[way.name]
        ratio = statistics.median(own / flat for own, flat in zip(rates[way.name], rates[_FLAT.name], strict=True))
        between, inside = (
            sum(getattr(one.sent, kind) for one in done) / options.steps / 1e6
            for kind in ("between_hosts", "inside_hosts")
        )
        messages = sum(one.sent.messages_between_hosts for one in done) / options.steps
        processor = 1e3 * statistics.mean(one.processor_secs for one in done) / (options.steps - 1)
        is_equal = [one.digests for one in done] == [one.digests for one in last[_FLAT.name]]
        is_met &= is_equal or way not in _EXACT
        is_met &= ratio > 1 or way is not _EXACT[0]
        print(f"  {way.name:24} {ratio:6.2f}x  {statistics.median(rates[way.name]):7.2f} steps/s  between hosts {between:7.3f} MB in {messages:4.0f} messages, "
              f"inside {inside:7.3f} MB  processor {processor:4.0f} ms a worker  {'bit-equal' if is_equal else 'other bits'}", flush=True)  # fmt: skip
    return is_met


def main() -> int:
    """Measure and print; the exit status is 1 if towers do not have the bits of the flat exchange, or are not faster."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4, help="of each host")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gbit", type=float, nargs="+", default=[0.02, 0.1], help="the rate of a host's link")
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=[one.name for one in _WAYS],
        default=[],
        help="these and the flat exchange; all without it",
    )
    parser.add_argument("--cases", nargs="+", choices=list(_CASES), default=list(_CASES))
    options = parser.parse_args()
    print(machine())
    is_met = True
    with TowerProcesses(options.hosts * options.workers) as processes:
        for name, case in ((name, _CASES[name]) for name in options.cases):
            placement = TowerPlacement(options.hosts, options.workers, case.strided_towers(options.hosts))
            for gbit in options.gbit:
                link = Link(options.delay_ms / 1e3, gbit * 1e9 / 8)
                is_met &= _measure(processes, name, case, placement, link, options)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
