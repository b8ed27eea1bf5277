"""Random states of tables, and their comparison; needs no TensorFlow, whose import takes seconds of every process that a test starts."""

from __future__ import annotations

import numpy as np

from trainer.tables import TableState
from trainer.tables.optimizers import slot_width


def random_states(tables, seed: int = 0) -> dict[str, TableState]:
    """About a third of the rows of each table, with random weights and slots."""
    source = np.random.default_rng(seed)
    states = {}
    for table in tables:
        rows = np.flatnonzero(source.random(table.vocabulary_size) < 0.3).astype(np.int64)
        shape = (len(rows), table.dim)
        slots = source.random((len(rows), slot_width(table.optimizer, table.dim)), np.float32)
        states[table.name] = TableState(rows, source.normal(size=shape).astype(np.float32), slots)
    return states


def assert_same(found, expected) -> None:
    """Equal states, bit for bit."""
    assert list(found) == list(expected)
    for name, state in expected.items():
        for part in ("rows", "weights", "slots"):
            assert getattr(found[name], part).tobytes() == getattr(state, part).tobytes(), (name, part)
