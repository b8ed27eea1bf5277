"""The arrays of hosts by a plan: those of their shards, whole or in parts, which restore the same tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.plans import plans
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import batches
from tests.trainer.tables.routes.partitioned.test_planned_engine import FEATURES, TABLES, normal_gradients
from tests.trainer.tables.routes.servers.test_hashed_servers import FEATURES as HASHED_FEATURES
from tests.trainer.tables.routes.servers.test_hashed_servers import LIMITS, batch_of
from tests.trainer.thread_exchange import on_hosts
from trainer.checkpoints.shard_rows import table_slices
from trainer.errors import TornCheckpoint
from trainer.job.host.shard_arrays import parted_shards, shard_arrays, shard_states
from trainer.tables import Adagrad, FeatureSpec, TableSpec
from trainer.tables.engine import TableState
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.stores.hashed.limits import TableLimits


def joined(parted):
    """The arrays that parts are written as."""
    parts = list(parted.parts)
    return {
        kind.name: np.concatenate([np.zeros((0, *kind.shape[1:]), kind.dtype), *(part[k] for part in parts)])
        for k, kind in enumerate(parted.kinds)
    }


@settings(max_examples=scaled(40))
@given(st.lists(batches(FEATURES), min_size=1, max_size=2), plans(FEATURES))
def test_shards_are_saved_once_and_restored(trained, plan):
    def work(exchange):
        made = lambda: ShardedTables(FEATURES, seed=3, exchange=exchange, parts=TableParts(TABLES, plan.cores, plan), threads=1)  # noqa: E731  # fmt: skip
        tables = made()
        for seed, batch in enumerate(trained):
            tables.apply_gradients(batch, normal_gradients(batch, tables.width, seed))
        saved = {}
        for parted in parted_shards("embedding", tables, 1 << 20):
            saved.update(joined(parted))
        tables.end_snapshot()
        whole = shard_arrays("embedding", tables)
        restored = made()
        restored.load_parts(shard_states(whole, "embedding", restored))
        again = shard_arrays("embedding", restored)
        return saved, whole, again

    for core, (saved, whole, again) in enumerate(on_hosts(plan.cores, work)):
        assert {name: array.tobytes() for name, array in whole.items() if name in saved} == {
            name: array.tobytes() for name, array in saved.items()
        }
        assert {name: array.tobytes() for name, array in again.items()} == {
            name: array.tobytes() for name, array in whole.items()
        }
        stands = [one for table in TABLES for one in table_slices(plan, "embedding", table.name) if core in one.cores]
        assert len(saved) == 3 * len(stands)


def test_shards_of_hashed_tables_are_saved_with_what_their_host_counts():
    """Also on a host that none of the ids of a small table is on."""
    small = TableSpec("small", 2, 4, Adagrad(0.1), "mean")
    features = (HASHED_FEATURES[0], FeatureSpec("small", small), HASHED_FEATURES[2])
    hashed = {**LIMITS, "small": TableLimits(6)}

    def batch(seed):
        found = batch_of(seed)
        first, stop = found.offsets[1, 0], found.offsets[1, -1]
        found.ids[first:stop] %= 2
        return found

    def work(exchange):
        made = lambda: ShardedTables(features, seed=3, exchange=exchange, hashed=hashed, threads=1)  # noqa: E731
        tables = made()
        tables.load_parts(shard_states(shard_arrays("embedding", tables), "embedding", tables))
        for seed in range(9):
            one = batch(seed)
            tables.apply_gradients(one, normal_gradients(one, tables.width, seed))
        saved = {}
        for parted in parted_shards("embedding", tables, 1 << 20):
            saved.update(joined(parted))
        tables.end_snapshot()
        whole = shard_arrays("embedding", tables)
        restored = made()
        restored.load_parts(shard_states(saved, "embedding", restored))
        return saved, whole, shard_arrays("embedding", restored)

    for saved, whole, again in on_hosts(3, work):
        expected = {name: (array.dtype, array.tobytes()) for name, array in whole.items()}
        assert {name: (array.dtype, array.tobytes()) for name, array in saved.items()} == expected
        assert {name: (array.dtype, array.tobytes()) for name, array in again.items()} == expected
        assert {name.split("/")[2] for name in whole if name.startswith("history/")} == {"ages", "steps", "candidates"}


def test_shards_of_other_tables_and_cores_are_refused():
    def work(exchange):
        tables = ShardedTables(FEATURES, seed=3, exchange=exchange, threads=1)
        arrays = shard_arrays("embedding", tables)
        missing = {name: array for name, array in arrays.items() if name != f"embedding/rows/{TABLES[0].name}"}
        with pytest.raises(TornCheckpoint, match="the saved shards of a host must be those of its tables"):
            shard_states(missing, "embedding", tables)
        with pytest.raises(TornCheckpoint, match="the saved shards of a host must be those of its tables"):
            shard_states(
                {**arrays, "embedding/rows/other": arrays[f"embedding/rows/{TABLES[0].name}"]}, "embedding", tables
            )
        state = tables.part_state(0)
        row = np.array([1 - exchange.rank], np.int64)
        wrong = TableState(
            row, np.zeros((1, state.weights.shape[1]), np.float32), np.zeros((1, state.slots.shape[1]), np.float32)
        )
        with pytest.raises(TornCheckpoint, match="a saved shard must hold rows of its core"):
            tables.load_parts({0: wrong})

    on_hosts(2, work)
