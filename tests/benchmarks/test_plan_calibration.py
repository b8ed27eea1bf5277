"""The calibration of the cost model: rates are found again, and real processes give times of all phases."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks.plan_bars import TrainingSteps, scaled
from benchmarks.support.core_processes import CoreProcesses, PhaseSecs, TimedSteps, phase_secs
from benchmarks.support.drawn_tables import drawn_plan, drawn_set, rank_correlation
from benchmarks.support.rate_fit import MeasuredCase, fitted_rates
from trainer.planning.loads import loads_of
from trainer.planning.plan import cyclic_plan
from trainer.planning.topologies import topology_of


@pytest.mark.slow
def test_rates_are_found_again_in_the_times_that_they_give():
    topology = topology_of("cpu:3")
    topology = replace(topology, rates=replace(topology.rates, shard_secs=2e-6, combine_byte_secs=1e-10))
    rng, cases = np.random.default_rng(1), []
    for _ in range(25):
        drawn = drawn_set(rng, most_tables=30)
        for _ in range(2):
            plan = drawn_plan(drawn.facts(), topology.cores, rng)
            loads = loads_of(plan, drawn.facts(), topology, topology.cores * drawn.events)
            secs = loads.core_secs
            received = loads_of(plan, drawn.facts(), _only(topology, "wire_byte_secs"), topology.cores * drawn.events)
            constant = topology.rates.step_secs / 4
            cases.append(
                MeasuredCase(drawn, plan, PhaseSecs(
                    step=loads.step_secs,
                    reader=np.full(topology.cores, loads.reader_secs - received.reader_secs + constant),
                    lookup=secs[:, 0] + constant,
                    exchange=float(secs[:, 1].max()) + received.reader_secs + constant,
                    update=secs[:, 2] + constant,
                ))
            )  # fmt: skip
    found = asdict(fitted_rates(cases, topology))
    for name, value in asdict(topology.rates).items():
        assert found[name] == pytest.approx(value, rel=0.02), name


def _only(topology, name):
    rates = dict.fromkeys(asdict(topology.rates), 0.0) | {"access_bytes": topology.rates.access_bytes}
    return replace(topology, rates=type(topology.rates)(**(rates | {name: getattr(topology.rates, name)})))


def test_rank_correlation_is_of_ranks():
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 100.0, 101.0]) == pytest.approx(1)
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)


@pytest.mark.slow
def test_processes_give_the_times_of_all_phases():
    drawn = replace(drawn_set(np.random.default_rng(2), most_tables=4), events=64)
    facts = drawn.facts()
    plan = cyclic_plan([(one.name, one.rows, one.columns) for one in facts], 2)
    with CoreProcesses(2) as cores:
        secs = phase_secs(cores.run(TimedSteps(drawn, plan, 1)))
        for found in (secs.reader, secs.lookup, secs.update, np.array(secs.exchange)):
            assert (found > 0).all()
        assert max(secs.lookup) + max(secs.update) + secs.exchange < 2 * secs.step
        for is_pipelined in (False, True):
            assert min(cores.run(TrainingSteps(drawn, plan, is_pipelined, 0.002))) > 0.002
        assert min(cores.run(TrainingSteps(drawn, plan, True, None))) > 0


def test_scaled_tables_fit_and_are_spread_over_the_sizes():
    drawn = replace(drawn_set(np.random.default_rng(3)), events=64)
    facts = drawn.facts()
    found = scaled(facts, 1.0, cores=2, of_cores=2)
    assert len(found.tables) == len(facts)
    assert len(scaled(facts, 1.0, cores=2, of_cores=100).tables) == min(3, len(facts))
    assert sum(one.ids for one in found.tables) * found.events <= 60_000
