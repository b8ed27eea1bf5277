"""Headrace as a side of ``benchmarks.server_systems``: hashed tables in the process, or on a parameter server.

    python -m benchmarks.support.side_of_hashed_tables FILE THREADS|server|folder

``server``: the rows are in the memory of the server's process; ``folder``: in a folder of shared memory with an undo log, as ``headrace train --servers`` has them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.support.server_processes import ServerProcess, connects_to
from benchmarks.support.system_case import Array, GivenCase, MakeStep, SystemCase, answer_lines
from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import EmbeddingEngine
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.spec import Constant
from trainer.tables.stores.hashed.limits import TableLimits

_IDS = 1 << 62
_SHARED = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


def features_of(case: SystemCase) -> list[FeatureSpec]:
    """A feature of each table."""
    adagrad = Adagrad(case.rate, case.accumulator)
    return [
        FeatureSpec(f"f{t}", TableSpec(f"t{t}", _IDS, case.dim, adagrad, "sum", Constant(0.0)))
        for t in range(case.tables)
    ]


def limits_of(case: SystemCase) -> dict[str, TableLimits]:
    """A place for each id."""
    return {f"t{t}": TableLimits(2 * case.rows) for t in range(case.tables)}


def steps_of(engine: EmbeddingEngine, given: GivenCase) -> MakeStep:
    """The step of an engine."""
    case = given.case
    offsets = (np.arange(case.tables)[:, None] * case.events + np.arange(case.events + 1)[None]).astype(np.int64)

    def step(number: int) -> Array:
        batch = IdBatch(given.ids[number].reshape(-1), offsets)
        found = engine.lookup(batch)
        engine.apply_gradients(batch, given.gradients)
        return found

    return step


def main(file: str, where: str) -> None:
    """Answer lines; ``where``: the tables are, or how many threads they have in this process."""
    given = GivenCase.read(file)
    features, limits = features_of(given.case), limits_of(given.case)
    if where.isdigit():
        local = ShardedTables(features, seed=1, exchange=OneHost(), threads=int(where), hashed=limits)
        return answer_lines(steps_of(local, given), given.case.batches)
    with tempfile.TemporaryDirectory(dir=_SHARED) as folder:
        server = ServerProcess(folder=Path(folder) if where == "folder" else None)
        engine = PsEngine(features, seed=1, servers=connects_to([server.address]), threads=1, hashed=limits)
        answer_lines(steps_of(engine, given), given.case.batches)
        engine.close()
        server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
