"""Tables of equal size, and batches of bags for them: most are short and a few long; ids follow a power law."""

from __future__ import annotations

import numpy as np

from trainer.tables import Adagrad, FeatureSpec, IdBatch, TableSpec

TABLES, ROWS, DIM = 26, 100_000, 64
_SKEW = 1.2


def features() -> list[FeatureSpec]:
    """One feature a table."""
    return [FeatureSpec(f"f{t}", TableSpec(f"t{t}", ROWS, DIM, Adagrad(0.01), "sum")) for t in range(TABLES)]


def make_batches(count: int, events: int, *, longest: int) -> list[IdBatch]:
    """``count`` batches with bags of 1 to ``longest`` ids."""
    rng, found = np.random.default_rng(11), []
    for _ in range(count):
        valencies = np.minimum(rng.zipf(1.8, (TABLES, events)), longest)
        ends = np.cumsum(valencies).reshape(valencies.shape)
        offsets = np.concatenate([(ends[:, :1] - valencies[:, :1]), ends], axis=1).astype(np.int64)
        ids = ((rng.zipf(_SKEW, int(ends[-1, -1])) - 1) % ROWS).astype(np.int32)
        found.append(IdBatch(ids, offsets, None, (ROWS,) * TABLES))
    return found
