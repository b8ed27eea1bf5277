"""One side of :mod:`benchmarks.table_steps`: makes the tables of a case, then times a step whenever a line asks for one.

Started by its path in the folder of a tree, whose packages it imports; an earlier tree has the same engines in other modules.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, os.getcwd())

import numpy as np

#: The package of embedding tables, and the modules of engines in it; the newest names first.
PLACES = (
    ("trainer.tables", "routes.pruned_engine", "routes.partitioned.engine"),
    ("trainer.embedding", "pruned.engine", "partitioned.engine"),
)


def main(case: str) -> None:
    """``case``: "cpu", "cores-N", or "pruned-COLUMNS-BAG" and "direct-COLUMNS-BAG"."""
    package, pruned, partitioned = next(one for one in PLACES if Path(one[0].replace(".", "/")).is_dir())
    tables, bags = import_module(package), import_module("benchmarks.support.long_tailed_bags")
    kind, *sizes = case.split("-")
    if kind in ("cpu", "cores"):
        features, batches = bags.features(), bags.make_batches(4, 1024, longest=500)
        cores = import_module(f"{package}.{partitioned}").PartitionedEngine
        engine = (
            tables.CpuEngine(features, seed=0, threads=1)
            if kind == "cpu"
            else cores(features, seed=0, cores=int(sizes[0]))
        )
    else:
        speed = import_module("benchmarks.pruning_speed")
        of = speed.Case(*map(int, sizes))
        rows, kept = 400_000, 200_000
        batches = speed.make_batches(of, rows)
        if kind == "direct":
            engine = tables.CpuEngine(speed.features_of(of, kept), seed=0, threads=1)
            batches = [tables.IdBatch(one.ids % kept, one.offsets) for one in batches]
        else:
            never = {"budget": kept / rows, "check_steps": 1 << 31, "decay_steps": 1 << 31}
            options = import_module("trainer.options.pruning").PruningOptions.read(never)
            make = import_module(f"{package}.{pruned}").PrunedEngine
            engine = make(speed.features_of(of, rows), options, seed=0, threads=1)
    gradients = np.random.default_rng(0).standard_normal((batches[0].rows, engine.width), np.float32)
    print("ready", flush=True)
    for line in sys.stdin:
        batch = batches[int(line) % len(batches)]
        fresh = tables.IdBatch(batch.ids, batch.offsets, None, batch.bounds)
        began = time.process_time()
        engine.lookup(fresh)
        middle = time.process_time()
        engine.apply_gradients(fresh, gradients)
        print(middle - began, time.process_time() - middle, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
