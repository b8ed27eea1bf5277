"""The assignment of shards to cores by OR-Tools' CP-SAT solver, started from a given one: a program, from standard input to output.

The objective is the sum over phases of the slowest core; the cores of a slice are distinct, and memory suffices. One worker and
deterministic time make equal problems give equal assignments. :mod:`trainer.solving.process` runs it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

#: The units of a step's time: CP-SAT takes whole numbers.
_UNITS = 1_000_000


def solve(problem: dict[str, Any]) -> dict[str, Any]:
    """The ``cores`` of the places of each slice, and whether they are proven to be the best."""
    cores, shards = problem["cores"], problem["shards"]
    common = np.array(problem["common_secs"])
    loads = np.tile(common, (cores, 1))
    for one in shards:
        loads[one["cores"]] += np.array(one["secs"])
    unit = max(float(loads.max(axis=0).sum()) / _UNITS, 1e-15)
    model = cp_model.CpModel()
    terms: list[list[list[Any]]] = [[[] for _ in common] for _ in range(cores)]
    sizes: list[list[Any]] = [[] for _ in range(cores)]
    choices = []
    for one in shards:
        has = [[model.new_bool_var("") for _ in range(cores)] for _ in one["secs"]]
        choices.append(has)
        for place, of_place in enumerate(has):
            model.add_exactly_one(of_place)
            units = np.ceil(np.array(one["secs"][place]) / unit).astype(np.int64)
            for core, var in enumerate(of_place):
                model.add_hint(var, core == one["cores"][place])
                sizes[core].append(one["size_bytes"][place] * var)
                for phase in np.flatnonzero(units).tolist():
                    terms[core][phase].append(int(units[phase]) * var)
        if len(has) > 1:
            for core in range(cores):
                model.add_at_most_one(of_place[core] for of_place in has)
    slowest = [model.new_int_var(0, 4 * _UNITS, "") for _ in common]
    for core in range(cores):
        model.add(sum(sizes[core]) <= problem["memory_bytes"])
        for phase, longest in enumerate(slowest):
            model.add(sum(terms[core][phase]) + int(np.ceil(common[phase] / unit)) <= longest)
    model.minimize(sum(slowest))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = problem["solver_secs"]
    solver.parameters.relative_gap_limit = 1e-4
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return {"cores": [one["cores"] for one in shards], "is_optimal": False}
    found = [
        [next(core for core, var in enumerate(of_place) if solver.value(var)) for of_place in has] for has in choices
    ]
    return {"cores": found, "is_optimal": status == cp_model.OPTIMAL}


if __name__ == "__main__":
    json.dump(solve(json.load(sys.stdin)), sys.stdout)
