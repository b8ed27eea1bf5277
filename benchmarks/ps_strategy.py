"""Training against parameter servers: Headrace's engine against ``tf.distribute.ParameterServerStrategy``, on the same model and batches.

    python -m benchmarks.ps_strategy [--rounds N] [--steps N] [--tables N] [--batch-rows N]

A DLRM of 26 tables of 100,000 x 16, whose pairs' products go through an MLP of 64, 32 and 1, with Adagrad for all weights and batches of 1,024
events with one id for each table, by a power law of exponent 1.2. Both sides have two server processes on this machine and one trainer, which is
a process: of Headrace the servers have one thread each and the trainer two, TensorFlow's servers and worker have two each. Sides alternate in
rounds of ``--steps`` steps; the first round of each compiles and is not counted. Printed are samples a second, CPU time of all processes of a side, the
median ratios of a round, and the loss of the first steps and of the last round.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.support import side_of_ps_engine, side_of_strategy
from benchmarks.support.harness import cpu_secs, machine
from benchmarks.support.server_processes import ServerProcesses
from benchmarks.support.strategy_case import SideProcess, StrategyCase, TrainedSteps

TARGET = 5.0
_FIRST_STEPS = 3


@dataclass(frozen=True, slots=True)
class _Trained:
    """Some steps of a side, and the CPU seconds of all its processes meanwhile."""

    steps: TrainedSteps
    cpu_secs: float


def _train(side: SideProcess, steps: int) -> _Trained:
    before = cpu_secs()
    found = side.train(steps)
    return _Trained(found, cpu_secs() - before)


@dataclass(frozen=True, slots=True)
class _Round:
    ours: _Trained
    theirs: _Trained


def _measure(case: StrategyCase, rounds: int, steps: int) -> None:
    ports = side_of_strategy.free_ports(case.servers + 1)
    cluster = side_of_strategy.start_cluster(ports)
    try:
        with (
            ServerProcesses(case.servers) as servers,
            SideProcess(side_of_ps_engine.build, case, servers.addresses) as ours,
            SideProcess(side_of_strategy.build, case, ports) as theirs,
        ):
            first = _Round(_train(ours, _FIRST_STEPS), _train(theirs, _FIRST_STEPS))
            found = [_Round(_train(ours, steps), _train(theirs, steps)) for _ in range(rounds)]
            _report(case, steps, first, found)
    finally:
        for process in cluster:
            process.kill()
            process.wait()


def _report(case: StrategyCase, steps: int, first: _Round, found: Sequence[_Round]) -> None:
    for number, one in enumerate(found):
        sides = one.ours, one.theirs
        rates = [steps * case.batch_rows / side.steps.secs for side in sides]
        cpu_ms = [1e3 * side.cpu_secs / steps for side in sides]
        print(f"round {number + 1}: {rates[0]:,.0f} and {rates[1]:,.0f} samples/s; CPU {cpu_ms[0]:.1f} and {cpu_ms[1]:.1f} ms a step")  # fmt: skip
    ratio = statistics.median(one.theirs.steps.secs / one.ours.steps.secs for one in found)
    cpu_ratio = statistics.median(one.theirs.cpu_secs / one.ours.cpu_secs for one in found)
    pairs = [(getattr(first, side).steps.loss, getattr(found[-1], side).steps.loss) for side in ("ours", "theirs")]
    print(f"loss: Headrace {pairs[0][0]:.3f} to {pairs[0][1]:.3f}, TensorFlow {pairs[1][0]:.3f} to {pairs[1][1]:.3f}")
    print(f"Headrace trains {ratio:.1f}x the samples of ParameterServerStrategy (target at least {TARGET:g}: "
          f"{'met' if ratio >= TARGET else 'missed'}), with {cpu_ratio:.1f}x the samples of a CPU second")  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--tables", type=int, default=StrategyCase().tables)
    parser.add_argument("--batch-rows", type=int, default=StrategyCase().batch_rows)
    given = parser.parse_args()
    print(machine())
    _measure(StrategyCase(tables=given.tables, batch_rows=given.batch_rows), given.rounds, given.steps)


if __name__ == "__main__":
    main()
