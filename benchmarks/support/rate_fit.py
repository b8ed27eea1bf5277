"""Fits what work costs a core to the measured phases of steps: the cost model is linear in its rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.support.core_processes import PhaseSecs
from benchmarks.support.drawn_tables import DrawnSet
from trainer.planning.loads import Loads, loads_of
from trainer.planning.plan import PartitionPlan
from trainer.planning.topologies import CoreRates, PlanTopology

Array = np.ndarray[Any, np.dtype[Any]]

_LOOKUP = ("request_secs", "read_byte_secs")
_UPDATE = ("gradient_byte_secs", "update_secs", "update_byte_secs")
_READER = ("id_secs", "place_byte_secs", "combine_byte_secs")
#: Beside a phase of fewer seconds, the machine's noise counts more than the phase.
_NOISE_SECS = 2e-4


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCase:
    """A plan of a set, and the seconds of its steps."""

    drawn: DrawnSet
    plan: PartitionPlan
    secs: PhaseSecs


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """The work of a case by the name of its rate: [cores, phases], and that of each core for its own events."""

    shards: dict[str, Array]
    reader: dict[str, float]


def fitted_rates(cases: Sequence[MeasuredCase], topology: PlanTopology) -> CoreRates:
    """The rates >= 0 with the least squares of relative errors, phase by phase; what no rate explains is the step's constant."""
    counts = [_counts_of(case, topology) for case in cases]
    cores = range(topology.cores)
    found: dict[str, float] = {}
    owned = [(count, core, case.secs) for count, case in zip(counts, cases, strict=True) for core in cores]
    constant = 0.0
    for names, phase, secs in (
        (_LOOKUP, 0, [secs.lookup[core] for _, core, secs in owned]),
        (_UPDATE, 2, [secs.update[core] for _, core, secs in owned]),
    ):
        rows = [
            [count.shards["shard_secs"][core, 0], *(count.shards[name][core, phase] for name in names)]
            for count, core, _ in owned
        ]
        (shard, *rates), left = _least_squares(rows, secs)
        found |= dict(zip(names, rates, strict=True))
        found["shard_secs"] = found.get("shard_secs", 0.0) + shard
        constant += left
    reader = [[count.reader[name] for name in _READER] for count in counts]
    rates, left = _least_squares(reader, [float(np.mean(case.secs.reader)) for case in cases])
    found |= dict(zip(_READER, rates, strict=True))
    constant += left
    wire = [[count.shards["wire_byte_secs"][:, 1].max() + count.reader["wire_byte_secs"]] for count in counts]
    (found["wire_byte_secs"],), left = _least_squares(wire, [case.secs.exchange for case in cases])
    return CoreRates(access_bytes=topology.rates.access_bytes, step_secs=constant + left, **found)


def _least_squares(rows: Sequence[Sequence[float]], secs: Sequence[float]) -> tuple[list[float], float]:
    """A rate for each column, and the constant."""
    target = np.array(secs)
    weight = 1 / (target + _NOISE_SECS)
    matrix = np.column_stack([np.array(rows), np.ones(len(target))]) * weight[:, None]
    scale = np.maximum(matrix.max(axis=0), np.finfo(float).tiny)
    found, _ = nnls(matrix / scale, target * weight)
    *rates, constant = (found / scale).tolist()
    return rates, constant


def _counts_of(case: MeasuredCase, topology: PlanTopology) -> _Counts:
    names = [field.name for field in fields(CoreRates) if field.name != "access_bytes"]
    free = replace(topology.rates, **dict.fromkeys(names, 0.0))
    shards, reader = {}, {}
    for name in names:
        loads = _loads(case, replace(topology, rates=replace(free, **{name: 1.0})))
        shards[name], reader[name] = loads.core_secs, loads.reader_secs
    return _Counts(shards, reader)


def estimated_secs(case: MeasuredCase, topology: PlanTopology) -> float:
    """The cost model's seconds of a step."""
    return _loads(case, topology).step_secs


def _loads(case: MeasuredCase, topology: PlanTopology) -> Loads:
    return loads_of(case.plan, case.drawn.facts(), topology, topology.cores * case.drawn.events)
