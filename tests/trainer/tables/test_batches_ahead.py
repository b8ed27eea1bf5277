"""Lookups that run several batches ahead of updates: engines keep what both need, and give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.test_engine import batch_of
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.engine import PartitionedEngine
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.spec import tables_of
from trainer.tables.stores.tiered.tiered_store import TieredStore

FEATURES = (
    FeatureSpec("a", TableSpec("one", 40, 3, Adagrad(0.1, 0.01), "sum")),
    FeatureSpec("b", TableSpec("two", 60, 4, Adagrad(0.1, 0.01), "mean")),
)
STALENESS = 4


class Counted(OneHost):
    """An exchange that counts its calls."""

    calls = 0

    def all_to_all(self, parts):
        self.calls += 1
        return super().all_to_all(parts)


def batches(count):
    rng = np.random.default_rng(5)
    return [
        batch_of([[rng.integers(0, 40, 3).tolist() for _ in range(6)], [rng.integers(0, 60, 2).tolist() for _ in range(6)]])
        for _ in range(count)
    ]  # fmt: skip


def train(engine, trained):
    """The activations of batches, each of which is updated after the lookups of the next four."""
    found, late = [], []
    for seed, batch in enumerate(trained):
        found.append(engine.lookup(batch).copy())
        late.append((batch, np.random.default_rng(seed).integers(-4, 5, found[-1].shape).astype(np.float32)))
        if len(late) > STALENESS:
            engine.apply_gradients(*late.pop(0))
    for one in late:
        engine.apply_gradients(*one)
    return found


def tiered():
    return TieredStore(tables_of(FEATURES), seed=3, hot_rows={"one": 7}, move_lookups=0.0)


ENGINES = {
    "cpu": lambda held: CpuEngine(FEATURES, seed=3, held=held),
    "partitioned": lambda held: PartitionedEngine(FEATURES, seed=3, cores=3, held=held),
    "tiered": lambda held: ShardedTables(FEATURES, seed=3, exchange=OneHost(), held=held, store=tiered()),
    "sharded": lambda held: ShardedTables(FEATURES, seed=3, exchange=OneHost(), held=held),
}


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_engines_give_the_same_bits_however_many_batches_they_keep(name):
    trained = batches(12)
    expected = CpuEngine(FEATURES, seed=3)
    activations = train(expected, trained)
    for held in (2, STALENESS + 1):
        engine = ENGINES[name](held)
        assert [one.tobytes() for one in train(engine, trained)] == [one.tobytes() for one in activations]
        for table, state in expected.state().items():
            found = engine.state()[table]
            assert found.rows.tobytes() == state.rows.tobytes()
            assert found.weights.tobytes() == state.weights.tobytes()
            assert found.slots.tobytes() == state.slots.tobytes()


def test_hosts_ask_for_the_rows_of_a_batch_once():
    """A lookup has two exchanges, of requests and of rows, and an update one."""
    trained = batches(12)
    calls = {}
    for held in (2, STALENESS + 1):
        exchange = Counted()
        train(ShardedTables(FEATURES, seed=3, exchange=exchange, held=held), trained)
        calls[held] = exchange.calls
    assert calls[STALENESS + 1] == 3 * len(trained)
    assert calls[2] > calls[STALENESS + 1]
