"""Virtual capacity: a model of 100 trillion parameters on 10,000 simulated servers, by the plan, routing and commit code of training.

    python -m benchmarks.ps_capacity [--full]

26 tables of 128 columns with row-wise Adagrad, batches of 4,096 events. In the first series the parameters grow with the servers, 10 billion on each
(40 GB); in the second one the parameters grow on 1,000 servers. Each case runs in a process of its own. A step's cost at the client is routing (distinct
rows, their servers, where answers go) and making all messages; a simulated server reads and checks its message. A commit is checked, written and
read as the controller of a job does; the parts of servers are described by each for itself. The case of 10,000 servers,
which takes five minutes, is one of ``--full``.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from benchmarks.support.capacity_case import CapacityCase, CapacityCosts, measure
from benchmarks.support.harness import machine

_SERVER_PARAMETERS = 10**10
_SERVERS = (100, 1_000, 10_000)
_GROWING, _ON_SERVERS = (10**11, 10**13, 10**14), 1_000


def _in_process(case: CapacityCase) -> CapacityCosts:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, case).result()


def _print(case: CapacityCase, found: CapacityCosts) -> None:
    print(f"{case.parameters / 1e12:>8g} T {case.servers:>7,}   {1e3 * found.plan_secs:7.0f} {1e3 * found.route_secs:7.1f} {1e3 * found.messages_secs:9.1f} "
          f"{1e6 * found.server_secs:8.0f} {found.message_bytes / 1e6:9.1f} {found.count_bytes / found.message_bytes:7.0%}   "
          f"{1e3 * found.part_secs:6.1f} {found.commit_secs:7.2f} {found.plan_bytes / 1e3:7.1f} {found.manifest_bytes / 1e6:9.2f} {found.part_bytes / 1e6:8.1f}   "
          f"{found.memory_bytes / 1e6:7.0f}", flush=True)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    print(machine())
    print(
        "                     plan   route  messages   server  messages  counts     part  commit    plan    commit    parts    memory"
    )
    print(
        "parameters servers     ms      ms        ms       us        MB             ms       s      kB        MB       MB        MB"
    )
    growing = [CapacityCase(servers * _SERVER_PARAMETERS, servers) for servers in _SERVERS]
    fixed = [CapacityCase(parameters, _ON_SERVERS) for parameters in _GROWING]
    found = {}
    for case in (*growing, *fixed):
        if not given.full and case.servers > _ON_SERVERS:
            continue
        found[case] = _in_process(case)
        _print(case, found[case])
    first, last = found[fixed[0]], found[fixed[-1]]
    print(f"1,000 times the parameters on the same servers: routing {last.route_secs / first.route_secs:.2f}x, "
          f"messages {last.messages_secs / first.messages_secs:.2f}x, commit {last.commit_secs / first.commit_secs:.2f}x")  # fmt: skip
    sized = [case for case in growing if case in found]
    one, other = found[sized[0]], found[sized[-1]]
    print(f"{sized[-1].servers // sized[0].servers} times the servers and parameters: step {_step_secs(other) / _step_secs(one):.1f}x, "
          f"commit {other.commit_secs / one.commit_secs:.1f}x, memory {other.memory_bytes / one.memory_bytes:.1f}x")  # fmt: skip


def _step_secs(costs: CapacityCosts) -> float:
    return costs.route_secs + costs.messages_secs


if __name__ == "__main__":
    main()
