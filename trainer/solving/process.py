"""Runs the solver in a process of its own: OR-Tools and TensorFlow in one process end it with a segmentation fault."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.assignment import PlacedShards
from trainer.planning.planner import Search
from trainer.planning.topologies import PlanTopology
from transforms.arrays import Array
from transforms.child_process import child_environment, module_command

#: The most choices of a core for a shard that the solver is given.
_MOST_CHOICES = 30_000
#: A process begins and its model is built; and deterministic seconds are longer than those of a clock on a busy machine.
_START_SECS, _SECS_OF_ONE = 60.0, 20.0


def search_with(solver_secs: float) -> Search:
    """The ``search`` of :func:`~trainer.planning.planner.make_plan`, with so many deterministic seconds of OR-Tools."""

    def search(
        shards: Sequence[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int
    ) -> tuple[list[PlacedShards], bool] | None:
        if sum(len(one.secs) for one in shards) * topology.cores > _MOST_CHOICES:
            return None
        return _search(shards, topology, common_secs, common_bytes, solver_secs)

    return search


def _search(
    shards: Sequence[PlacedShards], topology: PlanTopology, common_secs: Array, common_bytes: int, solver_secs: float
) -> tuple[list[PlacedShards], bool] | None:
    """The assignment of a solver's process; None if it takes far too long. Raises :class:`ConfigError` for one that fails."""
    problem = {
        "cores": topology.cores,
        "memory_bytes": topology.memory_bytes - common_bytes,
        "common_secs": common_secs.tolist(),
        "solver_secs": solver_secs,
        "shards": [
            {"secs": one.secs.tolist(), "size_bytes": one.size_bytes.tolist(), "cores": one.cores.tolist()}
            for one in shards
        ],
    }
    limit = _START_SECS + _SECS_OF_ONE * solver_secs
    try:
        done = subprocess.run(
            module_command("trainer.solving.cp_sat"), input=json.dumps(problem).encode(), capture_output=True, timeout=limit,
            check=True, env=child_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None  # the given assignment is the answer then
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ConfigError("OR-Tools found no assignment", value=str(last or error)[:200],
                          next_step="--solver-secs 0 plans without it") from error  # fmt: skip
    answer = json.loads(done.stdout)
    found = [replace(one, cores=np.array(cores)) for one, cores in zip(shards, answer["cores"], strict=True)]
    return found, bool(answer["is_optimal"])
