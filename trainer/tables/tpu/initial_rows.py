"""The initial values of rows: those of every engine, a hash of seed, table name, row and column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainer.tables.kernels.initial_rows import fill_row
from trainer.tables.kernels.layout import feature_layout, table_layout
from trainer.tables.optimizers import SGD
from trainer.tables.spec import FeatureSpec, TableSpec
from transforms.arrays import Array
from transforms.kernels.compiled import compiled


def initial_rows(table: TableSpec, seed: int, rows: Array) -> Array:
    """float32 [len(rows), dim]."""
    plain = replace(table, optimizer=SGD(1.0))  # initial values do not depend on it
    layout = table_layout(feature_layout([FeatureSpec(table.name, plain)], [plain]), [plain], seed)
    out = np.empty((len(rows), table.dim), np.float32)
    _fill_rows(out.reshape(-1), rows, table.dim, layout.keys[0], layout.kinds[0], layout.init_a[0], layout.init_b[0])
    return out


@compiled
def _fill_rows(out: Array, rows: Array, dim: int, key: np.uint64, kind: int, a: float, b: float) -> None:
    for k in range(len(rows)):
        fill_row(out, k * dim, dim, key, rows[k], kind, a, b)
