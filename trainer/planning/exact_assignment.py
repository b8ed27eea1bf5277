"""The assignment of shards to cores by OR-Tools' CP-SAT solver, started from a given one. Deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer.planning.assignment import PlacedShards
from trainer.planning.topologies import PlanTopology
from trainer.planning.work import PHASES

Array = np.ndarray[Any, np.dtype[Any]]

#: The most choices of a core for a shard that the solver is given.
_MOST_CHOICES = 30_000
#: The units of a step's time: CP-SAT takes whole numbers.
_UNITS = 1_000_000


def is_small(shards: Sequence[PlacedShards], cores: int) -> bool:
    """Whether the solver is given these shards."""
    return sum(len(one.secs) for one in shards) * cores <= _MOST_CHOICES


def search(
    shards: Sequence[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int, solver_secs: float
) -> tuple[list[PlacedShards], bool]:
    """The best assignment found, and whether it is proven to be the best one of these shards.

    The objective is the sum over phases of the slowest core; the cores of a slice are distinct, and memory suffices. One worker and
    deterministic time make equal calls give equal assignments.
    """
    from ortools.sat.python import cp_model

    loads = np.tile(common_secs, (topology.cores, 1))
    for one in shards:
        np.add.at(loads, one.cores, one.secs)
    unit = max(float(loads.max(axis=0).sum()) / _UNITS, 1e-15)
    model = cp_model.CpModel()
    terms: list[list[list[Any]]] = [[[] for _ in PHASES] for _ in range(topology.cores)]
    sizes: list[list[Any]] = [[] for _ in range(topology.cores)]
    choices = []
    for one in shards:
        units = np.ceil(one.secs / unit).astype(np.int64)
        has = [[model.new_bool_var("") for _ in range(topology.cores)] for _ in range(len(one.secs))]
        choices.append(has)
        for place, of_place in enumerate(has):
            model.add_exactly_one(of_place)
            for core, var in enumerate(of_place):
                model.add_hint(var, core == one.cores[place])
                sizes[core].append(int(one.size_bytes[place]) * var)
                for phase in range(len(PHASES)):
                    if units[place, phase]:
                        terms[core][phase].append(int(units[place, phase]) * var)
        if len(has) > 1:
            for core in range(topology.cores):
                model.add_at_most_one(of_place[core] for of_place in has)
    slowest = [model.new_int_var(0, 4 * _UNITS, name) for name in PHASES]
    common = np.ceil(common_secs / unit).astype(np.int64)
    for core in range(topology.cores):
        model.add(sum(sizes[core]) <= topology.memory_bytes - common_bytes)
        for phase, longest in enumerate(slowest):
            model.add(sum(terms[core][phase]) + int(common[phase]) <= longest)
    model.minimize(sum(slowest))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = solver_secs
    solver.parameters.relative_gap_limit = 1e-4
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return list(shards), False
    found = []
    for one, has in zip(shards, choices, strict=True):
        cores = [next(core for core, var in enumerate(of_place) if solver.value(var)) for of_place in has]
        found.append(replace(one, cores=np.array(cores)))
    return found, bool(status == cp_model.OPTIMAL)
