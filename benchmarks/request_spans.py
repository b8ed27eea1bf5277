"""What spans of requests to parameter servers cost: at both ends of a request, as a share of the time of a small one.

    python -m benchmarks.request_spans [--steps 2000] [--rounds 7]

A request has a span at each end if the numbers of its frame say so, one in 251; the others cost the question. The cost is that of many requests, those with spans among them,
whose spans go to a queue as to an exporter; the processor seconds of the best round. The request is one of a training of one small table on one server of this machine: a step is a fetch and an
update, so its time over two is less than that of most requests, and the share an upper bound.

Target: below 1 % of a request, with a collector.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from benchmarks.support.server_processes import ServerProcesses
from trainer.tables.routes.servers.engine import PsEngine
from transforms.tracing.requests import ONE_OF, answered_request, asked_request
from transforms.tracing.spans import Span, Tracer, current_tracer, use_tracer

TARGET_SHARE = 0.01
_REQUESTS = 400 * ONE_OF


def _ask(number: int) -> None:
    """What the end that asks does beside its request."""
    if current_tracer() is not None and (asked := asked_request(7, number, "fetch")) is not None:
        asked.end()


def _answer(number: int) -> None:
    """What the end that answers does beside its request."""
    with answered_request(7, number, "fetch"):
        pass


def _cost_secs(work: Callable[[int], None], rounds: int) -> float:
    """The processor seconds of a request, without those of an empty function: the best of the rounds."""

    def round_secs(one: Callable[[int], None]) -> float:
        began = time.process_time()
        for number in range(_REQUESTS):
            one(number)
        return (time.process_time() - began) / _REQUESTS

    return min(round_secs(work) for _ in range(rounds)) - min(round_secs(lambda _: None) for _ in range(rounds))


def _request_secs(steps: int, rounds: int) -> tuple[float, float]:
    """The wall-clock seconds of a small request: the best round, and the median of all."""
    drawn = DrawnSet((DrawnTable(1_000, 16, 1, 1.1),), 64, has_slots=True)
    batches = drawn.batches(8, seed=1)
    found = []
    with ServerProcesses(1) as servers:
        engine = PsEngine(drawn.features(), seed=1, servers=servers.connects(), threads=1)
        for _ in range(rounds):
            began = time.perf_counter()
            for step in range(steps):
                batch = batches[step % len(batches)]
                activations = engine.lookup(batch)
                engine.apply_gradients(batch, (0.01 * activations).astype(np.float32))
            engine.finish()
            found.append((time.perf_counter() - began) / steps / 2)
        engine.close()
    return min(found), statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(machine())
    best_secs, median_secs = _request_secs(options.steps, options.rounds)
    print(f"a small request: {1e6 * best_secs:.0f} us at best, {1e6 * median_secs:.0f} us in the median")
    spans: deque[Span] = deque(maxlen=10_000)
    for name, tracer in (("without a collector", None), ("with a collector", Tracer(spans.append))):
        use_tracer(tracer)
        costs = [_cost_secs(work, options.rounds) for work in (_ask, _answer)]
        use_tracer(None)
        share = sum(costs) / best_secs
        print(f"{name}: {1e9 * costs[0]:.0f} ns to ask and {1e9 * costs[1]:.0f} ns to answer, {share:.3%} of a request (target below {TARGET_SHARE:.0%})")  # fmt: skip


if __name__ == "__main__":
    main()
