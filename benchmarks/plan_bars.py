"""What pipelining, hybrid partitions and feedback bring, one after the other: simulated on many cores, and with real processes.

    python -m benchmarks.plan_bars FILE... [--cores 128] [--events-per-core 256] [--skew 1.05] [--rounds N] [--accelerator 8]

Each file lists the tables of a model: docs/embedding-plans.md describes it. The bars:

* serial: a lookup, the dense part and the update follow each other; whole tables, the largest first, each on the core with the fewest bytes;
* + pipelining: the next lookup and the last update run beside the dense part, one step stale;
* + hybrid partition: the planner's tables, columns and rows, with one id an event and all rows alike for every table;
* + feedback: the planner's, by the statistics of the ids.

The first table is simulated: the cost model of ``cpu`` cores, whose rates plan_calibration.py fits to real steps, and the dense part as it is
measured here, the perceptrons of MLPerf's DLRM. Beside it stands what the same changes bring where rows of all tables are spread over all cores at
first. The second table is measured, with as many processes as processors. So few cores have so few of the tables that each has as many as on the
simulated cores, and at least three in all; tables have fewer rows, to fit into memory; rounds of the bars alternate. The dense part runs on an
accelerator that is ``--accelerator`` times as fast as a core: a core waits for so long. With 0 it runs on the same processors, in a second thread of
each process.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.partition_plans import by_size, roomy, without_feedback
from benchmarks.support.core_processes import CoreProcesses, tables_on
from benchmarks.support.dense_network import DenseNetwork, dense_secs
from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from benchmarks.support.harness import machine
from trainer.job.host.host_exchange import HostExchange
from trainer.planning.loads import loads_of
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.planner import make_plan
from trainer.planning.table_file import read_tables
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology, topology_of
from trainer.tables import IdBatch

Array = np.ndarray[Any, np.dtype[Any]]

_BARS = ("serial", "+ pipelining", "+ hybrid partition", "+ feedback")
_BATCHES, _ROUNDS_OF_BATCHES = 4, 3
#: Of each real process: its table values, and the ids of its batch.
_MOST_FLOATS, _MOST_IDS, _MOST_EVENTS = 60_000_000, 60_000, 1024
_FEWEST_TABLES = 3


@dataclass(frozen=True, slots=True)
class TrainingSteps:
    """Training steps of ``drawn`` by ``plan``.

    Attributes:
        is_pipelined: with one step of staleness; else serial.
        accelerator_secs: what the dense part takes on an accelerator; None: it runs on this core.
    """

    drawn: DrawnSet
    plan: PartitionPlan
    is_pipelined: bool
    accelerator_secs: float | None

    def run(self, exchange: HostExchange) -> float:
        """The seconds of a step on one core, after the first ones."""
        tables = tables_on(exchange, self.drawn, self.plan)
        gradients = self._dense_part(tables.width)
        steps = [IdBatch(one.ids, one.offsets, None, one.bounds)
                 for one in self.drawn.batches(_BATCHES, exchange.rank) * (1 + _ROUNDS_OF_BATCHES)]  # fmt: skip
        with ThreadPoolExecutor(1) as dense:
            began, pending = 0.0, None
            for number, batch in enumerate(steps):
                if number == _BATCHES:
                    began = time.monotonic()
                started: Future = dense.submit(gradients, tables.lookup(batch))
                if self.is_pipelined:
                    if pending is not None:
                        tables.apply_gradients(pending[0], pending[1].result())
                    pending = batch, started
                else:
                    tables.apply_gradients(batch, started.result())
            if pending is not None:
                tables.apply_gradients(pending[0], pending[1].result())
            return (time.monotonic() - began) / (len(steps) - _BATCHES)

    def _dense_part(self, width: int) -> Callable[[Array], Array]:
        """From activations to their gradients."""
        if self.accelerator_secs is None:
            return DenseNetwork(self.drawn.events).gradients
        secs, found = self.accelerator_secs, np.full((self.drawn.events, width), 1e-3, np.float32)

        def wait(_: Array) -> Array:
            time.sleep(secs)
            return found

        return wait


def plans_of(tables: Sequence[TableFacts], topology: PlanTopology, events: int) -> dict[str, PartitionPlan]:
    """The plan of each bar."""
    whole = by_size(tables, topology)
    hybrid = make_plan(without_feedback(tables), topology, events).plan
    fed_back = make_plan(tables, topology, events).plan
    return dict(zip(_BARS, (whole, whole, hybrid, fed_back), strict=True))


def simulated(
    tables: Sequence[TableFacts], topology: PlanTopology, events: int, dense: float
) -> tuple[list[float], float]:
    """The seconds of a step of each bar, and of serial steps with all rows over all cores."""
    plans = plans_of(tables, topology, events)
    embedding = [loads_of(plan, tables, topology, events).step_secs for plan in plans.values()]
    cyclic = cyclic_plan([(one.name, one.rows, one.columns) for one in tables], topology.cores)
    spread = loads_of(cyclic, tables, topology, events).step_secs + dense
    return [embedding[0] + dense, *(max(one, dense) for one in embedding[1:])], spread


def scaled(tables: Sequence[TableFacts], skew: float, cores: int, of_cores: int) -> DrawnSet:
    """As many tables a core as ``of_cores`` cores have, at least three in all, with as many of their rows and events as fit a process.

    They are evenly spaced among the tables by size.
    """
    count = min(max(round(len(tables) * cores / of_cores), _FEWEST_TABLES), len(tables))
    by_bytes = sorted(tables, key=lambda one: -one.table_bytes)
    chosen = [by_bytes[k * len(by_bytes) // count] for k in range(count)]
    share = min(cores * _MOST_FLOATS / sum(one.rows * one.columns for one in chosen), 1.0)
    drawn = tuple(
        DrawnTable(max(int(one.rows * share), 100), one.columns, max(round(one.ids_per_event), 1), skew)
        for one in chosen
    )
    return DrawnSet(drawn, max(min(_MOST_IDS // sum(one.ids for one in drawn), _MOST_EVENTS), 16), has_slots=False)


def measured(
    processes: CoreProcesses, drawn: DrawnSet, topology: PlanTopology, rounds: int, *, accelerator: float
) -> list[list[float]]:
    """The seconds of a step of each bar, by round."""
    dense = processes.run(DenseSteps(drawn.events))[0] / accelerator if accelerator else None
    plans = plans_of(drawn.facts(), topology, topology.cores * drawn.events)
    works = [TrainingSteps(drawn, plan, number > 0, dense) for number, plan in enumerate(plans.values())]
    by_round = [[max(processes.run(work)) for work in works] for _ in range(rounds)]
    return [list(secs) for secs in zip(*by_round, strict=True)]


def mean_gain(ratios: Sequence[float]) -> str:
    """A geometric mean of speeds, as a gain."""
    return f"{math.exp(statistics.fmean(map(math.log, ratios))) - 1:+.0%}"


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--cores", type=int, default=128)
    parser.add_argument("--events-per-core", type=int, default=256)
    parser.add_argument("--skew", type=float, default=1.05)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--accelerator", type=float, default=8.0)
    options = parser.parse_args()
    print(machine())
    sets = {Path(file).stem: read_tables(Path(file).read_bytes(), file, skew=options.skew) for file in options.files}
    processors = max(os.cpu_count() or 2, 2)
    with CoreProcesses(processors) as processes:  # first, since it makes numpy take one thread
        dense = processes.run(DenseSteps(options.events_per_core))[0]
        show_simulated(sets, options.cores, options.events_per_core, dense)
        of_machine = topology_of(f"cpu:{processors}")
        show_measured(sets, processes, of_machine, options)


@dataclass(frozen=True, slots=True)
class DenseSteps:
    """Steps of the dense part alone."""

    events: int

    def run(self, exchange: HostExchange) -> float:
        """The seconds of a step."""
        del exchange
        return dense_secs(self.events)


def show_simulated(sets: dict[str, tuple[TableFacts, ...]], cores: int, events: int, dense: float) -> None:
    """The first table."""
    print(
        f"simulated: {cores} cores of {events} events, dense part {1e3 * dense:.1f} ms; ms a step, and gain over serial"
    )
    gains: list[list[float]] = []
    from_spread = []
    for name, tables in sets.items():
        topology = roomy(tables, topology_of(f"cpu:{cores}"))
        secs, spread = simulated(tables, topology, events * cores, dense)
        gains.append([secs[0] / one for one in secs])
        from_spread.append(spread / secs[-1])
        show_bars(name, secs, gains[-1], f"; over serial steps with rows spread {from_spread[-1] - 1:+.0%}")
    show_means(gains, f"; over serial steps with rows spread {mean_gain(from_spread)}")


def show_measured(
    sets: dict[str, tuple[TableFacts, ...]], processes: CoreProcesses, topology: PlanTopology, options: argparse.Namespace
) -> None:  # fmt: skip
    """The second table."""
    place = f"an accelerator as fast as {options.accelerator:g} cores" if options.accelerator else "the same processors"
    print(
        f"measured: {topology.cores} processes, dense part on {place}; median ms a step, and median gain over serial in {options.rounds} rounds"
    )
    gains: list[list[float]] = []
    for name, tables in sets.items():
        drawn = scaled(tables, options.skew, topology.cores, options.cores)
        secs = measured(processes, drawn, topology, options.rounds, accelerator=options.accelerator)
        gains.append([statistics.median(a / b for a, b in zip(secs[0], one, strict=True)) for one in secs])
        show_bars(name, [statistics.median(one) for one in secs], gains[-1], "")
    show_means(gains, "")


def show_bars(name: str, secs: Sequence[float], gains: Sequence[float], rest: str) -> None:
    """The line of a set."""
    bars = ", ".join(
        f"{bar} {1e3 * one:.1f} ({gain - 1:+.0%})" for bar, one, gain in zip(_BARS, secs, gains, strict=True)
    )
    print(f"  {name:<38} {bars}{rest}", flush=True)


def show_means(gains: Sequence[Sequence[float]], rest: str) -> None:
    """The last line of a table."""
    bars = ", ".join(f"{bar} {mean_gain(one)}" for bar, one in zip(_BARS, zip(*gains, strict=True), strict=True))
    print(f"  {'geometric mean':<38} {bars}{rest}", flush=True)


if __name__ == "__main__":
    main()
